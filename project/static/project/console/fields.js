/**
 * One labelled field for one property of a schema.
 *
 * A field is `{element, read(), focus()}`. `read` says what is wrong beside the field and then returns INVALID;
 * it returns undefined for an optional value that was left empty.
 */

import { make, newId, pretty, say } from "./dom.js";
import { choices, numberProblem, resolve, textProblem } from "./schema.js";

export const INVALID = Symbol("invalid");

const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };
const LONG_TEXT = 200;

export function makeField(name, property, { required, root }) {
  const schema = resolve(property, root);
  if (schema.default === null) {
    delete schema.default; // nothing to fill in: left out, the server takes it again
  }
  const about = { name, schema, required, root };
  const options = choices(schema);
  if (schema.type === "boolean" && options === null) {
    return radios(about, [
      { value: true, title: "Yes" },
      { value: false, title: "No" },
    ]);
  }
  if (options !== null) {
    return select(about, options);
  }
  if (schema.type === "array") {
    const several = choices(resolve(schema.items ?? {}, root));
    return several === null ? json(about) : checkboxes(about, several);
  }
  if (schema.type === "integer" || schema.type === "number") {
    return number(about);
  }
  return schema.type === "string" ? text(about) : json(about);
}

/** A single control with its label. `interpret(control)` gives `{value}` or `{problem}`. */
function single({ name, schema, required }, control, interpret) {
  const id = newId("field");
  const parts = around(schema, id);
  control.id = id;
  control.required = required;
  control.setAttribute("aria-describedby", parts.describedBy);
  const label = make("label", { for: id }, ...named(name, schema, required));
  return {
    element: make("div", { class: "field" }, label, parts.hint, control, parts.problem),
    focus: () => control.focus(),
    read() {
      const { value, problem = "" } = interpret(control);
      say(parts.problem, problem);
      control.setAttribute("aria-invalid", String(problem !== ""));
      return problem ? INVALID : value;
    },
  };
}

/** Several controls that are one value. `interpret(checked)` gives `{value}` or `{problem}`. */
function group({ name, schema, required }, controls, interpret, { role = null } = {}) {
  const parts = around(schema, newId("field"));
  const legend = make("legend", {}, ...named(name, schema, required));
  const rows = controls.map(({ control, title }) => make("label", { class: "choice" }, control, ` ${title}`));
  const element = make(
    "fieldset",
    { class: "field", role, "aria-describedby": parts.describedBy, "aria-required": role && String(required) },
    legend,
    parts.hint,
    make("div", { class: "choices" }, ...rows),
    parts.problem,
  );
  // Radio buttons are wrong together, boxes one by one; that is how screen readers know it.
  const marked = role === "radiogroup" ? [element] : controls.map(({ control }) => control);
  return {
    element,
    focus: () => (controls.find(({ control }) => control.checked) ?? controls[0])?.control.focus(),
    read() {
      const { value, problem = "" } = interpret(controls.filter(({ control }) => control.checked));
      say(parts.problem, problem);
      for (const each of marked) {
        each.setAttribute("aria-invalid", String(problem !== ""));
      }
      return problem ? INVALID : value;
    },
  };
}

function around(schema, id) {
  const hint = schema.description
    ? make("p", { class: "hint", id: `${id}-hint` }, schema.description)
    : null;
  const problem = make("p", { class: "problem", id: `${id}-problem`, hidden: true });
  return { hint, problem, describedBy: [hint?.id, problem.id].filter(Boolean).join(" ") };
}

function named(name, schema, required) {
  return [schema.title ?? name, " ", make("span", { class: "mark" }, required ? "required" : "optional")];
}

