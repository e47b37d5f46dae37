/**
 * What a JSON Schema of one value asks for, as far as a form needs to know.
 *
 * It reads what tools and questions are described with: plain types, choices, and pydantic's way of saying
 * "or null". Anything else becomes a field for JSON, so that every tool can be started.
 */

/** A property's schema without references and without "or null". */
export function resolve(schema, root) {
  let plain = schema;
  for (let depth = 0; depth < 8 && typeof plain.$ref === "string"; depth += 1) {
    const { $ref, ...rest } = plain;
    plain = { ...pointed(root, $ref), ...rest };
  }
  const options = plain.anyOf?.filter((option) => option.type !== "null");
  if (options?.length === 1) {
    const { anyOf, ...rest } = plain;
    plain = resolve({ ...options[0], ...rest }, root);
  }
  if (Array.isArray(plain.type)) {
    const types = plain.type.filter((type) => type !== "null");
    plain = { ...plain, type: types.length === 1 ? types[0] : undefined };
  }
  return plain;
}

function pointed(root, reference) {
  return reference
    .replace(/^#\//, "")
    .split("/")
    .reduce((node, part) => node?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root);
}

/** The choices of a value as `{value, title}`, or null when it is no choice. */
export function choices(schema) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, index) => ({ value, title: schema.enumNames?.[index] ?? String(value) }));
  }
  if ("const" in schema) {
    return [{ value: schema.const, title: schema.title ?? String(schema.const) }];
  }
  const options = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(options) && options.length > 0 && options.every((option) => "const" in option)) {
    return options.map((option) => ({ value: option.const, title: option.title ?? String(option.const) }));
  }
  return null;
}

/** The reason in words why a number is outside its schema, or "". */
export function numberProblem(number, schema) {
  if (schema.type === "integer" && !Number.isInteger(number)) {
    return "Enter a whole number.";
  }
  if (schema.type === "integer" && !Number.isSafeInteger(number)) {
    return "This number is too large to be sent exactly.";
  }
  if (number < schema.minimum) {
    return `Enter ${schema.minimum} or more.`;
  }
  if (number > schema.maximum) {
    return `Enter ${schema.maximum} or less.`;
  }
  if (number <= schema.exclusiveMinimum) {
    return `Enter more than ${schema.exclusiveMinimum}.`;
  }
  if (number >= schema.exclusiveMaximum) {
    return `Enter less than ${schema.exclusiveMaximum}.`;
  }
  return "";
}

/** The reason in words why a text is outside its schema, or "". Lengths count characters, as JSON Schema does. */
export function textProblem(text, schema) {
  const length = [...text].length;
  if (length < schema.minLength) {
    return `Enter at least ${characters(schema.minLength)}.`;
  }
  if (length > schema.maxLength) {
    return `Enter at most ${characters(schema.maxLength)}; these are ${length}.`;
  }
  if (schema.pattern !== undefined && !matches(text, schema.pattern)) {
    return `Enter a text that fits the pattern ${schema.pattern}.`;
  }
  if (schema.format === "email" && !/^[^\s@]+@[^\s@]+$/.test(text)) {
    return "Enter an e-mail address, such as name@example.org.";
  }
  if (schema.format === "uri" && !URL.canParse(text)) {
    return "Enter a complete address, with its scheme.";
  }
  return "";
}

function characters(count) {
  return count === 1 ? "1 character" : `${count} characters`;
}

/** A pattern that this browser cannot read is left to the server to judge. */
function matches(text, pattern) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}
