"""The contract of answering: what is kept, what is ignored, and what a later leg sees of it."""

from typing import Any

import pytest

from ..protocol.codec import Json, digest, dumps
from ..protocol.errors import internal_error
from ..store.base import TaskStore
from ..store.types import AppliedResponses, RetentionLimitExceeded
from .contract_support import (
    ACCEPT,
    ALICE,
    CANCEL,
    DECLINE,
    REDELIVER_SECONDS,
    RESULT,
    Advance,
    ContractBase,
    Heard,
    asked_live,
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

TWO = {"a": question("A?"), "b": question("B?")}


class Refusal(ValueError):
    """What the check of these tests raises."""


class AnswersContract(ContractBase):
    """An accepted answer is never lost, and the last one starts exactly one new leg."""

    def test_the_last_answer_queues_the_next_leg(self, store: TaskStore, advance: Advance, heard: Heard) -> None:
        ref = parked(store)
        advance(ref, 5)
        before = view(store, ref)
        heard.forget()
        applied = store.apply_input_responses(ref, {"approval": ACCEPT})
        assert applied == AppliedResponses(("approval",), (), ())
        found = snapshot(store, ref)
        assert (found.task.status, found.task.phase) == ("working", "queued")
        assert (found.task.leg, found.task.attempts) == (before.leg, 0)
        assert found.input_requests_json is None
        assert found.task.revision == before.revision + 1
        assert found.task.updated_at > before.updated_at
        assert seconds_between(found.task.updated_at, found.task.due_at) == pytest.approx(REDELIVER_SECONDS, abs=1)
        assert heard.rung == [ref]
        assert heard.published == [(ref, found.task.revision)]

    def test_an_answer_reaches_the_next_leg_with_the_hash_of_its_question(self, store: TaskStore) -> None:
        ref = parked(store)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        leg = claim(store, ref)
        context = store.resume_context(ref, leg.leg)
        assert context is not None
        assert context.leg == leg.leg == 2
        assert {key: item.answer for key, item in context.answers.items()} == {"approval": ACCEPT}
        assert context.answers["approval"].request_hash == digest(question())

    def test_a_part_of_the_answers_leaves_the_rest_open(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, TWO)
        revision = view(store, ref).revision
        heard.forget()
        assert store.apply_input_responses(ref, {"a": ACCEPT}) == AppliedResponses(("a",), (), ("b",))
        found = snapshot(store, ref)
        assert (found.task.status, found.task.phase) == ("input_required", "parked")
        assert found.input_requests_json == dumps({"b": TWO["b"]})
        assert store.outstanding_input_requests(ref) == {"b": TWO["b"]}
        assert found.task.revision == revision + 1
        assert heard.published == [(ref, revision + 1)]
        assert heard.rung == []
        assert store.claim(ref) is None
        assert store.input_responses(ref) == {"a": ACCEPT}
        assert store.apply_input_responses(ref, {"b": DECLINE}) == AppliedResponses(("b",), (), ())
        assert heard.rung == [ref]
        assert store.input_responses(ref) == {"a": ACCEPT, "b": DECLINE}

    def test_several_answers_are_one_change(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, TWO)
        revision = view(store, ref).revision
        heard.forget()
        applied = store.apply_input_responses(ref, {"b": ACCEPT, "a": CANCEL})
        assert applied is not None
        assert (sorted(applied.accepted), applied.still_outstanding) == (["a", "b"], ())
        assert view(store, ref).revision == revision + 1
        assert (heard.rung, heard.published) == ([ref], [(ref, revision + 1)])

    @pytest.mark.parametrize("answer", [ACCEPT, DECLINE, CANCEL], ids=["accept", "decline", "cancel"])
    def test_every_action_is_an_answer(self, store: TaskStore, answer: dict[str, Json]) -> None:
        ref = parked(store)
        store.apply_input_responses(ref, {"approval": answer})
        assert view(store, ref).phase == "queued"
        assert store.input_responses(ref) == {"approval": answer}

    # -- what is ignored -------------------------------------------------------------------------------------

    @pytest.mark.parametrize("key", ["ghost", "APPROVAL", "approval ", "", "a\x00", "\ud800", "é" * 200], ids=ascii)
    def test_a_key_that_was_never_issued_is_ignored(self, store: TaskStore, heard: Heard, key: str) -> None:
        ref = parked(store)
        with unchanged(store, ref, heard):
            applied = store.apply_input_responses(ref, {key: ACCEPT})
        assert applied == AppliedResponses((), (key,), ("approval",))
        assert store.input_responses(ref) == {}

    def test_unknown_keys_do_not_keep_known_ones_from_being_stored(self, store: TaskStore) -> None:
        ref = parked(store, TWO)
        applied = store.apply_input_responses(ref, {"ghost": 5, "a": ACCEPT, "\ud800": None})
        assert applied == AppliedResponses(("a",), ("ghost", "\ud800"), ("b",))

    def test_no_answers_change_nothing(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store)
        with unchanged(store, ref, heard):
            assert store.apply_input_responses(ref, {}) == AppliedResponses((), (), ("approval",))

    def test_the_first_answer_to_a_key_stays(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, TWO)
        store.apply_input_responses(ref, {"a": ACCEPT})
        with unchanged(store, ref, heard):
            applied = store.apply_input_responses(ref, {"a": DECLINE})
        assert applied == AppliedResponses((), ("a",), ("b",))
        assert store.input_responses(ref) == {"a": ACCEPT}

    @pytest.mark.parametrize("phase", ["queued", "running"])
    def test_a_task_that_asks_nothing_ignores_answers(self, store: TaskStore, heard: Heard, phase: str) -> None:
        ref = parked(store)
        store.apply_input_responses(ref, {"approval": ACCEPT})
        if phase == "running":
            claim(store, ref)
        with unchanged(store, ref, heard):
            applied = store.apply_input_responses(ref, {"approval": DECLINE, "ghost": ACCEPT})
        assert applied == AppliedResponses((), ("approval", "ghost"), ())
        assert store.input_responses(ref) == {"approval": ACCEPT}

    @pytest.mark.parametrize("how", ["complete", "fail", "cancel"])
    def test_a_finished_task_takes_no_answers(self, store: TaskStore, heard: Heard, how: str) -> None:
        ref = parked(store)
        finish: dict[str, Any] = {
            "complete": lambda: store.complete_task(ref, RESULT),
            "fail": lambda: store.fail_task(ref, internal_error()),
            "cancel": lambda: store.cancel_task(ref),
        }
        assert finish[how]()
        with unchanged(store, ref, heard):
            assert store.apply_input_responses(ref, {"approval": ACCEPT}) is None
        assert store.input_responses(ref) == {}

    def test_an_unknown_or_expired_task_takes_no_answers(self, store: TaskStore, advance: Advance) -> None:
        assert store.apply_input_responses(stranger(), {"approval": ACCEPT}) is None
        ref = parked(store, ttl_ms=100_000)
        advance(ref, 101)
        assert store.apply_input_responses(ref, {"approval": ACCEPT}) is None
        store.expire()
        assert store.apply_input_responses(ref, {"approval": ACCEPT}) is None

    # -- checks ----------------------------------------------------------------------------------------------

    def test_the_check_sees_each_open_key_with_its_question_and_nothing_else(self, store: TaskStore) -> None:
        ref = parked(store, TWO)
        store.apply_input_responses(ref, {"b": ACCEPT})
        seen: list[tuple[str, Any, Any]] = []
        store.apply_input_responses(ref, {"ghost": 5, "b": DECLINE, "a": ACCEPT}, lambda *checked: seen.append(checked))
        assert seen == [("a", TWO["a"], ACCEPT)]

    @pytest.mark.parametrize("wrong", ["a", "b"])
    def test_what_the_check_raises_leaves_nothing_stored(self, store: TaskStore, heard: Heard, wrong: str) -> None:
        def check(key: str, question: dict[str, Json], answer: Json) -> None:
            if key == wrong:
                raise Refusal(key)

        ref = parked(store, TWO)
        with unchanged(store, ref, heard), pytest.raises(Refusal):
            store.apply_input_responses(ref, {"a": ACCEPT, "b": ACCEPT}, check)
        assert store.input_responses(ref) == {}
        assert store.apply_input_responses(ref, {"a": ACCEPT, "b": ACCEPT}) is not None
        assert view(store, ref).phase == "queued"

    def test_the_check_is_not_asked_about_what_is_ignored(self, store: TaskStore) -> None:
        def check(key: str, question: dict[str, Json], answer: Json) -> None:
            raise Refusal(key)

        ref = create(store).ref
        assert store.apply_input_responses(ref, {"ghost": 5}, check) == AppliedResponses((), ("ghost",), ())

    def test_an_answer_beyond_the_limit_stores_nothing(self, store: TaskStore, heard: Heard) -> None:
        ref = parked(store, TWO)
        large = {"action": "accept", "content": {"text": "hunter2" * 300}}
        with configured(limits={"PAYLOAD_BYTES": 1024}):
            with unchanged(store, ref, heard), pytest.raises(RetentionLimitExceeded) as refused:
                store.apply_input_responses(ref, {"a": ACCEPT, "b": large})
            assert "hunter2" not in str(refused.value)
            assert store.apply_input_responses(ref, {"ghost": large, "a": ACCEPT}) is not None
        assert store.input_responses(ref) == {"a": ACCEPT}

    # -- live questions --------------------------------------------------------------------------------------

    def test_the_answer_to_a_live_question_starts_no_leg(self, store: TaskStore, heard: Heard) -> None:
        leg = asked_live(store)
        due_at = view(store, leg.ref).due_at
        heard.forget()
        assert store.apply_input_responses(leg.ref, {"approval": ACCEPT})
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.leg, task.due_at) == ("working", "running", leg.leg, due_at)
        assert heard.rung == []
        assert heard.published == [(leg.ref, task.revision)]
        assert store.claim(leg.ref) is None
        assert store.input_responses(leg.ref) == {"approval": ACCEPT}
        assert store.complete_task(leg.ref, RESULT, leg=leg.leg)

    def test_a_part_of_the_answers_to_live_questions_leaves_the_lease_alone(self, store: TaskStore) -> None:
        leg = asked_live(store, TWO)
        due_at = view(store, leg.ref).due_at
        store.apply_input_responses(leg.ref, {"a": ACCEPT})
        task = view(store, leg.ref)
        assert (task.status, task.phase, task.due_at) == ("input_required", "running", due_at)

    def test_whoever_comes_second_of_answer_and_end_of_leg_queues_the_next(
        self, store: TaskStore, heard: Heard
    ) -> None:
        answered_first = asked_live(store)
        store.apply_input_responses(answered_first.ref, {"approval": ACCEPT})
        ended_first = asked_live(store)
        store.end_leg(ended_first.ref, ended_first.leg)
        assert view(store, ended_first.ref).phase == "parked"
        heard.forget()
        assert store.end_leg(answered_first.ref, answered_first.leg)
        assert store.apply_input_responses(ended_first.ref, {"approval": ACCEPT})
        assert heard.rung == [answered_first.ref, ended_first.ref]
        for ref in heard.rung:
            assert (view(store, ref).status, view(store, ref).phase) == ("working", "queued")

    # -- what later legs see ---------------------------------------------------------------------------------

    def test_answers_of_all_rounds_stay_until_the_end_and_after_it(self, store: TaskStore) -> None:
        ref = parked(store, {"first": question("1?")})
        store.apply_input_responses(ref, {"first": ACCEPT})
        leg = claim(store, ref)
        store.require_input(ref, {"second": question("2?")}, leg=leg.leg)
        assert store.input_responses(ref) == {"first": ACCEPT}
        store.apply_input_responses(ref, {"second": DECLINE})
        leg = claim(store, ref)
        context = store.resume_context(ref, leg.leg)
        assert context is not None
        both = {"first": ACCEPT, "second": DECLINE}
        assert {key: item.answer for key, item in context.answers.items()} == both
        store.complete_task(ref, RESULT, leg=leg.leg)
        assert store.input_responses(ref) == both

    def test_a_later_leg_works_with_what_the_first_one_had(self, store: TaskStore) -> None:
        context = {"capabilities": {"elicitation": {}}, "meta": {"k": "v"}, "locale": "de"}
        created = create(store, "scan", {"host": "h1"}, owner=ALICE, context=context, max_attempts=3, meta={"m": 1})
        seen = []
        for asked in ("one", "two", None):
            leg = claim(store, created.ref)
            found = store.resume_context(created.ref, leg.leg)
            assert found is not None
            assert (found.leg, found.attempts, found.max_attempts) == (leg.leg, 1, 3)
            seen.append((found.ref, found.tool, found.arguments, found.owner_key, found.owner_label, found.context))
            assert (found.capabilities, found.meta) == ({"elicitation": {}}, {"k": "v"})
            assert found.token is created.token
            if asked is not None:
                store.require_input(created.ref, {asked: question(asked)}, leg=leg.leg)
                store.apply_input_responses(created.ref, {asked: ACCEPT})
        assert seen == [(created.ref, "scan", {"host": "h1"}, ALICE.key, "Alice", context)] * 3

    def test_what_a_handler_does_to_its_arguments_does_not_reach_the_next_leg(self, store: TaskStore) -> None:
        given = {"hosts": ["h1"]}
        created = create(store, arguments=given, context={"meta": {"k": "v"}})
        given["hosts"].append("h2")
        for _ in range(2):
            found = store.resume_context(created.ref)
            assert found is not None
            assert (found.arguments, found.meta) == ({"hosts": ["h1"]}, {"k": "v"})
            found.arguments["hosts"].append("h3")
            found.context["meta"]["k"] = "changed"

    def test_a_context_is_only_for_the_running_leg_or_for_server_code_while_the_task_lives(
        self, store: TaskStore, advance: Advance
    ) -> None:
        created = create(store)
        assert store.resume_context(created.ref) is not None
        assert store.resume_context(created.ref, 0) is None
        assert store.resume_context(created.ref, 1) is None
        leg = claim(store, created.ref)
        assert store.resume_context(created.ref, leg.leg) is not None
        assert store.resume_context(created.ref, leg.leg + 1) is None
        store.require_input(created.ref, {"approval": question()}, leg=leg.leg)
        assert store.resume_context(created.ref, leg.leg) is None
        assert store.resume_context(created.ref) is not None
        store.cancel_task(created.ref)
        assert store.resume_context(created.ref) is None
        expired = claimed(store, ttl_ms=100_000)
        advance(expired.ref, 101)
        assert store.resume_context(expired.ref, expired.leg) is None
