"""JSON Schema 2020-12: compiled once, never fetched from a network (basic/index, "JSON Schema")."""

from collections.abc import Mapping

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

from .codec import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class InvalidSchema(ValueError):
    """A schema that is none, or of a dialect that we do not speak."""


def compile_schema(schema: Json, *, formats: bool = False) -> Draft202012Validator:
    """
    A validator for a schema; raises InvalidSchema.

    The registry knows the published meta-schemas and nothing else: a ``$ref`` that leaves the document is
    refused here instead of being fetched when somebody calls.
    """
    if not isinstance(schema, Mapping) and not isinstance(schema, bool):
        raise InvalidSchema("a schema is an object or a boolean")
    if isinstance(schema, Mapping):
        dialect = schema.get("$schema", DIALECT)
        if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
            raise InvalidSchema(f"the dialect {dialect!r} is not supported, use {DIALECT}")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        raise InvalidSchema(f"{'/'.join(map(str, problem.path)) or 'schema'}: {problem.message}") from None
    for reference in _references(schema):
        if not reference.startswith("#") and reference.rstrip("#") != DIALECT:
            raise InvalidSchema(f"the $ref {reference!r} leaves the schema")
    checker = Draft202012Validator.FORMAT_CHECKER if formats else None
    return Draft202012Validator(schema, registry=REGISTRY, format_checker=checker)


def _references(schema: Json) -> list[str]:
    found: list[str] = []
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            found += [item[name] for name in ("$ref", "$dynamicRef") if isinstance(item.get(name), str)]
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found
