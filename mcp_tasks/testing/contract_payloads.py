"""The contract of payloads: what comes out is what went in, letter by letter, or it was refused."""

import math
from typing import Any

import pytest

from ..lifecycle import OWNER_LABEL_LENGTH, STATUS_MESSAGE_LENGTH
from ..protocol.codec import MAX_DEPTH, Json, JsonError, dumps
from ..protocol.errors import McpError
from ..store.base import TaskStore
from ..store.types import Owner
from .contract_support import (
    ContractBase,
    Heard,
    claimed,
    create,
    parked,
    question,
    snapshot,
    unchanged,
    view,
)


def _nested(levels: int) -> dict[str, Json]:
    """An object of so many levels."""
    value: Json = 0
    for _ in range(levels - 1):
        value = [value]
    return {"v": value}


#: What JSON columns of one database or another lose, refuse or change.
EXACT: dict[str, dict[str, Json]] = {
    "empty object": {},
    "empty members": {"object": {}, "array": [], "string": "", "null": None},
    "nul": {"v": "a\x00b", "k\x00": 1},
    "lone surrogate": {"v": "\ud800", "\udfff": ["x\udc00y"]},
    "surrogate pair halves": {"v": "\ude00\ud83d"},
    "emoji": {"v": "😀", "👩‍👩‍👧": "🏳️‍🌈"},
    "combining accent": {"composed": "é", "decomposed": "e\u0301"},
    "line separators": {"v": "\u2028\u2029\x85\r\n\t"},
    "escapes": {"v": "\\u0000 \\ \" / ' ` %s {} ${x} \x1f \x7f"},
    "markup": {"v": "</script><script>alert(1)</script>&amp;"},
    "key order": {"b": 1, "a": 2, "aa": 3, "": 4, "B": 5},
    "beyond doubles": {"v": [2**53 + 1, -(2**63) - 1, 2**64]},
    "huge integer": {"v": 10**400},
    "floats": {"v": [1e16, 1e308, -0.0, 0.1, 5e-324, 1.0, 1e-7]},
    "booleans and numbers": {"v": [True, 1, 1.0, False, 0, None, "1", "null"]},
    "deep": _nested(MAX_DEPTH - 4),  # room for what the tests wrap around it
    "large": {"v": "x" * 1_000_000},
    "looks like another type": {"v": ["2026-07-28T12:00:00Z", "0x10", "NaN", "1e5", "[]"]},
}
exact = pytest.mark.parametrize("value", EXACT.values(), ids=EXACT.keys())

UNSTORABLE: dict[str, Any] = {
    "nan": {"v": math.nan},
    "infinity": {"v": [math.inf]},
    "too deep": _nested(MAX_DEPTH + 1),
    "no json": {"v": {1, 2}},
    "bytes": {"v": b"x"},
}


def same(found: Json, value: Json) -> bool:
    """Equal to the letter: order of keys, kind of number, sign of zero."""
    return dumps(found) == dumps(value)


