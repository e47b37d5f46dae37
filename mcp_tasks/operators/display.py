"""
Stored JSON text as an operator may see it: masked, and either indented within caps or exact for a download.

The text is read by tokens and written from its own characters, never from parsed values: ``1e400``, long
decimals and repeated keys stay what they were. Nothing recurses, and time grows with the length alone.
"""

import json
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import NoReturn

from ..protocol.codec import size_bytes
from .masking import LOOKS, MASKED, NAMES, Frame, Mask, Path, Rules, Span, hides, rules_for


class NotJson(ValueError):
    """A text that is not JSON. Nothing of it may be shown: nobody can say what of it is secret."""


@dataclass(frozen=True, slots=True)
class Caps:
    """How much of a text is shown. Keep ``levels`` small: indentation grows with their square."""

    size_bytes: int = 64 * 1024
    lines: int = 2_000
    string: int = 4_000
    levels: int = 64


@dataclass(frozen=True, slots=True)
class Shown:
    """
    What a page shows of a payload.

    ``masked`` counts the hidden values in ``text``; ``is_cut`` says that something else is missing from it.
    When ``is_valid`` is false, ``text`` is empty. ``size_bytes`` is that of the payload.
    """

    text: str
    masked: int
    is_cut: bool
    is_valid: bool
    size_bytes: int


#: Below that many levels a project's hook and paths are no longer asked: what lies there is hidden whole.
MAX_PATH = 100
_HIDDEN = f'"{MASKED}"'
_CHUNK = 64 * 1024
_NUMBER_MARKS = "-0123456789"
_DEFAULT_CAPS = Caps()

# -- tokens -------------------------------------------------------------------------------------------------------

_SPACE = r"[ \t\n\r]*+"
_ANY = r"([\[{\"]|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null"
#: What may come next, by where one is. Group 1 is the token; of a string, its opening quote.
_VALUE = re.compile(rf"{_SPACE}{_ANY})")
_FIRST_ITEM = re.compile(rf"{_SPACE}{_ANY}|\])")
_NEXT_ITEM = re.compile(rf"{_SPACE}(?:,{_SPACE}(?!\])|(?=\])){_ANY}|\])")
_FIRST_KEY = re.compile(rf"{_SPACE}([\"}}])")
_NEXT_KEY = re.compile(rf"{_SPACE}(?:,{_SPACE}(?=\")|(?=\}}))(.)")
_COLON = re.compile(rf"{_SPACE}:")
_END = re.compile(rf"{_SPACE}\Z")
_KEY, _STRING, _SCALAR, _OPEN, _CLOSE = range(5)
_Token = tuple[int, int, int, str]
_decode = json.JSONDecoder().raw_decode


def _tokens(text: str) -> Iterator[_Token]:
    """Kind, start, end and, for keys and strings, the decoded value; raises NotJson where the grammar ends."""
    objects: list[bool] = []
    wanted, is_key, position = _VALUE, False, 0
    while True:
        found = wanted.match(text, position)
        if found is None:
            raise NotJson
        start, position = found.span(1)
        mark = text[start]
        if mark == '"':
            try:
                value, position = _decode(text, start)
            except ValueError:
                raise NotJson from None
            if is_key:
                yield _KEY, start, position, value
                colon = _COLON.match(text, position)
                if colon is None:
                    raise NotJson
                wanted, is_key, position = _VALUE, False, colon.end()
                continue
            yield _STRING, start, position, value
        elif mark in "{[":
            yield _OPEN, start, position, mark
            is_key = mark == "{"
            objects.append(is_key)
            wanted = _FIRST_KEY if is_key else _FIRST_ITEM
            continue
        elif mark in "}]":
            objects.pop()
            yield _CLOSE, start, position, mark
        else:
            yield _SCALAR, start, position, ""
        if not objects:
            break
        is_key = objects[-1]
        wanted = _NEXT_KEY if is_key else _NEXT_ITEM
    if _END.match(text, position) is None:
        raise NotJson


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_parser = json.JSONDecoder(parse_float=len, parse_int=len, parse_constant=_refuse)


def _is_parsed(text: str) -> bool:
    """True for JSON, by the library's parser, which is fast; False when that cannot tell; else raises NotJson."""
    try:
        _parser.decode(text)
    except RecursionError:
        return False
    except ValueError:
        raise NotJson from None
    return True


# -- secrets ------------------------------------------------------------------------------------------------------


