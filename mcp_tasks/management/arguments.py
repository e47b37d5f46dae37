"""Numbers that commands take: what is out of bounds is refused by argparse, in words that say what is meant."""

from collections.abc import Callable


def whole(words: str, least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number within these bounds; ``words`` complete "invalid …"."""

    def read(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise ValueError(text)
        return value

    read.__name__ = words  # what argparse calls it
    return read


def seconds(text: str) -> float:
    """Zero or more, and finite."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


seconds.__name__ = "number of seconds"

positive = whole("positive number", 1)
not_negative = whole("number (0 or more)", 0)
