"""
What must hold after every step, whatever the steps were: one function for each promise, named as a sentence.

They look at the rows themselves, and at what the store showed of them in the step before.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp_tasks.lifecycle import (
    ANSWERED,
    DONE,
    EXPIRED,
    LIVE,
    OUTSTANDING,
    PAIRS,
    PARKED,
)
from mcp_tasks.models import Task, TaskEvent, TaskInput, TaskStep
from mcp_tasks.protocol.codec import Json, dumps, loads
from mcp_tasks.protocol.tasks import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, TERMINAL, WireTask
from mcp_tasks.store.snapshots import to_snapshot, to_wire
from mcp_tasks.tools.steps import RecordedStep

from .side_by_side import TABLES, SideBySide

Row = dict[str, Any]

#: The columns that an outcome freezes, and those of them that outlive the payload.
_FROZEN = ("status", "result_json", "error_json", "status_message", "finished_at", "updated_at")
_KEPT = ("status", "finished_at", "updated_at")
#: Any of them ends a leg or the wait after it.
_BETWEEN_LEGS = {"answered", "ask_timeout", "leg_ended", "leg_lost", "released", "retried"}


@dataclass(slots=True)
class Seen:
    """One task in one step. Instants are counted from where they began, so that travelling changes none."""

    row: Row | None
    wire: WireTask | None
    inputs: dict[str, Row]

    @property
    def is_over(self) -> bool:
        """Past its ttl: a tombstone, or not yet swept."""
        return self.row is not None and (self.row["phase"] == EXPIRED or self.row["is_past"])


@dataclass(slots=True)
class Promises:
    """What was acknowledged for one task, and must hold from then on."""

    answers: dict[str, Json] = field(default_factory=dict)
    legs: Counter[int] = field(default_factory=Counter)
    steps: dict[str, RecordedStep] = field(default_factory=dict)
    cancelled: bool = False
    discarded: bool = False


@dataclass(slots=True)
class Step:
    """The database before and after one step, and all promises so far."""

    stores: SideBySide
    promises: dict[int, Promises]
    before: dict[int, Seen]
    after: dict[int, Seen]
    #: Whether the step reclaims: only that may touch a task after its end.
    reclaims: bool
    cap: int

    def pairs(self) -> list[tuple[int, Seen, Seen]]:
        """Each task that was there before, with both of its states."""
        return [(number, self.before[number], after) for number, after in self.after.items() if number in self.before]

    def rows(self) -> list[tuple[int, Row]]:
        """Each task that has a row now."""
        return [(number, seen.row) for number, seen in self.after.items() if seen.row is not None]


def look(stores: SideBySide) -> dict[int, Seen]:
    """Every task as it is now; compares it with the one in memory on the way."""
    now = datetime.now(UTC)
    rows = {row["ref"]: row for row in Task.objects.values()}
    inputs: dict[Any, dict[str, Row]] = {}
    for item in TaskInput.objects.values("task_id", "key", "state", "request_hash", "answer_json", "asked_leg"):
        inputs.setdefault(item["task_id"], {})[item["key"]] = item
    seen = {}
    for pair in stores.pairs:
        row = rows.get(pair.database.ref)
        wire = None
        if row is not None:
            is_past = row["expires_at"] is not None and row["expires_at"] <= now
            snapshot = None if is_past or row["phase"] == EXPIRED else to_snapshot(row)
            stores.compare(pair, snapshot)
            row = {name: _from_the_start(value, stores.travelled) for name, value in row.items()}
            wire = None if snapshot is None else to_wire(to_snapshot(row))
            row["is_past"] = is_past
        else:
            stores.compare(pair, None)
        seen[pair.number] = Seen(row, wire, inputs.get(pair.database.ref, {}))
    return seen


def _from_the_start(value: Any, travelled: timedelta) -> Any:
    return value + travelled if isinstance(value, datetime) else value


# -- after every step --------------------------------------------------------------------------------------------


def only_legal_pairs_of_phase_and_status_exist(step: Step) -> None:
    for number, row in step.rows():
        assert row["status"] in PAIRS[row["phase"]], f"task {number}: {row['phase']}/{row['status']}"


def an_outcome_never_changes(step: Step) -> None:
    for number, before, after in step.pairs():
        if before.row is None or after.row is None or before.row["status"] not in TERMINAL:
            continue
        for name in _KEPT if after.row["phase"] == EXPIRED else _FROZEN:
            assert after.row[name] == before.row[name], f"task {number}: {name} changed after the outcome"


def a_revision_tells_of_every_change_of_a_view_and_of_nothing_else(step: Step) -> None:
    for number, before, after in step.pairs():
        if before.row is None or after.row is None:
            continue
        assert after.row["revision"] >= before.row["revision"], f"task {number}: the revision fell"
        if before.wire is not None and after.wire is not None:
            moved, differs = after.row["revision"] != before.row["revision"], after.wire != before.wire
            assert moved == differs, f"task {number}: {after.wire}"


def only_a_visible_change_of_a_live_task_updates_it(step: Step) -> None:
    for number, before, after in step.pairs():
        if before.row is None or after.row is None:
            continue
        earlier, later = before.row["updated_at"], after.row["updated_at"]
        assert later >= earlier >= before.row["created_at"], f"task {number}: updated_at fell"
        is_visible = after.row["revision"] != before.row["revision"] and after.row["phase"] != EXPIRED
        if not is_visible or before.row["status"] in TERMINAL:
            assert later == earlier, f"task {number}: updated_at moved"


def every_leg_is_handed_out_once_and_numbers_only_rise(step: Step) -> None:
    for number, before, after in step.pairs():
        if before.row is not None and after.row is not None:
            assert after.row["leg"] >= before.row["leg"], f"task {number}: the leg fell"
        handed_out = step.promises[number].legs
        assert all(times == 1 for times in handed_out.values()), f"task {number}: {handed_out}"


def a_leg_is_tried_no_oftener_than_it_may(step: Step) -> None:
    for number, row in step.rows():
        assert 0 <= row["attempts"] <= row["max_attempts"], f"task {number}: {row['attempts']} attempts"


def an_accepted_answer_stays_as_it_was_sent(step: Step) -> None:
    for number, row in step.rows():
        if row["phase"] == EXPIRED:
            continue
        for key, answer in step.promises[number].answers.items():
            item = step.after[number].inputs[key]
            assert (item["state"], item["answer_json"]) == (ANSWERED, dumps(answer)), f"task {number}: {item}"


def a_recorded_step_stays_as_it_was_until_the_payload_goes(step: Step) -> None:
    rows = TaskStep.objects.values_list("task_id", "name", "args_hash", "result_json")
    stored = {(ref, name): RecordedStep(args_hash, text) for ref, name, args_hash, text in rows}
    for pair in step.stores.pairs:
        row = step.after[pair.number].row
        is_kept = row is not None and row["phase"] != EXPIRED
        promised = step.promises[pair.number].steps if is_kept else {}
        found = {name: value for (ref, name), value in stored.items() if ref == pair.database.ref}
        assert found == promised, f"task {pair.number}: {found}"


def a_key_has_one_question_and_leaves_the_open_ones_once(step: Step) -> None:
    for number, before, after in step.pairs():
        for key, item in after.inputs.items():
            was = before.inputs.get(key)
            if was is None:
                continue
            assert item["request_hash"] == was["request_hash"], f"task {number}: another question under {key}"
            if was["state"] != OUTSTANDING:
                assert item["state"] == was["state"], f"task {number}: {key} became {item['state']} again"


def a_task_waits_for_input_exactly_while_it_has_open_questions(step: Step) -> None:
    for number, row in step.rows():
        if row["phase"] == EXPIRED:
            assert step.after[number].inputs == {}, f"task {number}: a tombstone has questions"
            continue
        outstanding = {key for key, item in step.after[number].inputs.items() if item["state"] == OUTSTANDING}
        asked = set() if row["asks_json"] is None else set(loads(row["asks_json"]))
        assert asked == outstanding, f"task {number}: asks {asked}, open rows {outstanding}"
        assert bool(asked) == (row["status"] == INPUT_REQUIRED), f"task {number}: {row['status']} with {asked}"


def completed_tasks_have_a_result_and_failed_ones_an_error(step: Step) -> None:
    for number, row in step.rows():
        if row["phase"] != EXPIRED:
            assert (row["status"] == COMPLETED) == (row["result_json"] is not None), f"task {number}"
            assert (row["status"] == FAILED) == (row["error_json"] is not None), f"task {number}"


def an_acknowledged_cancel_is_never_taken_back(step: Step) -> None:
    for number, row in step.rows():
        if step.promises[number].cancelled:
            assert row["status"] == CANCELLED, f"task {number}: {row['status']} after its cancel"


def what_is_absent_stays_absent_and_nothing_is_so_before_its_end(step: Step) -> None:
    for number, before, after in step.pairs():
        if before.wire is None:
            assert after.wire is None, f"task {number} came back"
        if after.wire is None and after.row is not None:
            assert after.is_over, f"task {number} is absent before its end"
        if before.row is not None and after.row is None and not step.promises[number].discarded:
            was = before.row
            assert before.is_over or (was["phase"] == DONE and was["expires_at"] is None), f"task {number} is gone"


def nothing_but_the_janitor_touches_a_task_after_its_end(step: Step) -> None:
    if step.reclaims:
        return
    for number, before, after in step.pairs():
        if before.is_over:
            # Its key may be used anew, and is taken from it then.
            assert after.row is not None, f"task {number} is gone"
            changed = {name for name, value in after.row.items() if before.row and before.row[name] != value}
            assert changed <= {"idem_hash"}, f"task {number}: {changed} changed after its end"


def an_owner_has_no_more_live_tasks_than_the_cap(step: Step) -> None:
    live = Counter(row["owner_key"] for _, row in step.rows() if row["phase"] in LIVE and not row["is_past"])
    assert all(count <= step.cap for count in live.values()), f"{live}"


def told_revisions_only_rise(step: Step) -> None:
    for number, revisions in step.stores.published.items():
        assert revisions == sorted(set(revisions)), f"task {number}: {revisions}"


def nothing_is_left_of_a_row_that_is_gone(step: Step) -> None:
    if all(before.row is None or after.row is not None for _, before, after in step.pairs()):
        return
    refs = set(Task.objects.values_list("pk", flat=True))
    for satellite in (TaskEvent, TaskInput, TaskStep):
        assert set(satellite.objects.values_list("task_id", flat=True)) <= refs, satellite.__name__


INVARIANTS: tuple[Callable[[Step], None], ...] = (
    only_legal_pairs_of_phase_and_status_exist,
    an_outcome_never_changes,
    a_revision_tells_of_every_change_of_a_view_and_of_nothing_else,
    only_a_visible_change_of_a_live_task_updates_it,
    every_leg_is_handed_out_once_and_numbers_only_rise,
    a_leg_is_tried_no_oftener_than_it_may,
    an_accepted_answer_stays_as_it_was_sent,
    a_recorded_step_stays_as_it_was_until_the_payload_goes,
    a_key_has_one_question_and_leaves_the_open_ones_once,
    a_task_waits_for_input_exactly_while_it_has_open_questions,
    completed_tasks_have_a_result_and_failed_ones_an_error,
    an_acknowledged_cancel_is_never_taken_back,
    what_is_absent_stays_absent_and_nothing_is_so_before_its_end,
    nothing_but_the_janitor_touches_a_task_after_its_end,
    an_owner_has_no_more_live_tasks_than_the_cap,
    told_revisions_only_rise,
    nothing_is_left_of_a_row_that_is_gone,
)


# -- at the end --------------------------------------------------------------------------------------------------


def every_task_has_ended_or_waits_for_a_human(step: Step) -> None:
    for number, row in step.rows():
        has_ended = row["phase"] in (DONE, EXPIRED) or row["is_past"]
        waits = (row["phase"], row["due_at"]) == (PARKED, None)
        assert has_ended or waits, f"task {number} is stuck: {row['phase']}/{row['status']}"


def a_leg_follows_another_only_when_that_one_is_over(step: Step) -> None:
    for pair in step.stores.pairs:
        over = True
        kinds = TaskEvent.objects.filter(task_id=pair.database.ref).order_by("id").values_list("kind", flat=True)
        for kind in kinds:
            if kind == "claimed":
                assert over, f"{pair}: {list(kinds)}"
                over = False
            over = over or kind in _BETWEEN_LEGS


def no_id_of_a_client_is_stored_anywhere(step: Step) -> None:
    stored = repr([list(table.objects.values_list()) for table in TABLES])
    for pair in step.stores.pairs:
        assert pair.database.task_id not in stored, f"{pair} can be read from the database"
