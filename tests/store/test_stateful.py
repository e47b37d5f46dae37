"""
Any sequence of operations leaves the database store and the store in memory in the same state.

HYPOTHESIS_PROFILE=thorough tries many more and longer sequences.
"""

import os
import time
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from django.db import connection
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mcp_tasks.lifecycle import PARKED, QUEUED, RUNNING
from mcp_tasks.models import Task
from mcp_tasks.protocol.codec import dumps
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import DEFAULT_TTL, AppliedResponses, Claim, Missing, Owner, RunningLimit, owner_key
from mcp_tasks.tools.steps import RecordedStep
from tests.support.speed import hurry

from . import invariants
from .side_by_side import Pair, SideBySide

_COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))
PROFILES = {
    "default": settings(_COMMON, max_examples=20, stateful_step_count=40),
    "thorough": settings(_COMMON, max_examples=500, stateful_step_count=60),
}
PROFILE = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")]

MINUTE_MS = 60_000
CAP = 4
MCP_TASKS = {
    "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"},
    "DEFAULT_TTL_MS": 30 * MINUTE_MS,
    "MAX_TTL_MS": None,
    "LEASE_SECONDS": 120,
    "RETENTION_SECONDS": 2400,
    "TOMBSTONE_SECONDS": 1200,
    "LIMITS": {
        "PAYLOAD_BYTES": 1024,
        "LIVE_TASKS_PER_OWNER": CAP,
        "LIVE_TASKS_ANONYMOUS": CAP,
        "INPUT_KEYS": 5,
    },
}

OWNERS = st.sampled_from([None, Owner(("issuer", "alice"), "Alice"), Owner(("issuer", "bob", None), "Bob")])
TEXTS = st.sampled_from([None, "Reading", "Writing \ud800\x00"])


class TooLarge(dict[str, Any]):
    """More than a task may keep, and not shown in full when a sequence fails."""

    def __repr__(self) -> str:
        return "TOO_LARGE"


TOO_LARGE = TooLarge(text="x" * 2000)
RESULTS = [{"content": []}, {"content": [], "isError": True}, {"text": "é\x00\ud83d"}, TOO_LARGE]
OUTCOMES = st.sampled_from([*RESULTS, *(McpError(-32000, "Broken", data) for data in (None, {"n": 1}, TOO_LARGE))])
ANSWERS = st.sampled_from([{"action": "decline"}, {"action": "accept", "content": {"n": 1e16}}, TOO_LARGE])
PARAMS = st.sampled_from([None, None, {"message": "Sure?"}])
ASKED_KEYS = st.sampled_from([["a"], ["b"], ["a", "b"], ["c", "a"], ["b", "c", "d"], []])
MOVES = st.sampled_from(["heartbeat", "release", "hand_over", "retry", "end_leg", "let_go"])
NO_LIMIT = RunningLimit()
LIMITS = st.sampled_from(
    [NO_LIMIT] * 3 + [RunningLimit(total=1), RunningLimit(total=2), RunningLimit(per_owner=1), RunningLimit(2, 1)]
)
NTH = st.integers(0, 3)
DEADLINES = st.sampled_from([None, None, 1, 5])
TTLS = st.sampled_from([None, 1, 2 * MINUTE_MS, 10 * MINUTE_MS, 90 * MINUTE_MS])
Fence = tuple[Pair, int | None]
READS = (
    "task_presence",
    "task_owner",
    "get_task",
    "get_task_result",
    "outstanding_input_requests",
    "input_responses",
    "resume_context",
    "recorded_steps",
)
STEPS = ("recover", "redeliver", "answer_overdue", "expire", "purge")