function text(about) {
  const { schema, required } = about;
  const long = schema.maxLength > LONG_TEXT || String(schema.default ?? "").includes("\n");
  const control = long
    ? make("textarea", { rows: 4 })
    : make("input", { type: INPUT_TYPES[schema.format] ?? "text", autocomplete: "off" });
  const isMoment = schema.format === "date-time";
  control.value = (isMoment ? localMoment(schema.default) : schema.default) ?? "";
  if (isMoment) {
    control.step = 1;
  }
  return single(about, control, ({ value }) => {
    if (value === "") {
      return required ? { problem: "Enter a value." } : {};
    }
    return isMoment ? { value: new Date(value).toISOString() } : { value, problem: textProblem(value, schema) };
  });
}

/** A moment as its control wants it: in the time of this machine, without a zone. */
function localMoment(moment) {
  const date = new Date(moment ?? NaN);
  if (Number.isNaN(date.getTime())) {
    return "";
  }
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function number(about) {
  const { schema, required } = about;
  const control = make("input", {
    type: "number",
    step: schema.multipleOf ?? (schema.type === "integer" ? 1 : "any"),
    min: schema.minimum,
    max: schema.maximum,
    value: schema.default,
    autocomplete: "off",
  });
  return single(about, control, ({ value, valueAsNumber, validity }) => {
    if (validity.badInput) {
      return { problem: "Enter a number." };
    }
    if (value === "") {
      return required ? { problem: "Enter a number." } : {};
    }
    return { value: valueAsNumber, problem: numberProblem(valueAsNumber, schema) };
  });
}

function select(about, options) {
  const { schema, required } = about;
  const control = make("select");
  const chosen = options.findIndex(({ value }) => value === schema.default);
  if (chosen < 0 || !required) {
    control.append(make("option", { value: "" }, required ? "Choose…" : "No choice"));
  }
  // A value may be of any type, so the options carry their place and not their value.
  control.append(...options.map(({ title }, index) => make("option", { value: index }, title)));
  control.value = chosen < 0 ? "" : String(chosen);
  return single(about, control, ({ value }) => {
    if (value === "") {
      return required ? { problem: "Choose one." } : {};
    }
    return { value: options[Number(value)].value };
  });
}

/** Both answers stand there: a box that is not ticked would not tell "no" from "not answered". */
function radios(about, options) {
  const { schema, required } = about;
  const name = newId("choice");
  const offered = required ? options : [...options, { value: undefined, title: "No answer" }];
  const controls = offered.map(({ value, title }) => {
    const control = make("input", { type: "radio", name, required });
    control.checked = value === schema.default;
    return { control, value, title };
  });
  const interpret = ([chosen]) => (chosen ? { value: chosen.value } : { problem: "Choose one." });
  return group(about, controls, interpret, { role: "radiogroup" });
}

function checkboxes(about, options) {
  const { schema, required } = about;
  const controls = options.map(({ value, title }) => {
    const control = make("input", { type: "checkbox" });
    control.checked = Array.isArray(schema.default) && schema.default.includes(value);
    return { control, value, title };
  });
  const least = schema.minItems ?? 0;
  const most = schema.maxItems ?? options.length;
  return group(about, controls, (chosen) => {
    if (chosen.length === 0 && !required) {
      return {};
    }
    if (chosen.length < least) {
      return { problem: `Choose at least ${least}.` };
    }
    return chosen.length > most ? { problem: `Choose at most ${most}.` } : { value: chosen.map(({ value }) => value) };
  });
}

/** Whatever a form has no control for. */
function json(about) {
  const { schema, required } = about;
  const control = make("textarea", { rows: 4, spellcheck: "false", class: "json" });
  control.value = schema.default === undefined ? "" : pretty(schema.default);
  const description = [schema.description, "As JSON."].filter(Boolean).join(" ");
  return single({ ...about, schema: { ...schema, description } }, control, ({ value }) => {
    if (value.trim() === "") {
      return required ? { problem: "Enter JSON." } : {};
    }
    try {
      return { value: JSON.parse(value) };
    } catch (problem) {
      return { problem: `This is not JSON: ${problem.message}` };
    }
  });
}
