"""The OpenAPI document: valid without a warning, with fixed names, and true of what is answered."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from drf_spectacular.management.commands.spectacular import Command
from jsonschema import Draft4Validator

import mcp_tasks.contrib.spectacular  # noqa: F401 - describes our views
from mcp_tasks.models import Process
from mcp_tasks.transports.rest.problems import STATUSES
from mcp_tasks.transports.rest.urls import urlpatterns

from .api import Answer, Api
from .conftest import Tasks

pytestmark = pytest.mark.django_db

IDS = {
    "tasks_retrieve": ("GET", "/api/tasks/{ref}/"),
    "tasks_answer": ("POST", "/api/tasks/{ref}/answers/"),
    "tasks_cancel": ("POST", "/api/tasks/{ref}/cancel/"),
    "operator_tasks_list": ("GET", "/api/operator/tasks/"),
    "operator_tasks_retrieve": ("GET", "/api/operator/tasks/{ref}/"),
    "operator_tasks_destroy": ("DELETE", "/api/operator/tasks/{ref}/"),
    "operator_tasks_events_list": ("GET", "/api/operator/tasks/{ref}/events/"),
    "operator_tasks_traceback": ("GET", "/api/operator/tasks/{ref}/traceback/"),
    "operator_tasks_payload_arguments": ("GET", "/api/operator/tasks/{ref}/payload/arguments/"),
    "operator_tasks_payload_result": ("GET", "/api/operator/tasks/{ref}/payload/result/"),
    "operator_tasks_payload_error": ("GET", "/api/operator/tasks/{ref}/payload/error/"),
    "operator_tasks_payload_inputs": ("GET", "/api/operator/tasks/{ref}/payload/inputs/"),
    "operator_tasks_cancel": ("POST", "/api/operator/tasks/{ref}/cancel/"),
    "operator_tasks_fail": ("POST", "/api/operator/tasks/{ref}/fail/"),
    "operator_tasks_extend": ("POST", "/api/operator/tasks/{ref}/extend/"),
    "operator_tasks_requeue": ("POST", "/api/operator/tasks/{ref}/requeue/"),
    "operator_tasks_dismiss_inputs": ("POST", "/api/operator/tasks/{ref}/dismiss-inputs/"),
    "operator_lookup": ("POST", "/api/operator/lookup/"),
    "operator_bulk_cancel": ("POST", "/api/operator/bulk-cancel/"),
    "operator_overview": ("GET", "/api/operator/overview/"),
    "operator_processes_list": ("GET", "/api/operator/processes/"),
}


@pytest.fixture
def document(settings: Any, tmp_path: Path) -> Any:
    """What ``manage.py spectacular --validate --fail-on-warn`` writes; it raises on any warning."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "drf_spectacular"]
    file = tmp_path / "schema.json"
    call_command(Command(), file=str(file), format="openapi-json", validate=True, fail_on_warn=True)
    return json.loads(file.read_text())


def operations(document: Any) -> dict[str, tuple[str, str, Any]]:
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        if path.startswith("/api/")
        for method, operation in methods.items()
    }


def test_it_is_valid_and_its_names_are_fixed(document: Any) -> None:
    found = operations(document)
    assert {name: it[:2] for name, it in found.items()} == IDS
    for name, (_, path, operation) in found.items():
        assert operation["tags"] == ["operator" if path.startswith("/api/operator/") else "tasks"], name
        assert operation["summary"]


def test_every_operation_says_what_it_takes_and_how_it_refuses(document: Any) -> None:
    for name, (method, path, operation) in operations(document).items():
        statuses = {int(status) for status in operation["responses"]}
        assert {401, 403, 429} <= statuses, name
        assert ("{ref}" in path) == (404 in statuses) or name == "operator_lookup"
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"]
                assert all(code in STATUSES for code in response["description"].replace("`", "").split(", "))
        names = {(it["in"], it["name"]) for it in operation.get("parameters", [])}
        assert (("header", "Mcp-Task-Id") in names) == path.startswith("/api/tasks/"), name
        assert ("requestBody" in operation) == (method == "POST" and name != "tasks_cancel"), name


