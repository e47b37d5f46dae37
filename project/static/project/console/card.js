/**
 * How one call looks: its state, progress, questions, outcome and times. What happens to it is decided in calls.js.
 */

import { announce, make, newId, say } from "./dom.js";
import { Questions } from "./questions.js";

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });
const DAY_AND_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export class Card {
  #tool;
  #state = make("span", { class: "chip" });
  #heading;
  #bar = make("progress");
  #numbers = make("span");
  #progress;
  #message = make("p", { class: "message", hidden: true });
  #outcome = make("div", { hidden: true });
  #problem = make("p", { class: "problem", role: "alert", hidden: true });
  #times = make("p", { class: "times" });
  #taskId = make("p", { class: "times", hidden: true });
  #cancel = make("button", { type: "button", class: "secondary" }, "Cancel");
  #questions;

  /** Handlers: `cancel()`, and `answer(key, response)` as Questions takes it. */
  constructor(tool, values, { cancel, answer }) {
    this.#tool = tool;
    const id = newId("call");
    this.#heading = make("h4", { id, tabindex: -1 }, make("code", {}, tool));
    this.#bar.setAttribute("aria-label", `Progress of ${tool}`);
    this.#progress = make("div", { class: "progress", hidden: true }, this.#bar, this.#numbers);
    this.#questions = new Questions(answer);
    this.#cancel.addEventListener("click", () => cancel());
    this.element = make(
      "li",
      { class: "card", "aria-labelledby": id },
      make("div", { class: "card-head" }, this.#heading, this.#state),
      Object.keys(values).length === 0 ? null : make("p", { class: "arguments" }, inShort(values)),
      this.#message,
      this.#progress,
      this.#questions.element,
      this.#outcome,
      this.#problem,
      make("div", { class: "card-foot" }, make("div", {}, this.#times, this.#taskId), this.#cancel),
    );
  }

  focus() {
    this.#heading.focus();
  }

  /** The state as a word for style and as words for people; `aloud` is added for those who listen, null is silent. */
  show(state, words, aloud = "") {
    if (this.#state.textContent !== words && state !== "calling" && aloud !== null) {
      announce([`${this.#tool}: ${words}`, aloud].filter(Boolean).join(". "));
    }
    this.element.dataset.state = state;
    this.#state.textContent = words;
  }

  message(text) {
    say(this.#message, text);
  }

  /** Numbers as `{done, total}`; without a total there is nothing that a bar could show. */
  progress(numbers) {
    this.#progress.hidden = numbers === null;
    if (numbers === null) {
      return;
    }
    const { done, total } = numbers;
    this.#bar.hidden = !(total > 0);
    if (total > 0) {
      this.#bar.max = total;
      this.#bar.value = done;
    }
    const shown = NUMBER.format(done);
    this.#numbers.textContent = total > 0 ? `${shown} of ${NUMBER.format(total)}` : `${shown} done`;
  }

  /** Show exactly these questions. Focus that rested on one that is gone goes to the next, or to the card. */
  ask(inputRequests) {
    const { added, focusIsLost } = this.#questions.show(inputRequests);
    for (const question of added) {
      announce(`${this.#tool} asks: ${question}`);
    }
    if (focusIsLost && !this.#questions.focus()) {
      this.focus();
    }
  }

  outcome(view) {
    this.#outcome.hidden = view === null;
    this.#outcome.replaceChildren(...(view === null ? [] : [view]));
  }

  problem(text) {
    say(this.#problem, text);
  }

  /** The words on the button that ends it, or "" when there is nothing to end. */
  offerCancel(words) {
    const hadFocus = document.activeElement === this.#cancel;
    this.#cancel.hidden = words === "";
    this.#cancel.textContent = words;
    if (hadFocus && words === "") {
      this.focus();
    }
  }

  times(...parts) {
    this.#times.replaceChildren(...parts.flatMap((part, index) => (index ? [" · ", part] : [part])));
  }

  taskId(taskId) {
    this.#taskId.replaceChildren("Task ", make("code", {}, taskId));
    this.#taskId.hidden = false;
  }
}

/** A moment of the server's clock in this machine's time; with its day when that is not today. */
export function moment(label, time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  const shown = (isToday ? TIME : DAY_AND_TIME).format(date);
  return make("span", {}, `${label} `, make("time", { datetime: date.toISOString() }, shown));
}

export function duration(milliseconds) {
  if (milliseconds < 1000) {
    return `${Math.max(0, Math.round(milliseconds))} ms`;
  }
  const seconds = milliseconds / 1000;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

function inShort(values) {
  return Object.entries(values)
    .map(([name, value]) => `${name}: ${JSON.stringify(value)}`)
    .join(", ");
}
