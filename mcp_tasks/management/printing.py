"""What commands print: aligned columns, and texts of strangers that cannot steer a terminal."""

from collections.abc import Sequence


def plain(text: str) -> str:
    """A text whose unprintable characters are escaped: a terminal obeys them, whoever wrote them."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with aligned columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