class PayloadsContract(ContractBase):
    """Payloads are kept exactly; plain text is made fit for every database."""

    @exact
    def test_arguments_and_context_come_back_as_they_were(self, store: TaskStore, value: dict[str, Json]) -> None:
        created = create(store, arguments=value, context={"meta": value, "capabilities": value})
        context = store.resume_context(created.ref)
        assert context is not None
        assert same(context.arguments, value)
        assert same(context.context, {"meta": value, "capabilities": value})

    @exact
    def test_a_result_comes_back_as_it_was(self, store: TaskStore, value: dict[str, Json]) -> None:
        leg = claimed(store)
        assert store.complete_task(leg.ref, value, leg=leg.leg)
        found = snapshot(store, leg.ref)
        assert found.task.status == "completed"
        assert found.result_json == dumps(value)
        assert same(found.result, value)

    def test_a_result_may_be_as_deep_as_the_codec_allows(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.complete_task(ref, _nested(MAX_DEPTH))
        assert same(snapshot(store, ref).result, _nested(MAX_DEPTH))

    @exact
    def test_the_data_of_an_error_comes_back_as_it_was(self, store: TaskStore, value: dict[str, Json]) -> None:
        ref = create(store).ref
        assert store.fail_task(ref, McpError(-32000, "broken", value))
        assert same(snapshot(store, ref).error, {"code": -32000, "message": "broken", "data": value})

    @exact
    def test_an_answer_comes_back_as_it_was_in_every_later_round(
        self, store: TaskStore, value: dict[str, Json]
    ) -> None:
        ref = parked(store)
        assert store.apply_input_responses(ref, {"approval": value})
        context = store.resume_context(ref)
        assert context is not None
        assert same(context.answers["approval"].answer, value)
        assert same(store.input_responses(ref), {"approval": value})

    @exact
    def test_a_question_is_shown_as_it_was_asked(self, store: TaskStore, value: dict[str, Json]) -> None:
        asked = {"b": {"method": "roots/list", "params": value}, "a": question()}
        ref = parked(store, asked)
        assert same(store.outstanding_input_requests(ref), asked)
        assert snapshot(store, ref).input_requests_json == dumps(asked)
        store.apply_input_responses(ref, {"a": {"action": "decline"}})
        assert same(store.outstanding_input_requests(ref), {"b": asked["b"]})

    @exact
    def test_meta_comes_back_as_it_was(self, store: TaskStore, value: dict[str, Json]) -> None:
        created = create(store, meta=value)
        assert created.snapshot.meta_json == snapshot(store, created.ref).meta_json == dumps(value)
        assert store.set_task_meta(created.ref, {"v": value})
        assert snapshot(store, created.ref).meta_json == dumps({"v": value})

    @pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE.keys())
    def test_what_has_no_json_form_is_refused_and_changes_nothing(
        self, store: TaskStore, heard: Heard, value: Any
    ) -> None:
        with pytest.raises(JsonError):
            create(store, arguments=value)
        with pytest.raises(JsonError):
            create(store, meta=value)
        assert list(store.list_tasks()) == []
        ref = create(store).ref
        with unchanged(store, ref, heard):
            with pytest.raises(JsonError):
                store.complete_task(ref, value)
            with pytest.raises(JsonError):
                store.fail_task(ref, McpError(-32000, "broken", value))
            with pytest.raises(JsonError):
                store.set_task_meta(ref, value)
            with pytest.raises(JsonError):
                store.require_input(ref, {"ok": {"method": "roots/list", "params": value}})
        store.require_input(ref, {"ok": question()})
        with unchanged(store, ref, heard), pytest.raises(JsonError):
            store.apply_input_responses(ref, {"ok": value})

    @pytest.mark.parametrize("idempotency_key", ["k", "", "a\x00", "\ud800", "é" * 5_000], ids=ascii)
    def test_an_idempotency_key_may_be_any_text(self, store: TaskStore, idempotency_key: str) -> None:
        owner = Owner(("a\x00", "\ud800", None), "A")
        first = create(store, owner=owner, idempotency_key=idempotency_key)
        assert create(store, owner=owner, idempotency_key=idempotency_key).ref == first.ref

    # -- plain text ------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("a\x00b", "a\ufffdb"),
            ("\ud800", "\ufffd"),
            ("", ""),
            (" é😀\u2028 ", " é😀\u2028 "),
            ("😀" * 1200, "😀" * STATUS_MESSAGE_LENGTH),
        ],
        ids=["nul", "surrogate", "empty", "unicode", "long"],
    )
    def test_messages_are_made_fit_for_every_database(self, store: TaskStore, text: str, kept: str) -> None:
        ref = create(store, status_message=text).ref
        assert view(store, ref).status_message == kept
        assert store.set_status(ref, "between")
        assert store.set_status(ref, text)
        assert view(store, ref).status_message == kept
        assert store.set_status(ref, text).why == "unchanged"
        assert store.require_input(ref, {"ok": question()}, "between")
        assert store.require_input(ref, {"ok": question()}, text)
        assert view(store, ref).status_message == kept
        assert store.complete_task(ref, {}, status_message=text)
        assert view(store, ref).status_message == kept
        cancelled, failed = create(store).ref, create(store).ref
        store.cancel_task(cancelled, text)
        assert view(store, cancelled).status_message == kept
        store.fail_task(failed, McpError(-32000, text))
        assert view(store, failed).status_message == kept
        assert snapshot(store, failed).error == {"code": -32000, "message": text}

    def test_a_traceback_may_be_any_text(self, store: TaskStore) -> None:
        ref = create(store).ref
        assert store.fail_task(ref, McpError(-32000, "broken"), traceback="\x00\ud800" + "x" * 100_000)
        assert view(store, ref).status == "failed"

    @pytest.mark.parametrize(
        ("label", "kept"), [("a\x00\ud800", "a\ufffd\ufffd"), ("é" * 300, "é" * OWNER_LABEL_LENGTH)]
    )
    def test_the_label_of_an_owner_is_made_fit_too(self, store: TaskStore, label: str, kept: str) -> None:
        task = create(store, owner=Owner(("a",), label)).snapshot.task
        assert task.owner_label == kept
        assert task.owner_key == Owner(("a",), kept).key
