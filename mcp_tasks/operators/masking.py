"""
What of a stored JSON text nobody but its owner should read: rules over keys and over the look of strings.

Pure functions of text: no database, no settings. Rules err towards hiding, and every one reads a text once:
the expressions never return to what they passed, because the text is a stranger's.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from urllib.parse import unquote

from ..protocol.codec import Json

#: What stands in the place of a hidden value.
MASKED = "••• masked •••"

#: Names of members and positions in arrays, from the root.
Path = tuple[str | int, ...]
#: Start and end of a token or a value in its text.
Span = tuple[int, int]
#: A project's word on a member: hide it, do not hide it for its name, or (None) let the rules decide.
Mask = Callable[[Path, str], bool | None]

# What is known of a key, as bits: hidden; hidden unless a number; names the member "value" next to it; is
# that member; looks like a secret itself.
SECRET, COUNTED, NAMES, VALUE, LOOKS = 1, 2, 4, 8, 16

# fmt: off
_BUILT_IN = (
    "password", "passwd", "passphrase", "passcode", "secret", "token", "authorization", "cookie", "credential",
    "session", "otp", "pin", "iban", "ssn", "api_key", "private_key", "secret_key", "session_id", "session_key",
    "access_token", "refresh_token", "auth_token", "bearer_token", "id_token", "csrf_token", "xsrf_token",
    "csrf_middleware_token", "jsession_id", "php_sess_id", "pass_word", "pass_phrase",
)
_MEASURES = frozenset((
    "budget", "cost", "count", "counts", "expires", "length", "limit", "max", "min", "minutes", "ms", "per",
    "price", "rate", "seconds", "size", "timeout", "total", "ttl", "usage", "used",
))
# fmt: on
#: These also name things that are counted: ``max_tokens``, ``token_count``.
_COUNTABLE = frozenset({"token", "session"})
_PAIR_NAMES = frozenset({"name", "key", "header"})
_PAIR_VALUES = frozenset({"value", "values"})
_CACHED_KEYS, _CACHED_LENGTH = 4096, 64

_LOWER = r"[^\W\d_A-Z]"
_WORD = re.compile(rf"[A-Z]+(?!{_LOWER})|[A-Z]?{_LOWER}+|[0-9]+")
_CAPITALS = re.compile(rf"[A-Z]{{2,}}(?={_LOWER})")

_ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|/)")
_ESCAPE_LEVELS = 4
_BEARER = re.compile(
    r"\A\s*+bearer\s++\S++\s*+\Z|\bbearer\s++(?:[\w.~+/=-]{12}|[a-z.~+/=_-]*+[0-9])|authorization\W{1,9}bearer\s",
    re.IGNORECASE,
)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]++\.[\w-]++\.", re.ASCII)
_USERINFO = re.compile(r"://[^\s/?#@:]*+:[^\s/?#@]++@")
_PARAMETER = re.compile(r"(?:\A|[?&;#] ?)([^=&#?;\s]{1,100})=([^&#\s])")
_MEMBER = re.compile(r"""(["'])\s*+:\s*+(?:(-?[0-9])|\\*+["']([^"'\\]{1,200}))?""")


def words(key: str) -> list[str]:
    """The words of a key in small letters: parted where case changes and at whatever is no letter."""
    plain = _plain(key)
    return [word.casefold() for word in _WORD.findall(plain.casefold() if plain.isupper() else plain)]


def _plain(key: str) -> str:
    """Without wide forms of letters and without what cannot be seen."""
    if key.isascii():
        return key
    return "".join(char for char in unicodedata.normalize("NFKC", key) if unicodedata.category(char) != "Cf")


def hides(bits: int, is_number: bool) -> bool:
    """Whether what is known of a key hides its value."""
    return bool(bits & SECRET) or (bool(bits & COUNTED) and not is_number)


def word_problem(entry: str) -> str | None:
    """What is wrong with a word that a project adds, as a sentence; None when it can be in a key (E008)."""
    if not words(entry):
        return "it has no letter or digit, so no key has it"
    if re.search(r"[^\w\s.-]", entry):
        return "it is compared with the words of keys, and is no pattern"
    return None


class Rules:
    """
    Which keys and strings are secret. Immutable; made once per set of extra words, see ``rules_for``.

    An extra word may be several (``card_number``): they then hide a key in which they stand side by side.
    """

    def __init__(self, sensitive: Collection[str] = ()) -> None:
        entries = [words(entry) for entry in (*_BUILT_IN, *sensitive)]
        entries = [entry for entry in entries if entry]
        self._singles = frozenset("".join(entry) for entry in entries)
        self._compounds = frozenset("".join(entry) for entry in entries if len(entry) > 1)
        self._longest = max(map(len, entries))
        self._own = frozenset("".join(words(entry)) for entry in sensitive)
        # Nearly every key holds no beginning of any entry, and is done here.
        beginnings = sorted({re.escape(entry[0]) for entry in entries})
        self._hint = re.compile("|".join(beginnings))
        self._known: dict[str, int] = {}

    def hides(self, key: str, *, number: bool = False) -> bool:
        """Whether the value under a decoded key is hidden, whatever it holds; ``number`` says that it is one."""
        return hides(self.of_key(key), number)

    def of_key(self, key: str) -> int:
        """All that is known of a decoded key, as bits."""
        bits = self._known.get(key)
        if bits is None:
            bits = self._judge(key)
            if len(key) <= _CACHED_LENGTH:
                if len(self._known) >= _CACHED_KEYS:
                    self._known.clear()
                self._known[key] = bits
        return bits

    def looks_secret(self, text: str) -> bool:
        """
        Whether a decoded string is hidden for its look, whole.

        A bearer credential, a JWT, a PEM block, a URL with a password or a secret parameter, or JSON (also
        a piece of it, also inside further strings) that holds a secret key.
        """
        if len(text) < 6:
            return False
        if "\\" in text and (text := _unescape(text) or "") == "":
            return True
        return bool(
            "-----BEGIN " in text
            or ("eyJ" in text and _JWT.search(text))
            or (("earer" in text or "EARER" in text) and _BEARER.search(text))
            or ("://" in text and _USERINFO.search(text))
            or ("=" in text and self._has_parameter(text))
            or (":" in text and ('"' in text or "'" in text) and self._has_member(text))
        )

    def _judge(self, key: str) -> int:
        lowered = key.lower()
        bits = NAMES if lowered in _PAIR_NAMES else VALUE if lowered in _PAIR_VALUES else 0
        if self.looks_secret(key):
            bits |= LOOKS
        plain = _plain(key)
        if self._hint.search(plain.casefold()):
            bits |= self._judge_words(words(plain), [run.casefold() for run in _CAPITALS.findall(plain)])
        return bits

    def _judge_words(self, parts: list[str], capitals: list[str]) -> int:
        # "OTPcode" is parted as OT and Pcode like "APIKey" as API and Key: whole runs of capitals count too.
        hits = {hit for part in (*parts, *capitals) for hit in _of(part, self._singles)}
        for length in range(2, self._longest + 1):
            for start in range(len(parts) - length + 1):
                hits.update(_of("".join(parts[start : start + length]), self._compounds))
        if not hits:
            return 0
        if hits & self._own or not hits <= _COUNTABLE:
            return SECRET
        is_measured = not _MEASURES.isdisjoint(parts)
        if hits.isdisjoint(parts) and not hits & set(capitals):  # only in the plural
            return 0 if is_measured else COUNTED
        return COUNTED if is_measured else SECRET

    def _has_parameter(self, text: str) -> bool:
        found = _PARAMETER.findall(text)
        return any(self.hides(unquote(name), number=first.isdecimal()) for name, first in found)

    def _has_member(self, text: str) -> bool:
        # From the quote before a colon back to the quote before it: right however deep the JSON is wrapped, and
        # when it was cut. The stretches between quotes do not overlap, so this is linear.
        for found in _MEMBER.finditer(text):
            quote, number, string = found.groups()
            key = text[text.rfind(quote, 0, found.start()) + 1 : found.start()].strip("\\")
            if self.hides(key, number=number is not None):
                return True
            if string and key.lower() in _PAIR_NAMES and "alue" in text and self.hides(string):
                return True
        return False


def _of(word: str, entries: frozenset[str]) -> tuple[str, ...]:
    """The entry that a word is, or is the plural of."""
    if word in entries:
        return (word,)
    return (word[:-1],) if word[-1:] == "s" and word[:-1] in entries else ()


def _unescape(text: str) -> str | None:
    """Undo the escapes of JSON inside strings; None when there is no end to them."""
    for _ in range(_ESCAPE_LEVELS):
        unescaped = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "/", text)
        if unescaped == text:
            return text
        text = unescaped
    return None


@lru_cache(maxsize=16)
def _compiled(sensitive: frozenset[str]) -> Rules:
    return Rules(sensitive)


def rules_for(sensitive: Collection[str] = ()) -> Rules:
    """The rules with a project's extra words, compiled once for the same words."""
    return _compiled(frozenset(sensitive))


