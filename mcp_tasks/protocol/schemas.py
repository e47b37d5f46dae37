"""JSON Schema 2020-12: compiled once, never fetched from a network (basic/index, "JSON Schema")."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from .codec import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class InvalidSchema(ValueError):
    """A schema that is none, or of a dialect that we do not speak."""


def compile_schema(schema: Json, *, formats: bool = False) -> Draft202012Validator:
    """
    A validator for a schema; raises InvalidSchema.

    The registry knows the published meta-schemas and nothing else: a ``$ref`` that leaves the document is
    refused here instead of being fetched when somebody calls, and so is one that leads to no schema in it.
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
    _check_references(schema, REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema)))
    checker = Draft202012Validator.FORMAT_CHECKER if formats else None
    validator: Draft202012Validator = _Validator(schema, registry=REGISTRY, format_checker=checker)
    return validator


def _check_references(schema: Json, resolver: Any) -> None:
    stack = [(schema, resolver)]
    while stack:
        item, resolver = stack.pop()
        if isinstance(item, Mapping):
            if item is not schema and isinstance(item.get("$id"), str):
                resolver = resolver.in_subresource(DRAFT202012.create_resource(item))
            for name in ("$ref", "$dynamicRef"):
                if isinstance(item.get(name), str):
                    _check_reference(item[name], resolver)
            stack.extend((child, resolver) for child in item.values())
        elif isinstance(item, list):
            stack.extend((child, resolver) for child in item)


def _check_reference(reference: str, resolver: Any) -> None:
    if not reference.startswith("#") and reference.rstrip("#") != DIALECT:
        raise InvalidSchema(f"the $ref {reference!r} leaves the schema")
    try:
        target = resolver.lookup(reference).contents
    except (Unresolvable, LookupError, TypeError, ValueError):
        target = None
    if not isinstance(target, (Mapping, bool)):
        raise InvalidSchema(f"the $ref {reference!r} leads to no schema")


def _multiple_of(validator: Any, divisor: float, instance: Json, schema: Json) -> Iterator[ValidationError]:
    """By the decimal texts: the library divides doubles, where 0.3 is no multiple of 0.1 and a big integer raises."""
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(divisor)):
        yield ValidationError(f"{instance!r} is not a multiple of {divisor!r}")


_Validator = extend(Draft202012Validator, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
