"""
Exact JSON text in and out: the only codec of the project.

Payloads are stored as the text that this module wrote and are spliced into replies
unparsed. So it refuses what one database would take and another would not (NaN,
infinities, more than 100 levels) and keeps what JSON columns lose: key order, big
integers, NUL and lone surrogates (both stay escaped).
"""

import hashlib
import json
import math
import re
from typing import Any, NoReturn

#: Any JSON value as Python holds it. The one place where ``Any`` is meant.
Json = Any

MAX_DEPTH = 100
_SURROGATES = re.compile("[\ud800-\udfff]")
_UNPLAIN = re.compile("[\x00\ud800-\udfff]")


class JsonError(ValueError):
    """A text that is no JSON we accept, or a value that has no JSON form. The message says what was wrong."""


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError("a number is too large for a double")
    return number


def _constant(text: str) -> NoReturn:
    raise JsonError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_canonical = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)


def loads(text: str | bytes) -> Json:
    """Parse JSON; raises JsonError for anything that is not exact, finite JSON of at most 100 levels."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = _decoder.decode(text)
    except JsonError:
        raise
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeDecodeError:
        raise JsonError("not UTF-8") from None
    except ValueError as problem:  # also "exceeds the limit for integer string conversion"
        raise JsonError(str(problem)) from None
    _check_depth(text, value)
    return value


def dumps(value: Json) -> str:
    """Compact JSON text in the value's own key order; raises JsonError where there is none."""
    try:
        text = _encoder.encode(value)
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError) as problem:
        raise JsonError(str(problem)) from None
    _check_depth(text, value)
    if text.isascii():
        return text
    return _SURROGATES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def canonical(value: Json) -> str:
    """One text per value, whatever the order of its keys: what is hashed and compared."""
    try:
        return _canonical.encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise JsonError(str(problem)) from None


def digest(value: Json) -> str:
    """Hex SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def size_bytes(text: str) -> int:
    """How many bytes a text takes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def plain_text(text: str, max_length: int) -> str:
    """A text that every database stores: NUL and lone surrogates become U+FFFD, then it is cut to its length."""
    return _UNPLAIN.sub("�", text)[:max_length]


def merge_objects(*texts: str | None) -> str:
    """Splice JSON objects into one without parsing them. The caller knows that no key occurs twice."""
    inner = (text[1:-1] for text in texts if text)
    return "{" + ",".join(part for part in inner if part) + "}"


def _check_depth(text: str, value: Json) -> None:
    # Only a text with that many openings can be that deep: nearly every one is done here.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, (dict, list, tuple))]
    if isinstance(value, (list, tuple)):
        return [child for child in value if isinstance(child, (dict, list, tuple))]
    return []