class Frame:
    """
    An open object or array, as far as a name in it hides a value beside it.

    That is ``{"name": …, "value": …}`` in any order, and an array whose first item is the name. ``values`` are
    the spans that a name still to come may hide; the end of an open one is 0.
    """

    __slots__ = ("bits", "index", "is_object", "key", "name_bits", "path", "values")

    def __init__(self, is_object: bool, path: Path) -> None:
        self.is_object = is_object
        self.path = path
        self.key = ""
        self.bits = self.name_bits = 0
        self.index = -1
        self.values: list[Span] | None = None

    def is_paired(self, span: Span, is_number: bool) -> bool:
        """Whether the name before it hides a value; when there is none yet, the value is kept for a later one."""
        if self.is_object and not self.bits & VALUE:
            return False
        if hides(self.name_bits, is_number):
            return True
        if self.is_object:
            self.values = self.values or []
            self.values.append(span)
        return False


_SAME_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
_INSIDE = ("items", "prefixItems", "contains", "additionalProperties", "unevaluatedProperties", "patternProperties")
_MAPS = frozenset({"dependentSchemas", "patternProperties"})
_SCHEMA_STEPS = 10_000


def password_paths(requested_schema: Json, *, root: Path = ("content",)) -> frozenset[Path]:
    """
    The paths, in an answer, of the fields that a requested schema marks ``"format": "password"``.

    A password among the items of an array or the unnamed members of an object hides that whole. A field whose
    ``$ref`` cannot be followed is hidden; a schema too tangled to walk hides all of ``root``.
    """
    found: set[Path] = set()
    seen: set[tuple[int, Path, bool]] = set()
    stack: list[tuple[Json, Path, bool]] = [(requested_schema, root, False)]
    while stack:
        schema, path, is_inside = stack.pop()
        if not isinstance(schema, Mapping) or (id(schema), path, is_inside) in seen:
            continue
        seen.add((id(schema), path, is_inside))
        if len(seen) > _SCHEMA_STEPS or len(path) > 100:
            return frozenset({root})
        if schema.get("format") == "password":
            found.add(path)
        for reference in (schema.get("$ref"), schema.get("$dynamicRef")):
            if reference is not None:
                target = _resolve(reference, requested_schema)
                stack.append((target, path, is_inside))
                if target is None:
                    found.add(path)
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            stack.extend((part, path if is_inside else (*path, name), is_inside) for name, part in properties.items())
        stack.extend((part, path, is_inside) for part in _parts(schema, _SAME_PLACE))
        stack.extend((part, path, True) for part in _parts(schema, _INSIDE))
    return frozenset(found)


def _parts(schema: Mapping[str, Json], keywords: tuple[str, ...]) -> Iterator[Json]:
    for keyword in keywords:
        part = schema.get(keyword)
        if isinstance(part, list):
            yield from part
        elif keyword in _MAPS and isinstance(part, Mapping):
            yield from part.values()
        else:
            yield part


def _resolve(reference: Json, document: Json) -> Json:
    """What a reference of the form ``#/a/b`` leads to; None when that is nothing."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    target = document
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, Mapping) and name in target:
            target = target[name]
        else:
            return None
    return target
