/**
 * What came out of a call, as elements: a tool's result, or the error in its place.
 */

import { make, pretty } from "./dom.js";

/** A CallToolResult. One with `isError` is an answer of the tool all the same, but it must not look like success. */
export function resultView(result) {
  const label = result.isError ? "The tool reports an error" : "Result";
  return make(
    "div",
    { class: result.isError ? "outcome wrong" : "outcome" },
    make("p", { class: "label" }, label),
    ...contentViews(result.content ?? [], result.structuredContent),
  );
}

/** Servers send structured content as text too, for clients that know no other; once is enough for a reader. */
function contentViews(content, structured) {
  if (structured === undefined) {
    return content.length > 0 ? content.map(blockView) : [make("p", { class: "hint" }, "It is empty.")];
  }
  const only = content.length === 1 && content[0].type === "text" ? content[0].text : null;
  if (only === wrapped(structured)) {
    return content.map(blockView);
  }
  if (content.length === 0 || sameJson(only, structured)) {
    return [jsonView(structured)];
  }
  return [...content.map(blockView), make("p", { class: "label" }, "Structured content"), jsonView(structured)];
}

/** The text of a bare value, which travels as `{"result": value}`. */
function wrapped(structured) {
  const values = structured !== null && typeof structured === "object" ? Object.values(structured) : [structured];
  return values.length === 1 ? String(values[0]) : undefined;
}

function sameJson(text, value) {
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

/** A JSON-RPC error `{code, message, data}`. */
export function errorView({ code, message, data }, label) {
  return make(
    "div",
    { class: "outcome wrong" },
    make("p", { class: "label" }, label),
    make("p", { class: "text" }, message),
    data === undefined ? null : jsonView(data),
    make("p", { class: "hint" }, `JSON-RPC error ${code}`),
  );
}

/** The first line of a result, for a sentence. */
export function summary(result) {
  const text = (result.content ?? []).find(({ type }) => type === "text")?.text ?? "";
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
}

function blockView(block) {
  if (block.type === "text") {
    return make("p", { class: "text" }, block.text);
  }
  if (typeof block.data === "string") {
    const kilobytes = Math.ceil((block.data.length * 3) / 4 / 1000);
    return make("p", { class: "hint" }, `${block.type}, ${block.mimeType ?? "of unknown type"}, about ${kilobytes} kB`);
  }
  return jsonView(block);
}

/** It may be wider than the page, and what scrolls must be reachable by keyboard. */
function jsonView(value) {
  return make("pre", { tabindex: 0, role: "region", "aria-label": "JSON" }, make("code", {}, pretty(value)));
}
