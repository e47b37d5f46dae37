"""
The races of the state machine: who meets whom on one row, and every history that may come of it.

A history that is not listed is a violation, whichever process it was that broke the rules.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from mcp_tasks.lifecycle import ANSWERED, OUTSTANDING, SUPERSEDED
from mcp_tasks.models import OwnerGate, Task, TaskEvent, TaskInput, TaskStep
from mcp_tasks.protocol.codec import loads
from mcp_tasks.store.types import Owner, RunningLimit

from . import operations as do
from .histories import Found, History, Race, Returned, alike

#: What the processes of the hammer set for themselves.
SETTINGS: dict[str, Any] = {
    "LEASE_SECONDS": 40,
    "HEARTBEAT_SECONDS": 10,
    "SWEEP_SECONDS": 0,
    "LIMITS": {"LIVE_TASKS_PER_OWNER": 3},
    "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"},
}

CANCELLED, COMPLETED, FAILED = "done/cancelled", "done/completed", "done/failed"
QUEUED, RUNNING, PARKED = "queued/working", "running/working", "parked/input_required"
ANSWERED_A = (("a",), ())
IGNORED = ((), ())


# -- further checks ----------------------------------------------------------------------------------------------


def one_winner(found: Found) -> Iterator[str]:
    """The stored result is that of the operation that was told "ok"."""
    assert found.row is not None
    stored = loads(found.row["result_json"])["content"][0]["text"]
    winner = ("first", "second")[found.returned.index("ok")]
    if stored != winner:
        yield f"the result is of the {stored} one, though the {winner} one was acknowledged"


def token_was_raised(found: Found) -> Iterator[str]:
    """An acknowledged cancel left its mark for whoever still works."""
    assert found.row is not None
    if found.row["cancel_requested_at"] is None:
        yield "cancel_requested_at is not set"


def one_next_leg(found: Found) -> Iterator[str]:
    """Exactly one more leg can be claimed, and it sees every answer that was acknowledged."""
    legs = [do.claim(found.state), do.claim(found.state)]
    if legs != [2, None]:
        yield f"two claims after the last answer gave the legs {legs}"
    resume = do.store.resume_context(found.state["ref"], 2)
    seen = set() if resume is None else set(resume.answers)
    if seen != {key for key, (state, _) in found.inputs.items() if state == ANSWERED}:
        yield f"the next leg sees the answers {sorted(seen)}"


def accepted_copy_is_kept(found: Found) -> Iterator[str]:
    """What is stored is the very copy that was acknowledged."""
    accepted = [f"copy {n}" for n, (accepted, _) in enumerate(found.returned) if accepted]
    stored = found.inputs["a"][1]
    if stored is None or [loads(stored)["content"]["text"]] != accepted:
        yield f"stored is {stored}, acknowledged were {accepted}"


def replaced_or_answered(found: Found) -> Iterator[str]:
    """The old question left the set once, the new one is open."""
    expected = ANSWERED if "answered" in found.events else SUPERSEDED
    if {key: state for key, (state, _) in found.inputs.items()} != {"a": expected, "b": OUTSTANDING}:
        yield f"the questions are {found.inputs}"


def nothing_is_left(found: Found) -> Iterator[str]:
    """A discarded task leaves no rows behind."""
    rows = [model.objects.filter(task_id=found.state["ref"]).count() for model in (TaskEvent, TaskInput)]
    if found.row is None and any(rows):
        yield f"{rows} events and questions of a task that is gone"


def exact_cap(found: Found) -> Iterator[str]:
    """As many rows as creations were acknowledged, and everybody passed the gate."""
    owner = Owner((found.state["owner"],))
    counted = (Task.objects.filter(owner_key=owner.key).count(), OwnerGate.objects.get(pk=owner.key).n)
    if counted != (3, 3):
        yield f"{counted[0]} rows, {counted[1]} creations passed the gate"


def one_row(found: Found) -> Iterator[str]:
    """Whoever was given the id was given the one that is stored."""
    counted = Task.objects.filter(owner_key=Owner((found.state["owner"],)).key).count()
    if counted != 1:
        yield f"{counted} rows of one key"


def recorded_where_told(found: Found) -> Iterator[str]:
    """The step that is kept is that of the operation that was told "ok", and its size is counted once."""
    kept = list(TaskStep.objects.filter(task_id=found.state["ref"]).values_list("result_json", flat=True))
    told = [f'"{("first", "second")[number]}"' for number, why in enumerate(found.returned) if why == "ok"]
    if kept != told:
        yield f"kept is {kept}, told was {told}"
    assert found.row is not None
    if found.row["payload_bytes"] != len('{"n":1}') + sum(map(len, kept)):
        yield f"{found.row['payload_bytes']} bytes with the steps {kept}"


def different_owners(found: Found) -> Iterator[str]:
    """No owner has two legs that run."""
    running = Task.objects.filter(tool=found.state["tool"], phase="running").values_list("owner_key", flat=True)
    if len(set(running)) != len(running):
        yield f"{len(running)} legs of {len(set(running))} owners run"


def ids_and_new_ones(returned: Returned) -> Returned:
    """How many ids were given out under one key, and how often as new."""
    return len({task_id for task_id, _ in returned}), sum(not existed for _, existed in returned)


def tasks_and_claims(returned: Returned) -> Returned:
    """How many different tasks were claimed, and how many claims got one."""
    claimed = [ref for ref in returned if ref is not None]
    return len(set(claimed)), len(claimed)


def ran_and_most(returned: Returned) -> Returned:
    """How many legs ran in all, whether never more than three at once, and the most of one owner."""
    ran, most, most_of_owner = (list(values) for values in zip(*returned, strict=True))
    return sum(ran), max(most) <= 3, max(most_of_owner)


# -- the table ---------------------------------------------------------------------------------------------------


def _race(name: str, times: int, prepare: Any, *operations: Any, histories: list[History], **more: Any) -> Race:
    return Race(name=name, times=times, prepare=prepare, operations=operations, histories=frozenset(histories), **more)


def _either(first: Returned, *others: Returned, then: tuple[Any, ...]) -> list[History]:
    """One end that is reported in different ways."""
    return [History(returned, *then) for returned in (first, *others)]


_CANCEL_OR_COMPLETE = [
    History(("cancelled", "terminal"), CANCELLED, ("cancelled",)),
    History(("completed", "ok"), COMPLETED, ("completed",)),
]
_ONE_OF_TWO = [History(returned, COMPLETED, ("completed",)) for returned in (("ok", "terminal"), ("terminal", "ok"))]
THREE, ONE_EACH, THREE_AND_ONE_EACH = RunningLimit(total=3), RunningLimit(per_owner=1), RunningLimit(3, 1)
_STARTED_OR_NOT: list[tuple[str, tuple[str, ...]]] = [(RUNNING, ("claimed",)), (QUEUED, ())]
#: Two sweeps of which one found the task.
_FOUND = ((0, 1), (1, 0))

RACES: dict[str, Race] = {
    race.name: race
    for race in (
        _race(
            "cancel and complete",
            200,
            do.running,
            do.cancel,
            do.complete("first", leg=1),
            histories=_CANCEL_OR_COMPLETE,
            further=token_was_raised,
        ),
        _race(
            "two unfenced outcomes",
            100,
            do.running,
            do.complete("first"),
            do.complete("second"),
            histories=_ONE_OF_TWO,
            further=one_winner,
        ),
        _race(
            "an unfenced outcome and that of the leg",
            100,
            do.running,
            do.complete("first"),
            do.complete("second", leg=1),
            histories=_ONE_OF_TWO,
            further=one_winner,
        ),
        _race(
            "answers to two questions",
            200,
            partial(do.parked, "a", "b"),
            do.answer("a"),
            do.answer("b"),
            histories=_either(
                ((("a",), ("b",)), (("b",), ())),
                (ANSWERED_A, (("b",), ("a",))),
                then=(QUEUED, ("answered", "answered"), 1),
            ),
            further=one_next_leg,
        ),
        _race(
            "eight copies of an answer",
            25,
            partial(do.parked, "a"),
            *[do.answer("a", text=f"copy {n}") for n in range(8)],
            histories=[History(alike((*[IGNORED] * 7, ANSWERED_A)), QUEUED, ("answered",), 1)],
            summary=alike,
            further=accepted_copy_is_kept,
        ),
        _race(
            "eight claims of one task",
            100,
            do.queued,
            *[do.claim] * 8,
            histories=[History(alike((1, *[None] * 7)), RUNNING, ("claimed",))],
            summary=alike,
        ),
        _race(
            "eight claims of three tasks",
            25,
            do.three_of_one_tool,
            *[do.claim_of_tool] * 8,
            histories=[History((3, 3), RUNNING, ("claimed",))],
            summary=tasks_and_claims,
        ),
        _race(
            "eight claims of eight tasks of which three may run",
            25,
            do.thirty_of_one_tool,
            *[do.claim_within(THREE, number) for number in range(8)],
            histories=[History((3, 3), pair, events) for pair, events in _STARTED_OR_NOT],
            summary=tasks_and_claims,
            batch=5,
        ),
        _race(
            "eight claims of tasks of three owners of which one each may run",
            25,
            do.thirty_of_one_tool,
            *[do.claim_within(ONE_EACH, number) for number in (0, 10, 20, 1, 11, 21, 2, 12)],
            histories=[History((3, 3), pair, events) for pair, events in _STARTED_OR_NOT],
            summary=tasks_and_claims,
            further=different_owners,
            batch=5,
        ),
        _race(
            "eight workers and thirty tasks of which three may run and one of each owner",
            5,
            do.thirty_of_one_tool,
            *[do.work_within(THREE_AND_ONE_EACH)] * 8,
            histories=[History((30, True, 1), COMPLETED, ("claimed", "completed"))],
            summary=ran_and_most,
            batch=1,
        ),
        _race(
            "two recoveries of a lost leg",
            100,
            do.running,
            do.recover,
            do.recover,
            arm=do.lapse,
            histories=_either(*_FOUND, then=(QUEUED, ("leg_lost",), 1)),
        ),
        _race(
            "two recoveries and the lost leg",
            100,
            do.running,
            do.recover,
            do.recover,
            do.complete("first", leg=1),
            arm=do.lapse,
            histories=[
                History((0, 0, "ok"), COMPLETED, ("completed",)),
                *_either((0, 1, "fenced"), (1, 0, "fenced"), then=(QUEUED, ("leg_lost",), 1)),
            ],
        ),
        _race(
            "a lost leg and its successor",
            100,
            do.taken_over,
            do.complete("first", leg=1),
            do.complete("second", leg=2),
            histories=_either(("fenced", "ok"), ("terminal", "ok"), then=(COMPLETED, ("completed",))),
            further=one_winner,
        ),
        _race(
            "heartbeat and recovery",
            100,
            do.running,
            do.heartbeat,
            do.recover,
            arm=do.lapse,
            histories=[
                History(("ok", 0), RUNNING),
                History(("fenced", 1), QUEUED, ("leg_lost",), 1),
            ],
        ),
        _race(
            "a step and recovery",
            100,
            do.running,
            do.step("first"),
            do.recover,
            arm=do.lapse,
            histories=[
                History(("ok", 1), QUEUED, ("leg_lost",), 1),
                History(("ok", 0), RUNNING),  # a janitor passes over a row that is locked; its next pass takes it
                History(("fenced", 1), QUEUED, ("leg_lost",), 1),
            ],
            further=recorded_where_told,
            batch=1,
        ),
        _race(
            "one step recorded twice",
            100,
            do.running,
            do.step("first"),
            do.step("second"),
            histories=_either(("ok", "unchanged"), ("unchanged", "ok"), then=(RUNNING,)),
            further=recorded_where_told,
        ),
        _race(
            "the end of a leg and the answer to its question",
            100,
            do.asked_live,
            do.end_leg,
            do.answer("a"),
            histories=[
                History(("ok", ANSWERED_A), QUEUED, ("leg_ended", "answered"), 1),
                History(("ok", ANSWERED_A), QUEUED, ("answered", "leg_ended"), 1),
            ],
            further=one_next_leg,
        ),
        _race(
            "park and cancel",
            100,
            do.running,
            do.park,
            do.cancel,
            histories=[
                History(("ok", "cancelled"), CANCELLED, ("asked", "cancelled")),
                History(("terminal", "cancelled"), CANCELLED, ("cancelled",)),
            ],
            further=token_was_raised,
        ),
        _race(
            "a new question and the answer to the old one",
            100,
            partial(do.parked, "a"),
            do.ask_instead,
            do.answer("a"),
            histories=[
                History(("ok", ANSWERED_A), PARKED, ("answered", "asked"), 1),
                History(("ok", ((), ("b",))), PARKED, ("asked",)),
            ],
            further=replaced_or_answered,
        ),
        _race(
            "hand over and the outcome of a quick job",
            100,
            do.deferred,
            do.hand_over,
            do.complete("first"),
            histories=[
                History(("ok", "ok"), COMPLETED, ("handed_over", "completed")),
                History(("terminal", "ok"), COMPLETED, ("completed",)),
            ],
        ),
        _race(
            "release and cancel",
            100,
            do.running,
            do.release,
            do.cancel,
            histories=[
                History(("ok", "cancelled"), CANCELLED, ("released", "cancelled"), 1),
                History(("terminal", "cancelled"), CANCELLED, ("cancelled",)),
            ],
        ),
        _race(
            "retry and recovery",
            100,
            do.running,
            do.retry,
            do.recover,
            arm=do.lapse,
            histories=[
                History(("ok", 0), QUEUED, ("retried",)),
                History(("fenced", 1), QUEUED, ("leg_lost",), 1),
            ],
        ),
        _race(
            "discard and claim",
            100,
            do.queued,
            do.discard,
            do.claim,
            histories=[History((True, None), None), History((False, 1), RUNNING, ("claimed",))],
            further=nothing_is_left,
        ),
        _race(
            "a ttl that is over and an outcome",
            100,
            do.running,
            do.set_ttl(1),
            do.complete("first"),
            histories=[
                History((True, "ok"), COMPLETED, ("completed", "ttl")),
                History((True, "expired"), RUNNING, ("ttl",)),
            ],
        ),
        _race(
            "eight creations under a cap of three",
            20,
            do.new_owner,
            *[do.create_owned] * 8,
            histories=[History(alike((*["created"] * 3, *["refused"] * 5)), None)],
            summary=alike,
            further=exact_cap,
        ),
        _race(
            "eight creations under one key",
            25,
            do.new_owner,
            *[do.create_keyed] * 8,
            histories=[History((1, 1), None)],
            summary=ids_and_new_ones,
            further=one_row,
        ),
    )
}
