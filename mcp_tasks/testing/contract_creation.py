"""The contract of creating: ids, ttl, idempotency keys, caps, discarding, handing over."""

from typing import Any

import pytest

from ..protocol.codec import Json, JsonError
from ..protocol.errors import internal_error
from ..protocol.tasks import is_task_id
from ..store.base import TaskStore
from ..store.types import (
    Expired,
    IdempotencyConflict,
    Missing,
    Owner,
    Present,
    RetentionLimitExceeded,
    TaskLimitReached,
    ref_of,
)
from .contract_support import (
    ACCEPT,
    ALICE,
    BOB,
    MAX_TTL_MS,
    REDELIVER_SECONDS,
    RESULT,
    TTL_MS,
    Advance,
    ContractBase,
    Heard,
    claim,
    claimed,
    configured,
    create,
    parked,
    question,
    seconds_between,
    snapshot,
    stranger,
    unchanged,
    view,
)


class CreationContract(ContractBase):
    """A task is durable before its id is handed out, and comes into being exactly as often as it was asked for."""

    def test_a_created_task_is_queued_and_working(self, store: TaskStore) -> None:
        created = create(store, "report", owner=ALICE)
        task = view(store, created.ref)
        assert (task.status, task.phase, task.leg, task.attempts, task.revision) == (
            "working",
            "queued",
            0,
            0,
            1,
        )
        assert (task.tool, task.method, task.max_attempts, task.priority) == ("report", "tools/call", 1, 0)
        assert (task.owner_key, task.owner_label) == (ALICE.key, "Alice")
        assert (task.ttl_ms, task.poll_interval_ms) == (TTL_MS, 1_000)
        assert task.updated_at == task.created_at
        assert seconds_between(task.created_at, task.expires_at) * 1000 == TTL_MS
        assert seconds_between(task.created_at, task.due_at) == pytest.approx(REDELIVER_SECONDS, abs=1)
        assert (task.status_message, task.progress_done, task.progress_total) == (None, None, None)
        assert (task.started_at, task.finished_at, task.cancel_requested_at) == (None, None, None)
        assert task.tool_error is False

    def test_what_is_returned_is_what_is_stored(self, store: TaskStore) -> None:
        created = create(store, owner=ALICE, status_message="Queued", meta={"trace": 1})
        assert created.existed is False
        assert created.snapshot == snapshot(store, created.ref)

    def test_everything_said_at_creation_is_kept(self, store: TaskStore) -> None:
        created = create(
            store,
            "scan",
            {"host": "h1"},
            owner=ALICE,
            method="tools/call",
            poll_interval_ms=250,
            max_attempts=3,
            priority=7,
            context={"capabilities": {"roots": {}}, "meta": {"k": "v"}},
            status_message="Queued",
            meta={"trace": "t-1"},
        )
        found = snapshot(store, created.ref)
        assert (found.task.poll_interval_ms, found.task.max_attempts, found.task.priority) == (250, 3, 7)
        assert found.task.status_message == "Queued"
        assert found.meta_json == '{"trace":"t-1"}'
        context = store.resume_context(created.ref)
        assert context is not None
        assert (context.tool, context.arguments) == ("scan", {"host": "h1"})
        assert (context.capabilities, context.meta) == ({"roots": {}}, {"k": "v"})

    def test_an_id_has_the_shape_of_a_capability_and_nothing_in_common_with_others(self, store: TaskStore) -> None:
        ids = [create(store, owner=ALICE).task_id for _ in range(20)]
        ids += [create(store, owner=ALICE, idempotency_key=f"k{n}").task_id for n in range(20)]
        assert all(is_task_id(task_id) for task_id in ids)
        assert len({task_id[:8] for task_id in ids}) == 40
        assert len({task_id[-8:] for task_id in ids}) == 40

    def test_the_ref_is_the_hash_of_the_id(self, store: TaskStore) -> None:
        created = create(store)
        assert created.ref == ref_of(created.task_id) == created.snapshot.task.ref

    def test_a_created_task_is_there_for_its_owner_at_once(self, store: TaskStore) -> None:
        created = create(store, owner=ALICE)
        assert store.resolve(created.task_id, ALICE) == Present(created.ref, ALICE.key, "report")

    def test_the_token_of_a_new_task_is_down_and_the_one_its_legs_get(self, store: TaskStore) -> None:
        created = create(store)
        context = store.resume_context(created.ref)
        assert context is not None
        assert context.token is created.token
        assert created.token.cancelled is False

    def test_creating_rings_the_doorbell_once(self, store: TaskStore, heard: Heard) -> None:
        created = create(store)
        assert (heard.rung, heard.published, heard.tokens) == ([created.ref], [], [])

    # -- ttl -------------------------------------------------------------------------------------------------

    def test_a_ttl_in_milliseconds_runs_from_creation(self, store: TaskStore) -> None:
        task = view(store, create(store, ttl_ms=12_345).ref)
        assert task.ttl_ms == 12_345
        assert seconds_between(task.created_at, task.expires_at) == pytest.approx(12.345)

    def test_the_default_ttl_is_never_beyond_the_maximum(self, store: TaskStore) -> None:
        with configured(MAX_TTL_MS=600_000):
            assert create(store).snapshot.task.ttl_ms == 600_000

    def test_the_longest_ttl_may_be_asked_for(self, store: TaskStore) -> None:
        assert create(store, ttl_ms=MAX_TTL_MS).snapshot.task.ttl_ms == MAX_TTL_MS

    @pytest.mark.parametrize("ttl_ms", [0, -1, True, 1.5, "60000", MAX_TTL_MS + 1, None], ids=repr)
    def test_a_wrong_ttl_is_refused_and_makes_no_task(self, store: TaskStore, heard: Heard, ttl_ms: Any) -> None:
        with pytest.raises(ValueError, match="ttl"):
            create(store, ttl_ms=ttl_ms)
        assert list(store.list_tasks()) == []
        assert heard.nothing

    def test_no_ttl_is_possible_where_there_is_no_maximum(self, store: TaskStore, advance: Advance) -> None:
        with configured(MAX_TTL_MS=None):
            created = create(store, ttl_ms=None)
        assert (created.snapshot.task.ttl_ms, created.snapshot.task.expires_at) == (None, None)
        advance(created.ref, 10 * MAX_TTL_MS / 1000)
        assert view(store, created.ref).status == "working"

    # -- idempotency keys ------------------------------------------------------------------------------------

    def test_the_same_key_of_the_same_owner_is_the_same_task(self, store: TaskStore, heard: Heard) -> None:
        first = create(store, "scan", {"a": 1, "b": 2}, owner=ALICE, idempotency_key="k-77")
        store.set_status(first.ref, "Under way")
        heard.forget()
        again = create(store, "scan", {"b": 2, "a": 1}, owner=ALICE, idempotency_key="k-77")
        assert again.existed is True
        assert (again.task_id, again.ref) == (first.task_id, first.ref)
        assert again.token is first.token
        assert again.snapshot == snapshot(store, first.ref)
        assert again.snapshot.task.status_message == "Under way"
        assert heard.nothing
        assert [task.ref for task in store.list_tasks()] == [first.ref]

    def test_a_key_finds_a_finished_task_too(self, store: TaskStore) -> None:
        first = create(store, owner=ALICE, idempotency_key="k")
        store.complete_task(first.ref, RESULT)
        again = create(store, owner=ALICE, idempotency_key="k")
        assert again.existed
        assert again.snapshot.result == RESULT

    def test_a_key_belongs_to_its_owner(self, store: TaskStore) -> None:
        tasks = [create(store, owner=owner, idempotency_key="k") for owner in (ALICE, BOB)]
        assert [task.existed for task in tasks] == [False, False]
        assert tasks[0].task_id != tasks[1].task_id

    def test_different_keys_are_different_tasks(self, store: TaskStore) -> None:
        tasks = [create(store, owner=ALICE, idempotency_key=key) for key in ("k", "K", "k ")]
        assert len({task.ref for task in tasks}) == 3

    def test_without_an_owner_a_key_is_ignored(self, store: TaskStore) -> None:
        tasks = [create(store, idempotency_key="k") for _ in range(2)]
        assert [task.existed for task in tasks] == [False, False]
        assert tasks[0].ref != tasks[1].ref

    @pytest.mark.parametrize(
        ("tool", "arguments", "method"),
        [
            ("scan", {"host": "h2"}, "tools/call"),
            ("scan", {}, "tools/call"),
            ("report", {"host": "h1"}, "tools/call"),
            ("scan", {"host": "h1"}, "prompts/get"),
        ],
    )
    def test_a_key_used_for_another_call_is_a_conflict(
        self, store: TaskStore, heard: Heard, tool: str, arguments: dict[str, Json], method: str
    ) -> None:
        first = create(store, "scan", {"host": "h1"}, owner=ALICE, idempotency_key="k")
        with unchanged(store, first.ref, heard), pytest.raises(IdempotencyConflict):
            create(store, tool, arguments, owner=ALICE, idempotency_key="k", method=method)
        assert len(list(store.list_tasks())) == 1

    @pytest.mark.parametrize("swept", [False, True])
    def test_a_key_is_free_again_once_its_task_has_expired(
        self, store: TaskStore, advance: Advance, swept: bool
    ) -> None:
        first = create(store, "scan", owner=ALICE, idempotency_key="k", ttl_ms=100_000)
        advance(first.ref, 101)
        if swept:
            store.expire()
        second = create(store, "report", owner=ALICE, idempotency_key="k")
        assert second.existed is False
        assert second.ref != first.ref
        assert store.resolve(first.task_id, ALICE) == Expired(first.ref, ALICE.key)
        assert create(store, "report", owner=ALICE, idempotency_key="k").ref == second.ref

    # -- caps ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("owner", [ALICE, None], ids=["owner", "anonymous"])
    def test_an_owner_has_at_most_so_many_live_tasks(self, store: TaskStore, heard: Heard, owner: Owner | None) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": 2, "LIVE_TASKS_ANONYMOUS": 2}):
            create(store, owner=owner)
            create(store, owner=owner)
            heard.forget()
            with pytest.raises(TaskLimitReached, match="task limit reached"):
                create(store, owner=owner)
            assert heard.nothing
            assert len(list(store.list_tasks())) == 2
            create(store, owner=BOB)

    def test_anonymous_callers_have_a_cap_of_their_own(self, store: TaskStore) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": 5, "LIVE_TASKS_ANONYMOUS": 1}):
            create(store)
            create(store, owner=ALICE)
            create(store, owner=ALICE)
            with pytest.raises(TaskLimitReached):
                create(store)

    def test_a_cap_of_none_is_no_cap(self, store: TaskStore) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": None}):
            assert len({create(store, owner=ALICE).ref for _ in range(5)}) == 5

    def test_running_and_waiting_tasks_count_and_finished_and_expired_ones_do_not(
        self, store: TaskStore, advance: Advance
    ) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": 3}):
            waiting = parked(store, owner=ALICE)
            running = claimed(store, owner=ALICE)
            queued = create(store, owner=ALICE, ttl_ms=100_000)
            with pytest.raises(TaskLimitReached):
                create(store, owner=ALICE)
            store.cancel_task(waiting)
            create(store, owner=ALICE)
            store.complete_task(running.ref, RESULT, leg=running.leg)
            create(store, owner=ALICE)
            with pytest.raises(TaskLimitReached):
                create(store, owner=ALICE)
            advance(queued.ref, 101)
            create(store, owner=ALICE)  # expired, though nobody has swept

    def test_a_repeated_call_is_answered_even_at_the_cap(self, store: TaskStore) -> None:
        with configured(limits={"LIVE_TASKS_PER_OWNER": 1}):
            first = create(store, owner=ALICE, idempotency_key="k")
            assert create(store, owner=ALICE, idempotency_key="k").ref == first.ref

    # -- payloads --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("part", ["arguments", "context", "meta"])
    def test_a_payload_beyond_the_limit_makes_no_task(self, store: TaskStore, heard: Heard, part: str) -> None:
        payload: dict[str, Any] = {part: {"text": "hunter2" * 300}}
        with configured(limits={"PAYLOAD_BYTES": 1024}):
            with pytest.raises(RetentionLimitExceeded) as refused:
                create(store, **payload)
            assert "hunter2" not in str(refused.value)
            assert list(store.list_tasks()) == []
            assert heard.nothing

    def test_arguments_that_have_no_json_form_make_no_task(self, store: TaskStore) -> None:
        with pytest.raises(JsonError):
            create(store, arguments={"when": object()})
        assert list(store.list_tasks()) == []

    # -- discarding ------------------------------------------------------------------------------------------

    def test_a_task_that_never_started_can_be_discarded(self, store: TaskStore) -> None:
        created = create(store, owner=ALICE, idempotency_key="k")
        assert store.discard_task(created.ref) is True
        assert store.get_task(created.ref) is None
        assert store.task_presence(created.ref) == Missing()
        assert store.resolve(created.task_id, ALICE) == Missing()
        assert store.claim(created.ref) is None
        assert store.discard_task(created.ref) is False
        assert create(store, owner=ALICE, idempotency_key="k").existed is False

    def test_a_task_that_has_started_cannot_be_discarded(self, store: TaskStore) -> None:
        running = claimed(store, max_attempts=2)
        released = claimed(store, max_attempts=2)
        assert store.release(released.ref, released.leg)
        finished = create(store).ref
        store.complete_task(finished, RESULT)
        waiting = create(store).ref
        store.require_input(waiting, {"approval": question()})
        for ref in (running.ref, released.ref, finished, waiting, create(store, deferred=True).ref):
            with unchanged(store, ref):
                assert store.discard_task(ref) is False

    def test_an_unknown_or_expired_task_cannot_be_discarded(self, store: TaskStore, advance: Advance) -> None:
        created = create(store, owner=ALICE, ttl_ms=100_000)
        advance(created.ref, 101)
        assert store.discard_task(created.ref) is False
        assert store.resolve(created.task_id, ALICE) == Expired(created.ref, ALICE.key)
        assert store.discard_task(stranger()) is False

    # -- handing over ----------------------------------------------------------------------------------------

    def test_a_deferred_task_runs_under_a_short_lease_and_rings_no_doorbell(
        self, store: TaskStore, heard: Heard
    ) -> None:
        task = create(store, deferred=True).snapshot.task
        assert (task.status, task.phase, task.leg, task.attempts) == ("working", "running", 1, 1)
        assert task.started_at == task.created_at
        assert seconds_between(task.created_at, task.due_at) == pytest.approx(60, abs=1)
        assert heard.nothing
        assert store.claim(task.ref) is None
        assert store.claim() is None

    def test_a_handed_over_task_has_no_lease_and_waits_for_whoever_does_the_work(
        self, store: TaskStore, advance: Advance, heard: Heard
    ) -> None:
        created = create(store, deferred=True)
        before = view(store, created.ref)
        heard.forget()
        assert store.hand_over(created.ref, 1)
        task = view(store, created.ref)
        assert task.due_at is None
        assert (task.phase, task.revision, task.updated_at) == ("running", before.revision, before.updated_at)
        assert heard.nothing
        advance(created.ref, 3000)
        assert store.recover().changed == 0
        assert store.set_status(created.ref, "Half way")
        assert store.complete_task(created.ref, RESULT)

    def test_a_job_that_was_quicker_than_the_hand_over_keeps_its_outcome(self, store: TaskStore, heard: Heard) -> None:
        created = create(store, deferred=True)
        store.complete_task(created.ref, RESULT)
        with unchanged(store, created.ref, heard):
            assert store.hand_over(created.ref, 1).why == "terminal"
            failure = store.fail_task(created.ref, internal_error("broken"), leg=1, kind="start_failed")
            assert (bool(failure), failure.why) == (False, "terminal")

    def test_a_start_that_failed_fails_the_task(self, store: TaskStore) -> None:
        created = create(store, deferred=True)
        assert store.fail_task(created.ref, internal_error("It did not start"), leg=1, kind="start_failed")
        found = snapshot(store, created.ref)
        assert found.task.status == "failed"
        assert found.error == {"code": -32603, "message": "It did not start"}

    def test_only_the_running_leg_can_be_handed_over(self, store: TaskStore, advance: Advance) -> None:
        queued = create(store, ttl_ms=100_000).ref
        assert store.hand_over(queued, 0).why == "fenced"
        running = claim(store, queued)
        assert store.hand_over(queued, running.leg + 1).why == "fenced"
        assert store.hand_over(stranger(), 1).why == "gone"
        advance(queued, 101)
        assert store.hand_over(queued, running.leg).why == "expired"

    @pytest.mark.parametrize(("max_attempts", "status", "phase"), [(1, "failed", "done"), (2, "working", "queued")])
    def test_a_crash_between_defer_and_hand_over_is_found_by_the_janitor(
        self, store: TaskStore, advance: Advance, max_attempts: int, status: str, phase: str
    ) -> None:
        created = create(store, deferred=True, max_attempts=max_attempts)
        advance(created.ref, 61)
        store.recover()
        task = view(store, created.ref)
        assert (task.status, task.phase) == (status, phase)
        if phase == "queued":
            leg = claim(store, created.ref)
            assert leg.leg == 2
            assert store.hand_over(leg.ref, 2)

    def test_the_questions_of_a_handed_over_task_are_answered_without_a_new_leg(
        self, store: TaskStore, heard: Heard
    ) -> None:
        created = create(store, deferred=True)
        store.hand_over(created.ref, 1)
        assert store.require_input(created.ref, {"approval": question()})
        assert (view(store, created.ref).phase, view(store, created.ref).due_at) == ("running", None)
        heard.forget()
        assert store.apply_input_responses(created.ref, {"approval": ACCEPT})
        task = view(store, created.ref)
        assert (task.status, task.phase, task.due_at) == ("working", "running", None)
        assert heard.rung == []
        assert store.complete_task(created.ref, RESULT)
