"""A bar chart as numbers: where each bar stands and how high it is. The template draws it without script or style."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)

WIDTH, HEIGHT = 960, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 26
LINES = 4


@dataclass(frozen=True, slots=True)
class Column:
    """What stands over one mark of the axis: the parts of a pile from below, what to write under it, and its words."""

    label: str
    parts: Sequence[tuple[str, int]]
    words: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a bar. ``kind`` says what it counts."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A pile of blocks; ``is_open`` when it may still grow."""

    x: float
    width: float
    middle: float
    label: str
    words: str
    is_open: bool
    blocks: Sequence[Block]
    slot_x: float
    slot_width: float


@dataclass(frozen=True, slots=True)
class Line:
    """A line across, and the number beside it."""

    y: float
    number: int


@dataclass(frozen=True, slots=True)
class Chart:
    """All that is to be drawn, in units of the picture."""

    bars: Sequence[Bar]
    lines: Sequence[Line]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    base: int = HEIGHT - BOTTOM
    inner_height: int = HEIGHT - BOTTOM - TOP


def nice_step(maximum: float, lines: int = LINES) -> int:
    """The smallest round step with which so many lines reach the maximum; tasks are whole, so it is at least one."""
    wanted = max(1.0, maximum / lines)
    power = 10 ** math.floor(math.log10(wanted))
    for step in STEPS:
        if step * power >= wanted and (step * power) % 1 == 0:
            return int(step * power)
    raise AssertionError(maximum)


def chart(columns: Sequence[Column], *, label_every: int = 3) -> Chart:
    """Lay columns out side by side; every third has its label, and the tallest stays below the upper line."""
    most = max((sum(number for _kind, number in column.parts) for column in columns), default=0)
    step = nice_step(most)
    top = step * max(1, math.ceil(most / step))
    base, inner = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
    gap = slot * 0.18
    bars = []
    for index, column in enumerate(columns):
        blocks, y = [], float(base)
        for kind, number in column.parts:
            if number:
                height = inner * number / top
                y -= height
                blocks.append(Block(kind, round(y, 2), round(height, 2)))
        x = LEFT + index * slot
        is_labelled = (len(columns) - 1 - index) % label_every == 0
        bars.append(
            Bar(
                x=round(x + gap / 2, 2),
                width=round(slot - gap, 2),
                middle=round(x + slot / 2, 2),
                label=column.label if is_labelled else "",
                words=column.words,
                is_open=column.is_open,
                blocks=blocks,
                slot_x=round(x, 2),
                slot_width=round(slot, 2),
            )
        )
    lines = [Line(round(base - inner * number / top, 2), number) for number in range(0, top + 1, step)]
    return Chart(bars=bars, lines=lines)
