"""The contract of the operators' verbs: what each does, when it is refused, and that a lost race changes nothing."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ..protocol.codec import Json
from ..store.base import TaskStore
from ..store.types import Outcome
from .contract_support import (
    ACCEPT,
    LEASE_SECONDS,
    MAX_TTL_MS,
    RESULT,
    TTL_MS,
    Advance,
    ContractBase,
    Heard,
    claim,
    claimed,
    create,
    parked,
    question,
    snapshot,
    stranger,
    unchanged,
    view,
)

WHO: dict[str, Any] = {"actor": "operator:1", "reason": "It ran away"}

Verb = Callable[..., Outcome]


def _verb(store: TaskStore, name: str) -> Verb:
    if name == "extend":
        return lambda ref, **options: store.extend(ref, TTL_MS + 1, **{**WHO, **options})
    return lambda ref, **options: getattr(store, name)(ref, **{**WHO, **options})


def _stalled(store: TaskStore, advance: Advance, **options: Any) -> UUID:
    leg = claimed(store, **options)
    advance(leg.ref, LEASE_SECONDS + 1)
    return leg.ref


def _ready_for(store: TaskStore, advance: Advance, name: str) -> UUID:
    """A task that the verb applies to."""
    if name == "requeue":
        return _stalled(store, advance)
    if name == "dismiss_inputs":
        return parked(store)
    ref = create(store).ref
    if name == "delete_terminal":
        store.complete_task(ref, RESULT)
    return ref


VERBS = ("cancel", "fail", "extend", "requeue", "dismiss_inputs", "delete_terminal")


class OperatingContract(ContractBase):
    """An operator acts on one task at a time, says why, and never rewrites what a client may have read."""

    @pytest.mark.parametrize("name", VERBS)
    def test_a_verb_applies_to_the_revision_that_was_looked_at(
        self, store: TaskStore, advance: Advance, name: str
    ) -> None:
        ref = _ready_for(store, advance, name)
        assert _verb(store, name)(ref, revision=view(store, ref).revision)

    @pytest.mark.parametrize("name", VERBS)
    def test_a_verb_leaves_a_task_alone_that_changed_meanwhile(
        self, store: TaskStore, advance: Advance, heard: Heard, name: str
    ) -> None:
        ref = _ready_for(store, advance, name)
        with unchanged(store, ref, heard):
            outcome = _verb(store, name)(ref, revision=view(store, ref).revision + 1)
        assert (outcome.applied, outcome.why) == (False, "changed")

    @pytest.mark.parametrize("name", VERBS)
    def test_a_verb_on_a_task_that_is_not_there_says_so(self, store: TaskStore, name: str) -> None:
        assert _verb(store, name)(stranger()).why == "gone"

    @pytest.mark.parametrize("name", VERBS)
    def test_a_verb_on_an_expired_task_says_so(self, store: TaskStore, advance: Advance, name: str) -> None:
        ref = _ready_for(store, advance, name)
        advance(ref, TTL_MS / 1000 + 1)
        assert _verb(store, name)(ref).why == "expired"

    @pytest.mark.parametrize("name", [name for name in VERBS if name != "delete_terminal"])
    @pytest.mark.parametrize("revision", [None, 1])
    def test_a_finished_task_never_changes(
        self, store: TaskStore, heard: Heard, name: str, revision: int | None
    ) -> None:
        ref = create(store).ref
        store.complete_task(ref, RESULT)
        with unchanged(store, ref, heard):
            assert _verb(store, name)(ref, revision=revision).why == "terminal"

    @pytest.mark.parametrize("shared", [True, False])
    def test_cancelling_settles_at_once_and_tells_the_worker(
        self, store: TaskStore, heard: Heard, shared: bool
    ) -> None:
        leg = claimed(store)
        heard.forget()
        assert store.cancel(leg.ref, **WHO, share_reason=shared)
        task = view(store, leg.ref)
        assert (task.status, task.phase) == ("cancelled", "done")
        assert task.status_message == ("It ran away" if shared else None)
        assert (heard.tokens, heard.published) == ([(leg.ref, "cancelled")], [(leg.ref, task.revision)])
        assert not store.complete_task(leg.ref, RESULT, leg=leg.leg)

    def test_cancelling_withdraws_the_open_questions(self, store: TaskStore) -> None:
        ref = parked(store)
        assert store.cancel(ref, **WHO)
        assert store.outstanding_input_requests(ref) == {}

    @pytest.mark.parametrize("shared", [True, False])
    def test_failing_says_no_more_than_is_shared(self, store: TaskStore, heard: Heard, shared: bool) -> None:
        ref = parked(store)
        heard.forget()
        assert store.fail(ref, **WHO, share_reason=shared)
        found = snapshot(store, ref)
        text = "It ran away" if shared else "The task was stopped by an operator of this server"
        assert (found.task.status, found.error) == ("failed", {"code": -32603, "message": text})
        assert found.task.status_message == text
        assert heard.published == [(ref, found.task.revision)]

    def test_extending_gives_more_time_from_creation_on(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store).ref
        before = view(store, ref)
        heard.forget()
        assert store.extend(ref, 2 * TTL_MS, **WHO)
        task = view(store, ref)
        assert (task.ttl_ms, task.revision) == (2 * TTL_MS, before.revision + 1)
        assert heard.published == [(ref, task.revision)]

    def test_extending_stops_at_the_longest_time(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.extend(ref, 10 * MAX_TTL_MS, **WHO)
        assert view(store, ref).ttl_ms == MAX_TTL_MS

    @pytest.mark.parametrize("ttl_ms", [TTL_MS, TTL_MS - 1, 1])
    def test_extending_never_shortens(self, store: TaskStore, heard: Heard, ttl_ms: int) -> None:
        ref = create(store).ref
        with unchanged(store, ref, heard):
            assert store.extend(ref, ttl_ms, **WHO).why == "not_applicable"

    def test_a_stalled_task_is_queued_for_one_more_try_though_its_tries_are_used_up(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        ref = _stalled(store, advance, max_attempts=1)
        before = view(store, ref)
        heard.forget()
        assert store.requeue(ref, **WHO)
        task = view(store, ref)
        assert (task.status, task.phase, task.attempts, task.revision) == ("working", "queued", 0, before.revision)
        assert (heard.rung, heard.published, heard.tokens) == ([ref], [], [])
        assert claim(store, ref).leg == before.leg + 1

    def test_a_leg_with_a_lease_is_not_queued_again(self, store: TaskStore, heard: Heard) -> None:
        leg = claimed(store)
        with unchanged(store, leg.ref, heard):
            assert store.requeue(leg.ref, **WHO).why == "not_applicable"

    def test_work_that_was_handed_over_is_never_stalled(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        ref = create(store, deferred=True).ref
        store.hand_over(ref, 1)
        advance(ref, LEASE_SECONDS + 1)
        with unchanged(store, ref, heard):
            assert store.requeue(ref, **WHO).why == "not_applicable"

    def test_dismissing_answers_cancel_to_every_question_for_a_human_and_queues_the_leg(
        self, store: TaskStore, heard: Heard
    ) -> None:
        ref = parked(store, {"one": question("One?"), "two": question("Two?")})
        heard.forget()
        assert store.dismiss_inputs(ref, **WHO)
        task = view(store, ref)
        assert (task.status, task.phase) == ("working", "queued")
        assert store.input_responses(ref) == {"one": {"action": "cancel"}, "two": {"action": "cancel"}}
        assert (heard.rung, heard.published) == ([ref], [(ref, task.revision)])

    def test_dismissing_leaves_what_no_human_is_asked(self, store: TaskStore) -> None:
        roots: dict[str, Json] = {"method": "roots/list", "params": {}}
        ref = parked(store, {"approval": question(), "roots": roots})
        assert store.dismiss_inputs(ref, **WHO)
        assert store.outstanding_input_requests(ref) == {"roots": roots}
        assert store.dismiss_inputs(ref, **WHO).why == "not_applicable"

    def test_dismissing_cannot_accept_after_the_user_has_answered(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        with unchanged(store, ref, heard):
            assert store.dismiss_inputs(ref, **WHO).why == "not_applicable"
        assert store.input_responses(ref) == {"approval": ACCEPT}

    def test_deleting_removes_a_finished_task_for_good(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store)
        store.cancel_task(ref)
        heard.forget()
        assert store.delete_terminal(ref, **WHO)
        assert store.get_task(ref) is None
        assert store.input_responses(ref) == {}
        assert store.delete_terminal(ref, **WHO).why == "gone"
        assert heard.nothing

    def test_a_live_task_is_not_deleted(self, store: TaskStore, heard: Heard) -> None:
        ref = create(store).ref
        with unchanged(store, ref, heard):
            assert store.delete_terminal(ref, **WHO).why == "not_applicable"
