/**
 * The fields for a JSON Schema of an object, and the object that was filled in.
 */

import { INVALID, makeField } from "./fields.js";

export class SchemaForm {
  #fields;

  constructor(schema) {
    const required = new Set(schema.required ?? []);
    this.#fields = Object.entries(schema.properties ?? {}).map(([name, property]) => ({
      name,
      field: makeField(name, property, { required: required.has(name), root: schema }),
    }));
  }

  get elements() {
    return this.#fields.map(({ field }) => field.element);
  }

  get isEmpty() {
    return this.#fields.length === 0;
  }

  focus() {
    this.#fields[0]?.field.focus();
  }

  /** The object, or null when a field is wrong: then the reasons stand there, and the first of them has the focus. */
  read() {
    const values = {};
    let firstWrong = null;
    for (const { name, field } of this.#fields) {
      const value = field.read();
      if (value === INVALID) {
        firstWrong ??= field;
      } else if (value !== undefined) {
        values[name] = value;
      }
    }
    firstWrong?.focus();
    return firstWrong === null ? values : null;
  }
}
