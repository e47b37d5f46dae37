"""One task: facts and sentence, timeline, payloads that are masked, traceback."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import CreatedTask
from tests.store.statements import counted

from .api import Api, at
from .conftest import ALICE, Tasks, row, user

pytestmark = pytest.mark.django_db

SECRET_ARGUMENTS = {"text": "for everybody", "api_key": "sk-1", "card": {"number": 4111, "holder": "A"}, "n": 10**20}


# -- detail -------------------------------------------------------------------------------------------------------


def test_the_detail_has_the_facts_the_sentence_and_what_may_be_done(staff: Callable[..., Api], tasks: Tasks) -> None:
    api = staff("view_task", "cancel_task", "fail_task", "requeue_task")
    ref = tasks.stalled()
    task = row(ref)
    found = api.get(f"operator/tasks/{ref}/").json
    listed = api.get("operator/tasks/").json["results"][0]
    assert {name: found[name] for name in listed} == listed
    assert found["state"] == "stalled"
    assert found["why"].startswith("web-1:7 let its lease lapse ")
    assert found["verbs"] == ["requeue", "fail", "cancel"]
    assert found["owner"] == {"key": ALICE.key, "label": "alice@example.com"}
    assert (found["method"], found["leg"], found["due_at"]) == ("tools/call", 1, at(task.due_at))
    assert set(found) - set(listed) == {
        *("why", "verbs", "method", "leg", "priority", "phase_at", "not_before", "due_at", "cancel_requested_at"),
        *("ttl_ms", "poll_interval_ms", "queue_ms", "run_ms", "wait_ms", "payload_bytes", "trace_context"),
    }


def test_a_finished_task_needs_no_sentence_and_offers_only_its_deletion(root: Api, tasks: Tasks) -> None:
    found = root.get(f"operator/tasks/{tasks.completed()}/").json
    assert (found["state"], found["why"], found["verbs"]) == ("completed", None, ["delete"])


def test_verbs_have_the_names_of_their_addresses(root: Api, tasks: Tasks, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})
    found = root.get(f"operator/tasks/{tasks.parked()}/").json
    assert found["verbs"] == ["extend", "dismiss-inputs", "fail", "cancel"]
    assert found["why"].startswith("It has waited for its client for ")


def test_what_is_left_of_an_expired_task_is_shown(root: Api, tasks: Tasks) -> None:
    ref = tasks.expired()
    found = root.get(f"operator/tasks/{ref}/").json
    assert (found["state"], found["why"], found["verbs"]) == ("expired", None, [])
    assert root.get(f"operator/tasks/{ref}/payload/arguments/").said == (404, "not_found")


def test_a_detail_takes_eight_statements_at_most_and_reads_no_payload(tasks: Tasks) -> None:
    client = Client()
    client.force_login(user("clara", is_superuser=True))
    api = Api(client=client)
    for ref in (tasks.queued(), tasks.running(), tasks.parked(), tasks.completed()):
        with counted() as statements:
            assert api.get(f"operator/tasks/{ref}/").status == 200
        assert len(statements) <= 8
        assert not any("_json" in text or "traceback" in text for text in statements)


# -- timeline -----------------------------------------------------------------------------------------------------


def test_the_timeline_begins_with_the_oldest_entry(root: Api, tasks: Tasks) -> None:
    ref = tasks.running()
    root.do("cancel", ref, reason="it runs away")
    found = root.get(f"operator/tasks/{ref}/events/").json
    assert found["next_cursor"] is None
    assert [event["kind"] for event in found["results"]] == ["created", "claimed", "cancelled"]
    last = TaskEvent.objects.filter(task_id=ref).order_by("id").last()
    assert last is not None
    assert found["results"][-1] == {
        "kind": "cancelled",
        "at": at(last.at),
        "actor": last.actor,
        "leg": None,
        "revision": last.revision,
        "detail": {"reason": "it runs away"},
    }


def test_the_timeline_comes_in_pages_while_it_grows(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    model = TaskEvent.objects.get(task_id=ref)
    for number in range(6):
        TaskEvent.objects.create(
            task_id=ref, revision=number + 2, kind="ttl", actor="x", at=model.at, detail="no JSON" if number else None
        )
    path, found, query = f"operator/tasks/{ref}/events/", [], {"limit": 3}
    while True:
        answer = root.get(path, **query)
        found += [event["revision"] for event in answer.json["results"]]
        if len(found) == 3:
            TaskEvent.objects.create(task_id=ref, revision=8, kind="ttl", actor="x", at=model.at)
        if answer.json["next_cursor"] is None:
            break
        query = {"limit": 3, "cursor": answer.json["next_cursor"]}
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]
    for cursor in ("x", "", "MQ.", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ"):
        assert root.get(path, cursor=cursor).said == (400, "invalid_filter")
    assert root.get(path, cursor=query["cursor"], kind="ttl").fields == ["kind"]


# -- payloads -----------------------------------------------------------------------------------------------------


@pytest.fixture
def full(tasks: Tasks, configure: Callable[..., None]) -> CreatedTask:
    """A task with everything that can be secret, failed."""
    made = tasks.made(arguments=SECRET_ARGUMENTS)
    tasks.store.claim(made.ref)
    form = {
        "type": "object",
        "properties": {"user": {"type": "string"}, "entry": {"type": "string", "format": "password"}},
    }
    params = {"mode": "form", "message": "Sign in, your token is in the mail", "requestedSchema": form}
    tasks.store.require_input(made.ref, {"login": {"method": "elicitation/create", "params": params}}, leg=1)
    content = {"user": "anna", "entry": "hunter2"}
    tasks.store.apply_input_responses(made.ref, {"login": {"action": "accept", "content": content}})
    tasks.store.claim(made.ref)
    error = McpError(-32000, "no luck", {"password": "hunter2", "hint": 1e300})
    tasks.store.fail_task(made.ref, error, leg=2, traceback="Traceback: it was the database")
    return made


def test_payloads_are_exact_but_for_what_is_masked(root: Api, full: CreatedTask) -> None:
    path = f"operator/tasks/{full.ref}/payload"
    answer = root.get(f"{path}/arguments/")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-disposition"] == "attachment"
    assert b"sk-1" not in answer.body
    assert b'"text":"for everybody"' in answer.body
    assert b'"n":100000000000000000000' in answer.body
    assert answer.json["card"] == SECRET_ARGUMENTS["card"]
    error = root.get(f"{path}/error/")
    assert (error.json["code"], error.json["data"]["hint"]) == (-32000, 1e300)
    assert b"hunter2" not in error.body
    inputs = root.get(f"{path}/inputs/")
    assert b"hunter2" not in inputs.body
    asked = inputs.json["login"]
    assert (asked["state"], asked["answer"]["content"]["user"]) == ("answered", "anna")
    assert asked["request"]["params"]["requestedSchema"]["properties"]["user"] == {"type": "string"}
    assert asked["askedAt"] <= asked["answeredAt"]
    assert root.get(f"{path}/result/").said == (404, "not_found")


def test_an_open_question_has_no_answer(root: Api, tasks: Tasks) -> None:
    found = root.get(f"operator/tasks/{tasks.parked('a', 'b')}/payload/inputs/").json
    assert list(found) == ["a", "b"]
    assert set(found["a"]) == {"state", "askedAt", "answeredAt", "request"}
    assert found["a"]["answeredAt"] is None


def test_a_task_that_never_asked_has_no_questions(root: Api, tasks: Tasks) -> None:
    assert root.get(f"operator/tasks/{tasks.queued()}/payload/inputs/").said == (404, "not_found")


def test_the_project_says_what_else_is_masked(root: Api, full: CreatedTask, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"SENSITIVE_KEYS": ["holder"]})
    answer = root.get(f"operator/tasks/{full.ref}/payload/arguments/")
    assert answer.json["card"]["number"] == 4111
    assert answer.json["card"]["holder"] != "A"


def test_the_policy_says_what_else_is_masked(root: Api, full: CreatedTask, policy: None) -> None:
    answer = root.get(f"operator/tasks/{full.ref}/payload/arguments/")
    assert answer.json["card"]["number"] != 4111
    assert answer.json["card"]["holder"] == "A"
    assert b"sk-1" not in answer.body


def test_unmasked_is_logged_without_what_it_showed(
    root: Api, full: CreatedTask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcp_tasks.operator")
    answer = root.get(f"operator/tasks/{full.ref}/payload/arguments/", unmasked=1)
    assert answer.json == SECRET_ARGUMENTS
    assert b"hunter2" in root.get(f"operator/tasks/{full.ref}/payload/inputs/", unmasked=1).body
    records: list[Any] = [record for record in caplog.records if record.name == "mcp_tasks.operator"]
    assert [(it.event, it.what, it.ref) for it in records] == [
        ("operator_download_unmasked", "arguments", str(full.ref)),
        ("operator_download_unmasked", "inputs", str(full.ref)),
    ]
    assert "sk-1" not in str([vars(record) for record in records])


@pytest.mark.parametrize("value", ["0", "true", "", "2"])
def test_unmasked_is_asked_for_in_one_way(root: Api, full: CreatedTask, value: str) -> None:
    answer = root.get(f"operator/tasks/{full.ref}/payload/arguments/", unmasked=value)
    assert answer.said == (400, "invalid_filter")


def test_without_the_permission_no_byte_of_a_payload_is_said(staff: Callable[..., Api], full: CreatedTask) -> None:
    api = staff("view_task", "cancel_task", "delete_task")
    ref = full.ref
    paths = ["operator/tasks/", f"operator/tasks/{ref}/", f"operator/tasks/{ref}/events/", "operator/overview/"]
    paths += [f"operator/tasks/{ref}/payload/{what}/" for what in ("arguments", "result", "error", "inputs")]
    for path in [*paths, f"operator/tasks/{ref}/traceback/"]:
        body = api.get(path).body
        for secret in (b"for everybody", b"sk-1", b"hunter2", b"anna", b"Sign in", b"database"):
            assert secret not in body, path


def test_what_is_no_json_is_not_shown(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    Task.objects.filter(pk=ref).update(arguments_json='{"password": hunter2')
    answer = root.get(f"operator/tasks/{ref}/payload/arguments/")
    assert answer.said == (500, "internal_error")
    assert b"hunter2" not in answer.body


# -- traceback ----------------------------------------------------------------------------------------------------


def test_the_traceback_has_its_own_permission(staff: Callable[..., Api], full: CreatedTask, tasks: Tasks) -> None:
    api = staff("view_task", "view_task_traceback")
    found = api.get(f"operator/tasks/{full.ref}/traceback/").json
    assert found == {"traceback": "Traceback: it was the database"}
    assert api.get(f"operator/tasks/{tasks.completed()}/traceback/").said == (404, "not_found")
