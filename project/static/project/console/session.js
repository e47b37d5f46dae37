/**
 * What this tab remembers over a reload, and no longer than the tab lives: the token, and which tasks it started.
 */

const TOKEN = "mcp-token";
const TASKS = "mcp-tasks";
const TASKS_KEPT = 30;

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function rememberToken(text) {
  sessionStorage.setItem(TOKEN, text);
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

/** Tasks as `{taskId, tool, values}`, oldest first. */
export function rememberedTasks() {
  try {
    return JSON.parse(sessionStorage.getItem(TASKS)) ?? [];
  } catch {
    return [];
  }
}

export function rememberTask(task) {
  const others = rememberedTasks().filter(({ taskId }) => taskId !== task.taskId);
  sessionStorage.setItem(TASKS, JSON.stringify([...others, task].slice(-TASKS_KEPT)));
}

export function forgetTasks() {
  sessionStorage.removeItem(TASKS);
}
