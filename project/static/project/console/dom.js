/**
 * Elements from plain values.
 *
 * Text always becomes a text node, so nothing that a server sends is ever read as markup.
 */

/** An element with attributes (true: present, false or null: absent) and children (elements or text). */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** An id that no other element has; labels and descriptions need one. */
export function newId(word) {
  newId.count = (newId.count ?? 0) + 1;
  return `${word}-${newId.count}`;
}

/** A text that is there or not: an empty paragraph would still take its margin. */
export function say(element, text) {
  element.textContent = text;
  element.hidden = text === "";
}

/** Any JSON value, indented for people. */
export function pretty(value) {
  return JSON.stringify(value, null, 2);
}

const ANNOUNCEMENTS_KEPT = 20;

/** Tell screen readers about a change of state. Progress never comes here: it would talk without end. */
export function announce(text) {
  const log = document.getElementById("announcements");
  log.append(make("p", {}, text));
  while (log.childElementCount > ANNOUNCEMENTS_KEPT) {
    log.firstElementChild.remove();
  }
}
