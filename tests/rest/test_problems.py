"""Every error in one form, whatever went wrong; and the rates of operators."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.http import UnreadablePostError

from mcp_tasks.transports.rest import tasks as task_views
from mcp_tasks.transports.rest.base import ExactParser
from mcp_tasks.transports.rest.problems import STATUSES

from .api import Api
from .conftest import Tasks, row

pytestmark = pytest.mark.django_db

REASON = {"reason": "for a test"}


def test_a_problem_has_the_members_of_the_standard(root: Api) -> None:
    assert root.get("operator/tasks/", stat="x").json == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "invalid_filter",
        "detail": "The query of this address is not valid.",
        "errors": [{"field": "stat", "detail": "There is no such parameter."}],
    }


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "application/json;q=0", "image/*"])
def test_only_json_is_spoken(root: Api, accept: str) -> None:
    assert root.send("GET", "operator/tasks/", headers={"Accept": accept}).status in (200, 406)
    assert root.send("GET", "operator/tasks/", headers={"Accept": "text/html"}).said == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html, */*;q=0.1", "application/*"])
def test_what_admits_json_is_answered(root: Api, accept: str) -> None:
    answer = root.send("GET", "operator/tasks/", headers={"Accept": accept})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_is_not_read(root: Api, tasks: Tasks, content_type: str) -> None:
    ref = tasks.queued()
    answer = root.post(f"operator/tasks/{ref}/cancel/", b"reason=for+a+test", content_type=content_type)
    assert answer.said == (415, "unsupported_media_type")
    assert row(ref).status == "working"


def test_a_body_has_a_limit(root: Api, tasks: Tasks, configure: Callable[..., None]) -> None:
    ref, path = tasks.queued(), "operator/tasks/{}/cancel/"
    configure(LIMITS={"REQUEST_BYTES": 1024})
    body = b'{"reason": "for a test"}'
    assert root.post(path.format(ref), body.ljust(1025)).said == (413, "too_large")
    assert root.post(path.format(ref), body.ljust(1024)).status == 200
    configure(LIMITS={"REQUEST_BYTES": None})
    assert root.post(path.format(ref), body.ljust(9999)).status == 200


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"reason": NaN}', b'{"a":' * 101 + b"1" + b"}" * 101])
def test_what_is_no_json_is_said_to_be_none(root: Api, tasks: Tasks, body: bytes) -> None:
    answer = root.post(f"operator/tasks/{tasks.queued()}/cancel/", body)
    assert answer.said == (400, "invalid")
    assert answer.json["detail"].startswith("The body is not JSON: ")


def test_an_unexpected_fault_is_logged_and_says_nothing_of_the_inside(
    root: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(task_views.filters, "condition", broken)
    answer = root.get("operator/tasks/")
    assert answer.said == (500, "internal_error")
    assert b"hunter2" not in answer.body
    [record] = [it for it in caplog.records if it.message == "a REST request failed"]
    assert record.exc_info is not None


def test_a_body_that_breaks_off_is_a_bad_request(root: Api, monkeypatch: pytest.MonkeyPatch, tasks: Tasks) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise UnreadablePostError("connection reset")

    monkeypatch.setattr(ExactParser, "parse", broken)
    assert root.do("cancel", tasks.queued()).said == (400, "invalid")


def test_every_code_has_its_status() -> None:
    assert sorted(set(STATUSES.values())) == [400, 401, 403, 404, 405, 406, 409, 413, 415, 429, 500]


# -- rates --------------------------------------------------------------------------------------------------------


@pytest.fixture
def defaults(settings: Any) -> None:
    """A project that says nothing of rates."""
    settings.REST_FRAMEWORK = {
        name: value for name, value in settings.REST_FRAMEWORK.items() if name != "DEFAULT_THROTTLE_RATES"
    }


@pytest.mark.parametrize(
    ("method", "path", "body", "rate"),
    [
        ("GET", "operator/processes/", None, 300),
        ("POST", "operator/tasks/{ref}/cancel/", REASON, 60),
        ("POST", "operator/lookup/", {"task_id": "A" * 43}, 20),
        ("POST", "operator/bulk-cancel/", {"filter": {"tool": "x"}, **REASON}, 6),
    ],
)
def test_operators_have_rates_unless_the_project_says_otherwise(
    root: Api, staff: Callable[..., Api], tasks: Tasks, defaults: None, method: str, path: str, body: Any, rate: int
) -> None:
    path = path.format(ref=tasks.queued())
    statuses = [root.send(method, path, body).status for _ in range(rate)]
    assert 429 not in statuses
    refused = root.send(method, path, body)
    assert refused.said == (429, "throttled")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    other = staff(name="other", is_superuser=True)
    assert other.send(method, path, body).status != 429
    assert root.get("operator/overview/").status == (429 if rate == 300 else 200)


def test_the_project_sets_the_rates(root: Api, settings: Any) -> None:
    rates = {**settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"], "mcp_operator_read": "1/hour"}
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": rates}
    assert [root.get("operator/processes/").status for _ in range(2)] == [200, 429]
    assert int(root.get("operator/processes/").headers["retry-after"]) > 3000


def test_a_rate_of_none_lifts_the_limit(root: Api) -> None:
    for _ in range(30):
        assert root.post("operator/lookup/", {"task_id": "A" * 43}).status == 404
    assert not any(key.startswith(":1:throttle") for key in cache._cache)  # type: ignore[attr-defined]


def test_who_may_not_come_in_is_not_counted(staff: Callable[..., Api], defaults: None) -> None:
    api = staff()
    assert {api.get("operator/processes/").status for _ in range(310)} == {403}