class StoresSideBySide(RuleBasedStateMachine):
    """Clients, workers, server code and janitors, in any order."""

    tasks: Bundle[Pair] = Bundle("tasks")
    #: A task with the number of a leg that runs, has ended, was lost, or was never handed out.
    legs: Bundle[Fence] = Bundle("legs")
    #: The same, and tasks with None: server code that is no leg.
    writers: Bundle[Fence] = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.stores = SideBySide()
        self.promises: dict[int, invariants.Promises] = {}
        self.seen: dict[int, invariants.Seen] = {}
        self.reclaims = False

    # -- creation --------------------------------------------------------------------------------------------

    @initialize(target=tasks)
    def begin_with_two_tasks(self) -> Any:
        return multiple(*(self.create(None, None, {}, max_attempts=times) for times in (1, 2)))

    @rule(
        target=tasks,
        owner=OWNERS,
        key=st.sampled_from([None, None, "one", "two"]),
        arguments=st.sampled_from([{}, {}, {}, {}, {"b": 1, "a": [2**53 + 1]}, TOO_LARGE]),
        ttl_ms=st.sampled_from([DEFAULT_TTL, DEFAULT_TTL, DEFAULT_TTL, None, None, 5 * MINUTE_MS, 0]),
        max_attempts=st.sampled_from([1, 2]),
        priority=st.sampled_from([0, 0, 1]),
        meta=st.sampled_from([None, {"k": "v"}]),
        deferred=st.sampled_from([False, False, True]),
    )
    def create(self, owner: Owner | None, key: str | None, arguments: dict[str, Any], **options: Any) -> Any:
        pair = self.stores.create("report", arguments, owner=owner, idempotency_key=key, **options)
        if pair is None:
            return multiple()
        self.promises.setdefault(pair.number, invariants.Promises())
        return pair

    @rule(task=tasks)
    def discard(self, task: Pair) -> None:
        if self.stores.call("discard_task", task) is True:
            self.promises[task.number].discarded = True

    # -- legs ------------------------------------------------------------------------------------------------

    @rule(targets=(legs, writers), limit=LIMITS, oldest_first=st.booleans())
    def claim_the_next(self, limit: RunningLimit, oldest_first: bool) -> Any:
        asked: Any = {"tools": ("report",), "limits": {"report": limit}, "oldest_first": oldest_first}
        return self._claimed(self.stores.call("claim", None, **asked, holder="worker:1"), limit)

    @rule(targets=(legs, writers), task=tasks, limit=LIMITS)
    def claim(self, task: Pair, limit: RunningLimit) -> Any:
        return self._claimed(self.stores.call("claim", task, limits={"report": limit}, holder="worker:2"), limit)

    @rule(targets=(legs, writers), live=st.booleans(), keys=ASKED_KEYS, deadline=DEADLINES)
    def claim_and_ask(self, live: bool, keys: list[str], deadline: int | None) -> Any:
        claimed = self.claim_the_next(limit=NO_LIMIT, oldest_first=False)
        if isinstance(claimed, tuple):
            self.every_promise_holds()
            self.ask(by=claimed, live=live, keys=keys, params=None, deadline=deadline, message="Well?")
        return claimed

    @rule(targets=(legs, writers), task=tasks, further=st.sampled_from([0, 0, 1]))
    def pretend_to_be_a_leg(self, task: Pair, further: int) -> Any:
        row = self.seen[task.number].row
        return multiple() if row is None else (task, row["leg"] + further)

    @rule(target=writers, task=tasks)
    def be_no_leg(self, task: Pair) -> Any:
        return (task, None)

    @precondition(lambda self: self._in(RUNNING))
    @rule(nth=NTH, name=MOVES)
    def move_a_leg_that_runs(self, nth: int, name: str) -> None:
        running = self._in(RUNNING)
        task = running[nth % len(running)]
        self.move_a_leg(leg=(task, self.seen[task.number].row["leg"]), name=name)

    @rule(leg=legs, name=MOVES)
    def move_a_leg(self, leg: Fence, name: str) -> None:
        pair, number = leg
        asked = {item["asked_leg"] for item in self.seen[pair.number].inputs.values()}
        if name == "end_leg" and number not in asked:
            return  # only a leg that has asked ends in this way
        options = {"after_seconds": 120} if name == "retry" else {}
        outcome = self.stores.call(name, pair, number, **options)
        if name != "let_go":
            self._check_fence(name, leg, outcome)

    # -- what a leg, or server code that is none, writes -----------------------------------------------------

    @rule(by=writers, message=TEXTS, done=st.sampled_from([None, 1, 2.5]))
    def progress(self, by: Fence, message: str | None, done: float | None) -> None:
        self._write("set_status", by, message, done=done, total=None if done is None else 9)

    @rule(by=writers, meta=st.sampled_from([{}, {"k": ["v"]}, TOO_LARGE]))
    def set_meta(self, by: Fence, meta: dict[str, Any]) -> None:
        self._write("set_task_meta", by, meta)

    @rule(by=writers, outcome=OUTCOMES, message=TEXTS)
    def settle(self, by: Fence, outcome: Any, message: str | None) -> None:
        name = "fail_task" if isinstance(outcome, McpError) else "complete_task"
        self._write(name, by, outcome, status_message=message)

    @rule(by=writers, live=st.booleans(), keys=ASKED_KEYS, params=PARAMS, deadline=DEADLINES, message=TEXTS)
    def ask(self, by: Fence, live: bool, keys: list[str], params: Any, deadline: int | None, message: Any) -> None:
        requests = {key: {"method": "elicitation/create", "params": params} for key in keys}
        # The first of the questions has the deadline, the others have none.
        deadlines = {} if deadline is None else dict.fromkeys(keys[:1], deadline * 60)
        self._write("require_input", by, requests, message, live=live, deadlines=deadlines)

    @rule(
        leg=legs,
        name=st.sampled_from(["a", "b", "a b"]),
        arguments=st.sampled_from("xxy"),
        result=st.sampled_from(RESULTS),
    )
    def step(self, leg: Fence, name: str, arguments: str, result: dict[str, Any]) -> None:
        pair, number = leg
        outcome = self.stores.call("record_step", pair, number, name, arguments, result)
        self._check_fence("record_step", leg, outcome)
        if not isinstance(outcome, type) and outcome:
            assert name not in self.promises[pair.number].steps
            self.promises[pair.number].steps[name] = RecordedStep(arguments, dumps(result))

    @rule(by=writers, ttl_ms=TTLS)
    def set_ttl(self, by: Fence, ttl_ms: int | None) -> None:
        time.sleep(0.002)  # beyond the shortest ttl, by each of the two clocks
        self._write("set_ttl", by, ttl_ms)

    # -- clients ---------------------------------------------------------------------------------------------

    @rule(task=tasks, responses=st.dictionaries(st.sampled_from(["a", "b", "c", "d", "ghost"]), ANSWERS, max_size=3))
    def answer(self, task: Pair, responses: dict[str, Any]) -> None:
        applied = self.stores.call("apply_input_responses", task, responses)
        if isinstance(applied, AppliedResponses):
            accepted = {key: responses[key] for key in applied.accepted}
            assert not accepted.keys() & self.promises[task.number].answers.keys()
            self.promises[task.number].answers |= accepted

    @precondition(lambda self: self._in(PARKED, RUNNING, status="input_required"))
    @rule(nth=NTH, answer=ANSWERS, but=st.sampled_from([0, 0, 1]))
    def answer_what_is_open(self, nth: int, answer: dict[str, Any], but: int) -> None:
        waiting = self._in(PARKED, RUNNING, status="input_required")
        task = waiting[nth % len(waiting)]
        outstanding = self.stores.call("outstanding_input_requests", task)
        self.answer(task=task, responses=dict.fromkeys(sorted(outstanding or {})[but:], answer))

    @rule(task=tasks, reason=TEXTS)
    def cancel(self, task: Pair, reason: str | None) -> None:
        view = self.stores.call("cancel_task", task, reason, actor="client")
        if view is not None and view.status == "cancelled":
            self.promises[task.number].cancelled = True

    @rule(task=tasks, owner=OWNERS, payload=st.booleans(), status=st.sampled_from([None, "working", "cancelled"]))
    def look(self, task: Pair, owner: Owner | None, payload: bool, status: str | None) -> None:
        found = self.stores.database.resolve(task.database.task_id, owner, payload=payload)
        expected = self.stores.memory.resolve(task.memory.task_id, owner, payload=payload)
        assert type(found) is type(expected)
        assert owner == task.owner or isinstance(found, Missing)
        for name in (
            "task_presence",
            "get_task",
            "get_task_result",
            "task_owner",
            "outstanding_input_requests",
            "input_responses",
            "recorded_steps",
        ):
            self.stores.call(name, task)
        self.stores.call("resume_context", task)
        self.stores.call("list_tasks", None, status=status)

    # -- time and the janitor --------------------------------------------------------------------------------

    @rule(minutes=st.sampled_from([1, 1, 1, 2, 2, 5, 15, 60]))
    def time_passes(self, minutes: int) -> None:
        self.stores.advance(minutes)

    @rule(name=st.sampled_from(STEPS))
    def sweep(self, name: str) -> None:
        self.reclaims = True
        self.stores.call(name, None)
        again = self.stores.call(name, None)
        assert again.changed == 0, f"{name} found more the second time: {again}"

    # -- checks ----------------------------------------------------------------------------------------------

    @invariant()
    def every_promise_holds(self) -> None:
        step = self._step()
        for check in invariants.INVARIANTS:
            check(step)

    def teardown(self) -> None:
        """Worker and janitor go on until nothing is left to do: then no task may be in between."""
        for _ in range(20):
            if not self._work():
                break
            self._pass(2, STEPS[:4])
        step = self._step()
        invariants.every_task_has_ended_or_waits_for_a_human(step)
        invariants.a_leg_follows_another_only_when_that_one_is_over(step)
        invariants.no_id_of_a_client_is_stored_anywhere(step)
        self._pass(200, STEPS)
        self._pass(200, STEPS)

    def _pass(self, minutes: int, steps: tuple[str, ...]) -> None:
        self.stores.advance(minutes)
        for name in steps:
            self.every_promise_holds()
            self.sweep(name)
        self.every_promise_holds()

    # -- inside ----------------------------------------------------------------------------------------------

    def _step(self) -> invariants.Step:
        after = invariants.look(self.stores)
        step = invariants.Step(self.stores, self.promises, self.seen, after, self.reclaims, CAP)
        self.seen, self.reclaims = after, False
        return step

    def _in(self, *phases: str, status: str | None = None) -> list[Pair]:
        """The tasks that were in one of these phases after the last step."""
        rows = ((pair, self.seen[pair.number].row) for pair in self.stores.pairs if pair.number in self.seen)
        return [pair for pair, row in rows if row and row["phase"] in phases and status in (None, row["status"])]

    def _work(self) -> bool:
        """Whatever can be done is done; False when there was nothing."""
        worked = False
        while isinstance(claim := self.stores.call("claim", None, holder="worker:3"), Claim):
            self._claimed(claim)
            self.stores.call("complete_task", self.stores.pair_of(claim.ref), {"content": []}, leg=claim.leg)
            worked = True
        for pair in self.stores.pairs:
            row = self._step().after[pair.number].row
            if row is None or row["is_past"]:
                continue
            if row["phase"] == RUNNING and row["due_at"] is None:
                self.stores.call("complete_task", pair, {"content": []})  # the job that it was handed over to
            worked = worked or row["phase"] in (QUEUED, RUNNING) or (row["phase"] == PARKED and row["due_at"])
        return worked

    def _claimed(self, claim: Claim | None, limit: RunningLimit = NO_LIMIT) -> Any:
        if claim is None:
            return multiple()
        pair = self.stores.pair_of(claim.ref)
        owners = Counter(Task.objects.filter(phase=RUNNING).values_list("owner_key", flat=True))
        assert limit.total is None or owners.total() <= limit.total, f"{owners} run under {limit}"
        of_owner = owners[owner_key(pair.owner)]
        assert limit.per_owner is None or of_owner <= limit.per_owner, f"{of_owner} of an owner run under {limit}"
        self.promises[pair.number].legs[claim.leg] += 1
        resume = self.stores.call("resume_context", pair, claim.leg)
        known = {key: item.answer for key, item in resume.answers.items()}
        assert known.items() >= self.promises[pair.number].answers.items()
        assert self.stores.call("recorded_steps", pair) == self.promises[pair.number].steps
        return (pair, claim.leg)

    def _write(self, name: str, by: Fence, *arguments: Any, **options: Any) -> None:
        pair, leg = by
        self._check_fence(name, by, self.stores.call(name, pair, *arguments, leg=leg, **options))

    def _check_fence(self, name: str, by: Fence, outcome: Any) -> None:
        """What a leg writes is applied only while that leg is the running one."""
        pair, leg = by
        row = self.seen[pair.number].row
        is_mine = row is not None and (row["phase"], row["leg"]) == (RUNNING, leg)
        # An exception after which something is settled is no outcome, and nothing is applied by the others.
        applied = not isinstance(outcome, type) and bool(outcome)
        assert leg is None or is_mine or not applied, f"{name} was applied for leg {leg} of {pair}"


@pytest.mark.django_db(transaction=True)
def test_the_database_store_does_what_the_store_in_memory_does() -> None:
    hurry(connection)
    with override_settings(MCP_TASKS=MCP_TASKS):
        run_state_machine_as_test(StoresSideBySide, settings=PROFILE)
