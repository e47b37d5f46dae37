/**
 * One call of a tool, from the request to its outcome: at once, after questions, or as a task.
 */

import { Card, duration, moment } from "./card.js";
import { NoAnswer, RpcError, Withdrawn } from "./client.js";
import { errorView, resultView, summary } from "./result.js";
import { isFinished } from "./watcher.js";

const PATIENCE_MS = 400;
const PROGRESS = "django-mcp-tasks/progress";

const WORDS = {
  working: "Working",
  input_required: "Waiting for your answer",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
};

export class Call {
  #connection;
  #card;
  #request;
  #becameTask;
  #withdrawal = new AbortController();
  #task = null;
  #taskId = null;
  #isResumed = false;
  #startedAt = Date.now();
  /** Answers to questions of a call that is no task: they are sent together, with the state that came with them. */
  #round = null;

  /** `becameTask(taskId)` is told once the server has made a task of the call. */
  constructor(connection, tool, values, becameTask) {
    this.#connection = connection;
    this.#request = { name: tool, arguments: values };
    this.#becameTask = becameTask;
    this.#card = new Card(tool, values, {
      cancel: () => this.#cancel(),
      answer: (key, response) => this.#answer(key, response),
    });
  }

  get element() {
    return this.#card.element;
  }

  focus() {
    this.#card.focus();
  }

  start() {
    this.#card.times(moment("Started", this.#startedAt));
    this.#send({});
  }

  /** Go on with a task of which no more is known than its id. */
  resume(taskId) {
    this.#isResumed = true;
    this.#taskId = taskId;
    this.#card.taskId(taskId);
    this.#card.show("calling", "Looking it up…");
    this.#card.offerCancel("");
  }

  /** A DetailedTask from the server. */
  changed(task) {
    // Snapshots may overtake each other on their way here; what has ended stays ended.
    const known = this.#task;
    if (known !== null && (isFinished(known) || task.lastUpdatedAt < known.lastUpdatedAt)) {
      return;
    }
    this.#task = task;
    const finished = isFinished(task);
    const wrong = task.status === "failed" || task.result?.isError === true;
    const words = task.result?.isError ? "Completed with an error" : (WORDS[task.status] ?? task.status);
    // What a reload brings back is no news.
    const aloud = this.#isResumed && known === null ? null : spoken(task);
    this.#card.show(wrong ? "failed" : task.status, words, aloud);
    this.#card.message(task.status === "completed" || task.status === "failed" ? "" : (task.statusMessage ?? ""));
    this.#card.progress(task.status === "completed" ? null : (task._meta?.[PROGRESS] ?? null));
    this.#card.ask(task.status === "input_required" ? (task.inputRequests ?? {}) : {});
    this.#card.problem("");
    this.#card.offerCancel(finished ? "" : "Cancel task");
    this.#card.times(...taskTimes(task, finished));
    if (task.result) {
      this.#card.outcome(resultView(task.result));
    } else if (task.error) {
      this.#card.outcome(errorView(task.error, "The task failed"));
    }
  }

  /** Something is wrong that does not end the task. */
  trouble(text) {
    this.#card.problem(text);
  }

  /** The server does not have the task any more. */
  gone(why) {
    this.#end("failed", "Gone", `The server says: ${why}.`);
  }

  async #send(more) {
    this.#card.show("calling", "Calling…");
    this.#card.offerCancel("");
    // Most calls are answered before anybody could press it.
    const patience = setTimeout(() => this.#card.offerCancel("Cancel call"), PATIENCE_MS);
    const begun = performance.now();
    try {
      const result = await this.#connection.request(
        "tools/call",
        { ...this.#request, ...more },
        // A tool that answers at once may take long to do so; whoever waits can take the call back.
        { patienceMs: Infinity, signal: this.#withdrawal.signal },
      );
      clearTimeout(patience);
      this.#answered(result, performance.now() - begun);
    } catch (problem) {
      clearTimeout(patience);
      this.#unanswered(problem);
    }
  }

  #answered(result, took) {
    if (result.resultType === "task") {
      this.#taskId = result.taskId;
      this.#card.taskId(result.taskId);
      this.changed(result);
      this.#becameTask(result.taskId);
    } else if (result.resultType === "input_required") {
      this.#askedBack(result);
    } else {
      this.#card.outcome(resultView(result));
      this.#card.times(moment("Started", this.#startedAt), `answered in ${duration(took)}, without a task`);
      this.#end(
        result.isError ? "failed" : "completed",
        result.isError ? "Completed with an error" : "Completed",
        "",
        summary(result),
      );
    }
  }

  #unanswered(problem) {
    if (problem instanceof RpcError) {
      this.#card.outcome(errorView(problem, "The server refused the call"));
      this.#end("failed", "Refused", "", problem.message);
    } else if (problem instanceof Withdrawn) {
      this.#end("cancelled", "Cancelled", "");
    } else if (problem instanceof NoAnswer) {
      this.#end("failed", "No answer", `${problem.message} The tool may have run, or not.`);
    } else {
      throw problem;
    }
  }

  #askedBack({ inputRequests = {}, requestState }) {
    const waitsForNobody = Object.keys(inputRequests).length === 0;
    this.#round = { inputRequests, requestState, inputResponses: {} };
    this.#card.ask(inputRequests);
    this.#card.offerCancel("");
    if (waitsForNobody) {
      this.#end("failed", "Not now", "The server asks to try this again later.");
    } else {
      this.#card.show("input_required", WORDS.input_required);
    }
  }

  async #answer(key, response) {
    if (this.#taskId !== null) {
      await this.#connection.request("tasks/update", { taskId: this.#taskId, inputResponses: { [key]: response } });
      return;
    }
    const round = this.#round;
    round.inputResponses[key] = response;
    const open = Object.entries(round.inputRequests).filter(([name]) => !(name in round.inputResponses));
    this.#card.ask(Object.fromEntries(open));
    if (open.length === 0) {
      const { inputResponses, requestState } = round;
      this.#send(requestState === undefined ? { inputResponses } : { inputResponses, requestState });
    }
  }

  async #cancel() {
    if (this.#taskId === null) {
      this.#withdrawal.abort();
      return;
    }
    this.#card.problem("");
    try {
      await this.#connection.request("tasks/cancel", { taskId: this.#taskId });
    } catch (problem) {
      this.#card.problem(`The task was not cancelled: ${problem.message}`);
    }
  }

  #end(state, words, why, aloud = why) {
    this.#card.show(state, words, aloud);
    this.#card.ask({});
    this.#card.problem(why);
    this.#card.offerCancel("");
  }
}

function spoken({ result, error }) {
  return result ? summary(result) : (error?.message ?? "");
}

function taskTimes(task, finished) {
  const took = Date.parse(task.lastUpdatedAt) - Date.parse(task.createdAt);
  const parts = [moment("Started", task.createdAt)];
  if (finished) {
    parts.push(moment("ended", task.lastUpdatedAt), `after ${duration(took)}`);
  } else {
    parts.push(moment("last change", task.lastUpdatedAt));
  }
  if (typeof task.ttlMs === "number") {
    parts.push(moment("kept until", Date.parse(task.createdAt) + task.ttlMs));
  }
  return parts;
}