class _Search:
    """One pass over a text for the spans to hide."""

    def __init__(self, text: str, rules: Rules, mask: Mask | None, paths: Set[Path]) -> None:
        self._text = text
        self._rules = rules
        self._mask = mask
        self._paths = paths
        self._asks = mask is not None or bool(paths)
        self._frames = [Frame(False, ())]  # what holds the whole text
        self._found: list[Span] = []
        self._open_pairs = 0

    def run(self, caps: Caps | None = None, *, stop: bool = True) -> tuple[list[_Token], bool]:
        """
        Read; with caps, return the tokens that may get through them, and whether those are all there are.

        Reading may then stop where the caps do, but not while an object is open that holds a ``value``: its
        ``name`` may come last. What lies in a hidden value or is too deep is not kept.
        """
        kept: list[_Token] = []
        is_full = False
        hidden = hidden_start = size = lines = 0
        for token in _tokens(self._text):
            kind, start, end, value = token
            if hidden:  # levels open inside a hidden container
                hidden += (kind == _OPEN) - (kind == _CLOSE)
                if not hidden:
                    self._found.append((hidden_start, end))
                continue
            depth = len(self._frames)
            if kind == _KEY:
                self._key(value, start, end)
            elif kind == _CLOSE:
                self._close(end)
            elif self._is_secret(kind, start, end, value):
                if kind == _OPEN:
                    hidden, hidden_start = 1, start
                    kind, token = _SCALAR, (_SCALAR, start, end, value)  # no end of it will follow
                else:
                    self._found.append((start, end))
            elif kind == _OPEN:
                self._frames.append(Frame(value == "{", self._place() if self._asks else ()))
                depth += 1
            if caps is None:
                continue
            if is_full and stop and not self._open_pairs:
                break
            if not is_full and depth <= caps.levels + 1:
                kept.append(token)
                size += min(end - start, len(MASKED))
                lines += kind not in (_KEY, _CLOSE)
                is_full = size > caps.size_bytes or lines > caps.lines
            elif not is_full and depth == caps.levels + 2 and kind >= _OPEN:  # of what is too deep
                kept.append(token)
        return kept, not is_full

    def spans(self) -> list[Span]:
        """What to hide, in order and without overlaps."""
        outer: list[Span] = []
        for span in sorted(self._found, key=lambda span: (span[0], -span[1])):
            if not outer or span[0] >= outer[-1][1]:
                outer.append(span)
        return outer

    def _place(self) -> Path:
        if len(self._frames) == 1:
            return ()
        frame = self._frames[-1]
        return (*frame.path, frame.key if frame.is_object else frame.index)

    def _key(self, key: str, start: int, end: int) -> None:
        frame = self._frames[-1]
        frame.key = key
        frame.bits = self._rules.of_key(key)
        if frame.bits & LOOKS:
            self._found.append((start, end))

    def _close(self, end: int) -> None:
        frame = self._frames.pop()
        if frame.values:
            self._open_pairs -= 1
            marks = ((span, self._text[span[0]]) for span in frame.values)
            self._found.extend(span for span, mark in marks if hides(frame.name_bits, mark in _NUMBER_MARKS))
        around = self._frames[-1].values
        if around and not around[-1][1]:
            around[-1] = (around[-1][0], end)

    def _is_secret(self, kind: int, start: int, end: int, value: str) -> bool:
        frame = self._frames[-1]
        frame.index += 1
        verdict = self._ask() if self._asks else None
        if verdict:
            return True
        if verdict is None and (frame.bits or frame.name_bits):
            is_number = kind == _SCALAR and self._text[start] in _NUMBER_MARKS
            had_none = frame.values is None
            if hides(frame.bits, is_number) or frame.is_paired((start, 0 if kind == _OPEN else end), is_number):
                return True
            self._open_pairs += had_none and frame.values is not None
        if kind != _STRING:
            return False
        # ["Authorization", …] in an array of such pairs names what follows, like "name" does in an object.
        is_first = not frame.index and not frame.is_object and len(self._frames) > 2 and not self._frames[-2].is_object
        if is_first or frame.bits & NAMES:
            frame.name_bits |= self._rules.of_key(value)
        return self._rules.looks_secret(value)

    def _ask(self) -> bool | None:
        path = self._place()
        if len(path) > MAX_PATH or path in self._paths:
            return True
        frame = self._frames[-1]
        return self._mask(path, frame.key) if self._mask is not None and frame.is_object else None


# -- output -------------------------------------------------------------------------------------------------------

_ELLIPSIS = "\n…"
_EMPTY = re.compile(rf"{_SPACE}[\]}}]")
#: Control, zero-width, bidi and other characters that leave no mark, and halves of surrogate pairs.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


