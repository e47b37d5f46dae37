/**
 * The calls started in this page, newest first, and the tasks that the server made of them.
 */

import { Call } from "./call.js";
import { NoAnswer, RpcError } from "./client.js";
import { forgetTasks, rememberTask, rememberedTasks } from "./session.js";
import { isFinished, Watcher } from "./watcher.js";

export class Calls {
  #list;
  #empty;
  #connection;
  #watcher;
  #byTask = new Map();

  /** `list` takes the cards; `empty` is shown while there are none. */
  constructor(connection, list, empty) {
    this.#connection = connection;
    this.#list = list;
    this.#empty = empty;
    this.#watcher = new Watcher(connection, {
      changed: (task) => this.#changed(task),
      missing: (taskId) => this.#missing(taskId),
      troubled: (taskId, text) => this.#byTask.get(taskId)?.trouble(text),
    });
  }

  start(tool, values) {
    const call = this.#add(tool, values);
    call.start();
    call.focus();
  }

  /** The tasks of before a reload: they have lived on in the server. */
  restore() {
    for (const { taskId, tool, values } of rememberedTasks()) {
      const call = this.#add(tool, values);
      call.resume(taskId);
      this.#watch(taskId, call);
    }
  }

  clear() {
    this.#watcher.forgetAll();
    this.#byTask.clear();
    this.#list.replaceChildren();
    this.#empty.hidden = false;
    forgetTasks();
  }

  #add(tool, values) {
    const call = new Call(this.#connection, tool, values, (taskId) => {
      rememberTask({ taskId, tool, values });
      this.#watch(taskId, call);
    });
    this.#list.prepend(call.element);
    this.#empty.hidden = true;
    return call;
  }

  #watch(taskId, call) {
    this.#byTask.set(taskId, call);
    this.#watcher.add(taskId);
  }

  #changed(task) {
    this.#byTask.get(task.taskId)?.changed(task);
  }

  /** The server accepts no listen for a task, and does not say why; asking for the task does. */
  async #missing(taskId) {
    const call = this.#byTask.get(taskId);
    try {
      const task = await this.#connection.request("tasks/get", { taskId });
      call?.changed(task);
      if (!isFinished(task)) {
        call?.trouble("The server sends no live updates of this task.");
      }
    } catch (problem) {
      if (problem instanceof RpcError) {
        call?.gone(problem.message);
      } else if (problem instanceof NoAnswer) {
        this.#watcher.add(taskId);
      } else {
        throw problem;
      }
    }
  }
}
