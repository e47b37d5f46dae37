"""
Read the documentation: its code blocks, links and tables.

A block is told what it is for by an HTML comment on the line before it, which readers do not see:
``<!-- module: shop/mcp_tools.py -->`` is a whole file, ``<!-- append: … -->`` the continuation of one,
``<!-- run -->`` a shell step, ``<!-- run in the background -->`` a server, ``<!-- restart the server -->`` the same
after stopping it, ``<!-- prints -->`` what the step before it must print.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

_BLOCK = re.compile(r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_MARKS = ("module", "append", "run", "run in the background", "restart the server", "prints")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. ``mark`` is the comment before it, ``target`` the file that it names."""

    page: Path
    line: int
    language: str
    mark: str
    target: str
    text: str

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """A page as links name it from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order. A mark that means nothing is an error: its block would not be tested."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        mark, _, target = (match["mark"] or "").partition(": ")
        line = text.count("\n", 0, match.start()) + 1
        assert mark == "" or mark in _MARKS, f"{name_of(page)}:{line}: {mark!r} is no mark"
        assert bool(target) == (mark in ("module", "append")), f"{name_of(page)}:{line}: which file?"
        found.append(Block(page, line, match["language"], mark, target, match["text"]))
    return found


def links(page: Path) -> Iterator[str]:
    """The targets of the links of a page, code excepted."""
    text = re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", page.read_text()))
    for match in _LINK.finditer(text):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head; a head line names its own table."""
    text = f"\n{page.read_text()}"
    assert f"\n{heading}\n" in text, f"{name_of(page)} has no {heading!r}"
    lines = text.split(f"\n{heading}\n", 1)[1].splitlines()
    if not heading.startswith("|"):
        lines = lines[1 + next(number for number, line in enumerate(lines) if line.startswith("|")) :]
    rows = []
    for line in lines[1:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))])
    return rows


def code(cell: str) -> str:
    """The text of a cell that is one piece of code."""
    match = re.fullmatch(r"`([^`]*)`", cell)
    assert match is not None, f"{cell!r} is no code"
    return match[1]
