"""
Values of the mirrored headers (SEP-2243): decoding, comparison, and the ``x-mcp-header`` annotation.

Which header belongs to which method is the business of ``rpc``; here is only what a value means.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from .codec import Json

ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^`|~0-9A-Za-z]+")  # a header field name, without "_": WSGI cannot tell it from "-"
_ENCODED = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(r"[\t -~]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MAX_SAFE = 2**53 - 1


class InvalidHeader(ValueError):
    """A header value that cannot be decoded."""


def decode(value: str) -> str:
    """
    The text that a header value stands for.

    Raises InvalidHeader for base64 that does not round-trip, and for characters that only base64 may carry.
    """
    value = value.strip(" \t")
    if not _PLAIN.fullmatch(value):
        raise InvalidHeader("not visible ASCII; other texts travel as base64")
    match = _ENCODED.fullmatch(value)
    if match is None:
        return value
    try:
        raw = base64.b64decode(match[1], validate=True)
        if base64.b64encode(raw).decode("ascii") != match[1]:
            raise InvalidHeader("the base64 text is not in its canonical form")
        return raw.decode("utf-8")
    except (binascii.Error, ValueError) as problem:
        raise InvalidHeader(f"not base64 of UTF-8: {problem}") from None


def encode(value: str) -> str:
    """The header value a client sends for a text: literal where it can, else base64."""
    if _PLAIN.fullmatch(value) and value == value.strip(" \t") and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode('ascii')}?="


def equals(argument: Json, value: str) -> bool:
    """Whether a decoded header says the same as an argument: booleans by word, integers by number."""
    if isinstance(argument, bool):
        return value == ("true" if argument else "false")
    if isinstance(argument, (int, float)):
        if not _NUMBER.fullmatch(value):
            return False
        return float(value) == argument if isinstance(argument, float) else Decimal(value) == argument
    return bool(value == argument)


def annotated(schema: Mapping[str, Json]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each annotated property of an input schema: its path from the root and its header's name."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, child in properties.items():
        if isinstance(child, Mapping):
            if ANNOTATION in child:
                yield (name,), child[ANNOTATION]
            for path, header in annotated(child):
                yield (name, *path), header


def annotation_problems(schema: Mapping[str, Json]) -> Iterator[str]:
    """What would make a client drop the tool: wrong names, wrong types, places that are not plain properties."""
    seen: set[str] = set()
    reachable = 0
    for path, header in annotated(schema):
        reachable += 1
        where = ".".join(path)
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            yield f'{ANNOTATION} of "{where}" is no header name: letters, digits and "-"'
        elif header.lower() in seen:
            yield f'{ANNOTATION} "{header}" is used twice'
        else:
            seen.add(header.lower())
        child: Json = schema
        for name in path:
            child = child["properties"][name]
        if child.get("type") not in ("string", "integer", "boolean"):
            yield f'{ANNOTATION} of "{where}" needs a property of type string, integer or boolean'
        bounds = [child.get(name) for name in ("minimum", "maximum") if isinstance(child.get(name), int)]
        if any(abs(bound) > _MAX_SAFE for bound in bounds):
            yield f'{ANNOTATION} of "{where}" allows integers beyond 2^53 - 1'
    if _count(schema) > reachable:
        yield f"{ANNOTATION} may stand only on properties that are reached through properties"


def _count(schema: Json) -> int:
    if isinstance(schema, Mapping):
        # A property may itself be called like the annotation: only a string is one.
        own = 1 if isinstance(schema.get(ANNOTATION), str) else 0
        return own + sum(_count(child) for child in schema.values())
    if isinstance(schema, list):
        return sum(_count(child) for child in schema)
    return 0
