/**
 * The tools that the server lists for this caller, each with a form for its arguments.
 */

import { make, say } from "./dom.js";
import { SchemaForm } from "./schema-form.js";

const MOST_PAGES = 50;

export class Tools {
  #connection;
  #list;
  #problem;
  #start;
  #shown = "";

  /** `list` takes the tools, `problem` what went wrong; `start(tool, values)` starts one. */
  constructor(connection, list, problem, start) {
    this.#connection = connection;
    this.#list = list;
    this.#problem = problem;
    this.#start = start;
  }

  /** Ask the server. Forms stay as they are, with what was typed, when it has the same tools as before. */
  async load() {
    try {
      const tools = await this.#fetch();
      const found = JSON.stringify(tools);
      if (found !== this.#shown) {
        this.#list.replaceChildren(...tools.map((tool, index) => this.#view(tool, index === 0)));
        this.#shown = found;
      }
      say(this.#problem, tools.length === 0 ? "The server has no tools for you." : "");
    } catch (reason) {
      say(this.#problem, `The tools could not be listed: ${reason.message}`);
    }
  }

  clear() {
    this.#list.replaceChildren();
    this.#shown = "";
    say(this.#problem, "");
  }

  focus() {
    this.#list.querySelector("summary")?.focus();
  }

  async #fetch() {
    const tools = [];
    let cursor;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const result = await this.#connection.request("tools/list", cursor === undefined ? {} : { cursor });
      tools.push(...result.tools);
      cursor = result.nextCursor;
      if (cursor === undefined) {
        break;
      }
    }
    return tools;
  }

  #view(tool, open) {
    const form = new SchemaForm(tool.inputSchema ?? {});
    const problem = make("p", { class: "problem", role: "alert", hidden: true });
    const element = make(
      "form",
      { novalidate: true },
      ...(form.isEmpty ? [make("p", { class: "hint" }, "It takes no arguments.")] : form.elements),
      make(
        "div",
        { class: "buttons" },
        make("button", { type: "submit" }, "Start", make("span", { class: "visually-hidden" }, ` ${tool.name}`)),
      ),
      problem,
    );
    element.addEventListener("submit", (event) => {
      event.preventDefault();
      const isConnected = this.#connection.state === "connected";
      say(problem, isConnected ? "" : "Not started: there is no connection to the server.");
      const values = isConnected ? form.read() : null;
      if (values !== null) {
        this.#start(tool.name, values);
      }
    });
    const name = make("code", {}, tool.name);
    const about = tool.description ? make("span", { class: "about" }, tool.description) : null;
    return make("details", { name: "tool", open }, make("summary", {}, name, about), element);
  }
}
