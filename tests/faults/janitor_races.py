"""Races of two janitors with everybody else, and the race that must be lost: without a guard."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from mcp_tasks.lifecycle import ANSWERED
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.protocol.inputs import NOBODY_ANSWERED

from . import operations as do
from .histories import Found, History, Race
from .operations import LONG_MS
from .races import ANSWERED_A, CANCELLED, COMPLETED, FAILED, IGNORED, PARKED, QUEUED, RUNNING, token_was_raised

EXPIRED = "expired/working"
#: One of two sweeps found the task, or neither did.
FOUND, MISSED = ((0, 1), (1, 0)), ((0, 0),)


def _told(value: Any, sweeps: tuple[tuple[int, int], ...], *then: Any) -> list[History]:
    """What the sweeps counted, and what the third one was told."""
    return [History((*counts, value), *then) for counts in sweeps]


def next_sweep_finds_it(found: Found) -> Iterator[str]:
    """Where a sweep passes over locked rows, both may have missed the task; then the next one must not."""
    if sum(found.returned[:2]) == 0 and do.janitor(found.state) != 1:
        yield "neither the two sweeps found it, nor the next one"


def first_answer_is_kept(found: Found) -> Iterator[str]:
    """Stored is the client's answer when it was acknowledged, else the janitor's."""
    state, stored = found.inputs["a"]
    client = found.returned[2] == ANSWERED_A
    if state != ANSWERED or stored != dumps(do.given("yes") if client else NOBODY_ANSWERED):
        yield f"the question is {state} with {stored}, the client was told {found.returned[2]}"


def _ttl_histories() -> list[History]:
    """
    A ttl that is over for a leg that is lost.

    Each sweep has passed some of its steps when the ttl is set; it is at most found lost, and then expired. Every
    order may be, except that something is recovered after its end.
    """
    histories = []
    for lost, gone in product((False, True), repeat=2):
        events = (*(["leg_lost"] if lost else []), "ttl", *(["expired"] if gone else []))
        pair = EXPIRED if gone else QUEUED if lost else RUNNING
        counts = ((first, lost + gone - first) for first in range(lost + gone + 1))
        histories += [History((*count, True), pair, events, int(lost)) for count in counts]
    return histories


def _race(name: str, prepare: Any, operation: Any, histories: list[History], **more: Any) -> Race:
    return Race(
        name=f"two janitors and {name}",
        times=more.pop("times", 50),
        prepare=prepare,
        operations=(do.janitor, do.janitor, operation),
        histories=frozenset(histories),
        batch=1,
        **more,
    )


JANITOR_RACES: dict[str, Race] = {
    race.name: race
    for race in (
        _race(
            "the answer to a lost leg",
            do.asked_live,
            do.answer("a"),
            [
                *_told(ANSWERED_A, FOUND, QUEUED, ("leg_lost", "answered"), 1),
                *_told(ANSWERED_A, FOUND, QUEUED, ("answered", "leg_lost"), 1),
                *_told(ANSWERED_A, MISSED, RUNNING, ("answered",)),
            ],
            times=100,
            arm=do.lapse,
            further=next_sweep_finds_it,
        ),
        _race(
            "an answer in the last moment",
            partial(do.parked, "a", deadline_seconds=30),
            do.answer("a"),
            [
                *_told(ANSWERED_A, MISSED, QUEUED, ("answered",), 1),
                *_told(IGNORED, FOUND, QUEUED, ("ask_timeout",), 1),
            ],
            times=100,
            arm=do.lapse,
            further=first_answer_is_kept,
        ),
        _race(
            "the cancel of a lost leg",
            do.running_once,
            do.cancel,
            [
                *_told("cancelled", MISSED, CANCELLED, ("cancelled",)),
                *_told("failed", FOUND, FAILED, ("failed",)),
            ],
            times=100,
            arm=do.lapse,
            further=token_was_raised,
        ),
        _race("a ttl that is over", do.running, do.set_ttl(1), _ttl_histories(), times=100, arm=do.lapse),
        _race(
            "an answer after the end",
            partial(do.parked, "a"),
            do.answer("a"),
            [
                *_told(None, FOUND, "expired/input_required", ("expired",)),
                *_told(None, MISSED, PARKED),
            ],
            arm=do.outlive,
            further=next_sweep_finds_it,
        ),
        _race(
            "a cancel after the end",
            do.running,
            do.cancel,
            _told(None, FOUND, EXPIRED, ("expired",)) + _told(None, MISSED, RUNNING),
            arm=do.outlive,
            further=next_sweep_finds_it,
        ),
        _race(
            "a longer ttl after the end",
            do.running,
            do.set_ttl(100 * LONG_MS),
            _told(False, FOUND, EXPIRED, ("expired",)) + _told(False, MISSED, RUNNING),
            arm=do.outlive,
            further=next_sweep_finds_it,
        ),
    )
}

NAIVE = Race(
    name="naive cancel and complete",
    times=250,
    prepare=do.running,
    operations=(do.naive_cancel, do.naive_complete),
    histories=frozenset(
        [
            History(("cancelled", "terminal"), CANCELLED, ("cancelled",)),
            History(("completed", "ok"), COMPLETED, ("completed",)),
        ]
    ),
)