def test_the_parameters_are_those_that_are_taken(document: Any) -> None:
    views = {view for it in urlpatterns for view in [it.callback.view_class]}
    known = {it.id: {parameter.name for parameter in it.query} for view in views for it in view.operations.values()}
    for name, (_, _, operation) in operations(document).items():
        documented = {it["name"] for it in operation.get("parameters", []) if it["in"] == "query"}
        assert documented == known[name], name


def test_credentials_are_those_of_the_settings(document: Any) -> None:
    found = operations(document)
    assert found["tasks_retrieve"][2]["security"] == [{"bearerAuth": []}, {"cookieAuth": []}]
    assert found["operator_tasks_list"][2]["security"] == [{"tokenAuth": []}, {"cookieAuth": []}]
    assert document["components"]["securitySchemes"]["bearerAuth"] == {"type": "http", "scheme": "bearer"}


def plain(schema: Any, document: Any) -> Any:
    """JSON Schema of an OpenAPI 3.0 schema: no reference, no ``nullable``, no unknown member."""
    if isinstance(schema, list):
        return [plain(part, document) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return plain(document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], document)
    found = {name: plain(part, document) for name, part in schema.items() if name != "nullable"}
    if "properties" in found:
        found["additionalProperties"] = False
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") else found


@pytest.fixture
def checked(document: Any) -> Callable[[str, Answer], None]:
    def check(name: str, answer: Answer) -> None:
        content = operations(document)[name][2]["responses"][str(answer.status)]["content"]
        [(media_type, described)] = content.items()
        assert answer.headers["content-type"] == media_type
        Draft4Validator(plain(described["schema"], document)).validate(answer.json)

    return check


def test_answers_are_as_described(
    root: Api, tasks: Tasks, checked: Callable[[str, Answer], None], configure: Callable[..., None]
) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})
    refs = [tasks.queued(owner=None), tasks.running(), tasks.stalled(), tasks.parked(), tasks.completed()]
    refs += [tasks.cancelled(), tasks.expired()]
    tasks.store.set_status(refs[1], "halfway", done=1, total=2, leg=1)
    tasks.store.stamp(tasks.store.expire())
    assert Process.objects.exists()
    checked("operator_tasks_list", root.get("operator/tasks/", limit=3))
    checked("operator_tasks_list", root.get("operator/tasks/", state="x"))
    for ref in refs:
        checked("operator_tasks_retrieve", root.get(f"operator/tasks/{ref}/"))
        checked("operator_tasks_events_list", root.get(f"operator/tasks/{ref}/events/", limit=1))
        checked("operator_tasks_payload_arguments", root.get(f"operator/tasks/{ref}/payload/arguments/"))
    checked("operator_tasks_payload_inputs", root.get(f"operator/tasks/{refs[3]}/payload/inputs/"))
    checked("operator_overview", root.get("operator/overview/"))
    checked("operator_processes_list", root.get("operator/processes/"))
    checked("operator_lookup", root.post("operator/lookup/", {"task_id": tasks.made().task_id}))
    checked("operator_tasks_requeue", root.do("requeue", refs[2]))
    checked("operator_tasks_dismiss_inputs", root.do("dismiss-inputs", refs[3]))
    checked("operator_tasks_extend", root.do("extend", refs[0], expires_at="no time"))
    checked("operator_tasks_retrieve", Api().get(f"operator/tasks/{refs[0]}/"))
    order = {"filter": {"state": "live"}, "reason": "for a test"}
    checked("operator_bulk_cancel", root.post("operator/bulk-cancel/", order))
    checked("operator_tasks_traceback", root.get(f"operator/tasks/{refs[0]}/traceback/"))
