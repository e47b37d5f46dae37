/**
 * The questions of one call, each a form of its own: one may be answered while another is still being thought about.
 */

import { RpcError } from "./client.js";
import { make, newId, say } from "./dom.js";
import { SchemaForm } from "./schema-form.js";

export class Questions {
  element = make("div", { class: "questions", hidden: true });
  #answer;
  #forms = new Map();

  /** `answer(key, response)` sends an answer; what it throws is said beside the question. */
  constructor(answer) {
    this.#answer = answer;
  }

  /** Show exactly these. A form that is there already stays as it is, with what has been typed into it. */
  show(inputRequests) {
    const hadFocus = this.element.contains(document.activeElement);
    for (const [key, form] of this.#forms) {
      if (!(key in inputRequests)) {
        form.element.remove();
        this.#forms.delete(key);
      }
    }
    const added = Object.keys(inputRequests).filter((key) => !this.#forms.has(key));
    for (const key of added) {
      const form = question(inputRequests[key], (response) => this.#answer(key, response));
      this.#forms.set(key, form);
      this.element.append(form.element);
    }
    this.element.hidden = this.#forms.size === 0;
    const focusIsLost = hadFocus && !this.element.contains(document.activeElement);
    return { added: added.map((key) => inputRequests[key].params?.message ?? key), focusIsLost };
  }

  /** The place to go on after an answer; false when nothing is left to answer. */
  focus() {
    const [next] = this.#forms.values();
    next?.focus();
    return next !== undefined;
  }
}

function question({ method, params = {} }, answer) {
  const isForm = method === "elicitation/create" && params.mode !== "url";
  const fields = isForm ? new SchemaForm(params.requestedSchema ?? {}) : new SchemaForm({});
  const problemId = newId("question-problem");
  const problem = make("p", { class: "problem", id: problemId, role: "alert", hidden: true });
  const accept = make("button", { type: "submit" }, "Accept");
  const decline = make("button", { type: "button", class: "secondary" }, "Decline");
  const cancel = make("button", { type: "button", class: "secondary" }, "Cancel question");
  const buttons = isForm ? [accept, decline, cancel] : [];
  const element = make(
    "form",
    { class: "question", novalidate: true, "aria-describedby": problemId },
    make(
      "fieldset",
      {},
      make("legend", {}, params.message ?? "A question"),
      isForm ? null : make("p", {}, `This page cannot answer questions of the kind ${method}.`),
      ...fields.elements,
      make("div", { class: "buttons" }, ...buttons),
      problem,
    ),
  );

  async function send(response) {
    say(problem, "");
    // Not disabled: a button that is disabled drops the focus that rests on it.
    element.setAttribute("aria-busy", "true");
    try {
      await answer(response);
    } catch (reason) {
      say(problem, reason instanceof RpcError ? `The server refused the answer: ${reason.message}` : reason.message);
    } finally {
      element.removeAttribute("aria-busy");
    }
  }

  const sendOnce = (response) => element.hasAttribute("aria-busy") || send(response);
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    const content = fields.read();
    if (content !== null) {
      sendOnce({ action: "accept", content });
    }
  });
  decline.addEventListener("click", () => sendOnce({ action: "decline" }));
  cancel.addEventListener("click", () => sendOnce({ action: "cancel" }));
  return { element, focus: () => (fields.isEmpty ? accept.focus() : fields.focus()) };
}