class _Page:
    """Indented text within caps."""

    def __init__(self, text: str, caps: Caps) -> None:
        self._text = text
        self._caps = caps
        self._pieces: list[str] = []
        self._members: list[int] = []  # how many each open container has
        self._leads = ["\n" + "  " * level for level in range(caps.levels + 1)]
        self._size = size_bytes(_ELLIPSIS)
        self._lines = 2
        self.masked = 0
        self.is_cut = False

    def fill(self, tokens: list[_Token], spans: list[Span], *, is_whole: bool) -> str:
        """Write tokens, with the spans hidden, as far as the caps allow."""
        hidden = iter([*spans, (len(self._text) + 1, 0)])
        span = next(hidden)
        key, skip_to, deep, masked = "", 0, 0, 0
        for kind, start, end, mark in tokens:
            if start < skip_to:
                continue
            if deep:  # levels open inside what is too deep
                deep += (kind == _OPEN) - (kind == _CLOSE)
                continue
            while span[0] < start:
                span = next(hidden)
            is_hidden = start == span[0]
            if is_hidden:
                piece, skip_to = _HIDDEN, span[1]
            elif kind == _OPEN and len(self._members) >= self._caps.levels and not _EMPTY.match(self._text, end):
                piece, deep, self.is_cut = ("{…}" if mark == "{" else "[…]"), 1, True
            else:
                piece = mark if kind >= _OPEN else self._token(start, end)
            masked += is_hidden
            if kind == _KEY:
                key = f"{piece}: "
                continue
            if not self._write(key + piece, is_end=kind == _CLOSE):
                is_whole = False
                break
            key, self.masked = "", masked
            if kind == _OPEN and not (deep or is_hidden):
                self._members.append(0)
        self.is_cut |= not is_whole
        return "".join(self._pieces) + ("" if is_whole else _ELLIPSIS)

    def _write(self, piece: str, *, is_end: bool) -> bool:
        members = self._members
        if is_end:
            if members.pop():
                piece = self._leads[len(members)] + piece
        elif members:
            lead = self._leads[len(members)]
            piece = f",{lead}{piece}" if members[-1] else lead + piece
            members[-1] += 1
        self._size += size_bytes(piece)
        self._lines += "\n" in piece
        if self._size > self._caps.size_bytes or self._lines > self._caps.lines:
            return False
        self._pieces.append(piece)
        return True

    def _token(self, start: int, end: int) -> str:
        raw = self._text[start:end]
        if len(raw) > self._caps.string + 2:
            raw = self._head(raw)
        return raw if raw.isascii() and "\x7f" not in raw else _UNSEEN.sub(_escaped, raw)

    def _head(self, raw: str) -> str:
        """The beginning of a long token, never half an escape, and how many characters of it are missing."""
        cap = self._caps.string
        if raw[0] == '"':
            found = re.match(rf"\"(?:[^\\\"]|\\u.{{4}}|\\.){{0,{cap}}}", raw)
            cut, last, quote = (found.end() if found else 0), len(raw) - 1, '"'
        else:
            cut, last, quote = cap, len(raw), ""
        if cut == last:
            return raw
        self.is_cut = True
        return f"{raw[:cut]}{quote}… (+{last - cut})"


def show(
    text: str,
    *,
    rules: Rules | None = None,
    mask: Mask | None = None,
    paths: Set[Path] = frozenset(),
    caps: Caps = _DEFAULT_CAPS,
) -> Shown:
    """
    A stored text for a page: secrets hidden, indented, cut to the caps, nothing invisible in it.

    ``mask`` may hide a member, or show one that is hidden for its name; ``paths`` are hidden in any case. The
    result is text, not markup: whoever puts it into a page escapes it.
    """
    size = size_bytes(text)
    search = _Search(text, rules or rules_for(), mask, paths)
    try:
        tokens, is_whole = search.run(caps, stop=_is_parsed(text))
    except NotJson:
        return Shown("", masked=0, is_cut=False, is_valid=False, size_bytes=size)
    page = _Page(text, caps)
    shown = page.fill(tokens, search.spans(), is_whole=is_whole)
    return Shown(shown, masked=page.masked, is_cut=page.is_cut, is_valid=True, size_bytes=size)


def masked_chunks(
    text: str, *, rules: Rules | None = None, mask: Mask | None = None, paths: Set[Path] = frozenset()
) -> Iterator[str]:
    """
    A stored text for a download: hidden where ``show`` hides, and exact everywhere else.

    Raises NotJson at once, before the first chunk is asked for.
    """
    search = _Search(text, rules or rules_for(), mask, paths)
    search.run()
    return _chunks(text, search.spans())


def _chunks(text: str, spans: list[Span]) -> Iterator[str]:
    position = 0
    for start, end in [*spans, (len(text), 0)]:
        for part in range(position, start, _CHUNK):
            yield text[part : min(part + _CHUNK, start)]
        if end:
            yield _HIDDEN
        position = end
