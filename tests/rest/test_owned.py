"""One's own task by its capability: what it answers, and that nothing tells a missing task from somebody else's."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from mcp_tasks.models import TaskInput
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing import rewind
from mcp_tasks.testing.client import McpClient
from mcp_tasks.testing.contract_support import question
from tests.support.adapters import make_client

from .api import Answer, Api
from .conftest import row

pytestmark = pytest.mark.django_db

UNKNOWN = "A" * 43
REF = "0bda41da-2c9e-4f59-be67-1d524453ba4c"


class Owned(Api):
    """A client of the REST addresses with one task."""

    def __init__(self, name: str | None, token: Callable[[str], str], made: CreatedTask) -> None:
        super().__init__(None if name is None else f"Bearer {token(name)}")
        self.made = made

    def ask(self, method: str = "GET", path: str = "", body: Any = None, **more: Any) -> Answer:
        headers = {"Mcp-Task-Id": self.made.task_id, **more.pop("headers", {})}
        ref = more.pop("ref", self.made.ref)
        return self.send(method, f"tasks/{ref}/{path}", body, headers=headers, **more)


@pytest.fixture
def made(token: Callable[[str], str]) -> Callable[..., CreatedTask]:
    def make(name: str | None = "alice", **options: Any) -> CreatedTask:
        if name is None:
            return get_store().create_task("echo", {"text": "x"}, owner=None, **options)
        client = McpClient.django(token=token(name))
        task_id = client.call_tool("echo", {"text": "x"})["taskId"]
        return CreatedTask(task_id, ref_of(task_id), None, False, None)  # type: ignore[arg-type]

    return make


@pytest.fixture
def alice(token: Callable[[str], str], made: Callable[..., CreatedTask]) -> Owned:
    return Owned("alice", token, made())


def asking(owned: Owned, *keys: str) -> None:
    get_store().claim(owned.made.ref)
    get_store().require_input(owned.made.ref, {key: question(key) for key in keys}, leg=1)


# -- state --------------------------------------------------------------------------------------------------------


def test_a_task_is_what_tasks_get_says(alice: Owned, token: Callable[[str], str]) -> None:
    answer = alice.ask()
    mcp = McpClient.django(token=token("alice"))
    assert answer.json == mcp.get_task(alice.made.task_id)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"] == f'"{row(alice.made.ref).revision}"'
    assert answer.headers["retry-after"] == "1"
    asking(alice, "a")
    assert alice.ask().json == mcp.get_task(alice.made.task_id)
    get_store().cancel_task(alice.made.ref, "enough")
    final = alice.ask()
    assert final.json == mcp.get_task(alice.made.task_id)
    assert "retry-after" not in final.headers


def test_the_time_to_the_next_poll_is_rounded_up(
    configure: Callable[..., None], token: Callable[[str], str], made: Callable[..., CreatedTask]
) -> None:
    configure(POLL_INTERVAL_MS=1500)
    assert Owned("alice", token, made()).ask().headers["retry-after"] == "2"


def test_an_unchanged_task_is_not_sent_again(alice: Owned) -> None:
    etag = alice.ask().headers["etag"]
    for known in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        answer = alice.ask(headers={"If-None-Match": known})
        assert (answer.status, answer.body) == (304, b"")
        assert (answer.headers["etag"], answer.headers["retry-after"]) == (etag, "1")
    get_store().claim(alice.made.ref)
    get_store().set_status(alice.made.ref, "on it", leg=1)
    changed = alice.ask(headers={"If-None-Match": etag})
    assert (changed.status, changed.json["statusMessage"]) == (200, "on it")
    assert alice.ask(headers={"If-None-Match": "nonsense"}).status == 200
    assert alice.ask(headers={"If-Match": '"x"'}).status == 200


# -- answers ------------------------------------------------------------------------------------------------------


def test_answers_are_taken_and_counted_by_key(alice: Owned) -> None:
    asking(alice, "a", "b")
    given = {"a": {"action": "decline"}, "c": {"action": "decline"}}
    answer = alice.ask("POST", "answers/", {"inputResponses": given})
    assert answer.json == {"accepted": ["a"], "ignored": ["c"], "outstanding": ["b"]}
    assert list(alice.ask().json["inputRequests"]) == ["b"]
    repeat = alice.ask("POST", "answers/", {"inputResponses": given})
    assert repeat.json == {"accepted": [], "ignored": ["a", "c"], "outstanding": ["b"]}


def test_a_finished_task_takes_no_answers(alice: Owned) -> None:
    get_store().cancel_task(alice.made.ref)
    answer = alice.ask("POST", "answers/", {"inputResponses": {"a": {"action": "decline"}}})
    assert answer.json == {"accepted": [], "ignored": ["a"], "outstanding": []}


def test_answers_are_stored_as_they_came(alice: Owned) -> None:
    asking(alice, "a")
    form = b'{"inputResponses":{"a":{"action":"accept","content":{"b":12345678901234567890,"a":"\\u0000"}}}}'
    assert alice.ask("POST", "answers/", form).status == 200
    stored = TaskInput.objects.get(task_id=alice.made.ref).answer_json
    assert stored == '{"action":"accept","content":{"b":12345678901234567890,"a":"\\u0000"}}'


def test_one_wrong_answer_refuses_them_all(alice: Owned) -> None:
    asking(alice, "a", "b")
    given = {"a": {"action": "decline"}, "b": {"action": "perhaps"}}
    answer = alice.ask("POST", "answers/", {"inputResponses": given})
    assert answer.said == (400, "invalid")
    assert answer.fields == ["inputResponses"]
    assert list(alice.ask().json["inputRequests"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", ["inputResponses"]),
        (b"[]", [""]),
        (b"{}", ["inputResponses"]),
        (b'{"inputResponses": null}', ["inputResponses"]),
        (b'{"inputResponses": []}', ["inputResponses"]),
        (b'{"inputResponses": {}, "more": 1}', ["more"]),
        (b'{"inputResponses": {"a": NaN}}', []),
        (b'{"inputResponses": ' + b"[" * 200 + b"]" * 200 + b"}", []),
        (b"{", []),
        (b"\xff", []),
    ],
)
def test_a_body_that_is_none_is_refused(alice: Owned, body: bytes, fields: list[str]) -> None:
    asking(alice, "a")
    answer = alice.ask("POST", "answers/", body)
    assert answer.said == (400, "invalid")
    assert answer.fields == fields


# -- the end ------------------------------------------------------------------------------------------------------


def test_a_cancellation_may_be_repeated(alice: Owned) -> None:
    first = alice.ask("POST", "cancel/")
    assert (first.status, first.json["status"]) == (200, "cancelled")
    assert first.headers["etag"] == f'"{row(alice.made.ref).revision}"'
    again = alice.ask("POST", "cancel/", {})
    assert again.body == first.body


@pytest.mark.parametrize("body", [b'{"reason": "x"}', b"[1]", b"7", b"{"])
def test_a_cancellation_says_nothing(alice: Owned, body: bytes) -> None:
    assert alice.ask("POST", "cancel/", body).said == (400, "invalid")
    assert row(alice.made.ref).status == "working"


def test_a_finished_task_is_not_cancelled(alice: Owned) -> None:
    get_store().claim(alice.made.ref)
    get_store().complete_task(alice.made.ref, {"content": []}, leg=1)
    assert alice.ask("POST", "cancel/").json["status"] == "completed"


# -- refusals -----------------------------------------------------------------------------------------------------


def requests(owned: Owned, *, ref: Any = None, **headers: str) -> list[Answer]:
    """All three requests, about another task or with another capability."""
    ref = owned.made.ref if ref is None else ref
    return [
        owned.ask(ref=ref, headers=headers),
        owned.ask("POST", "answers/", {"inputResponses": {}}, ref=ref, headers=headers),
        owned.ask("POST", "cancel/", ref=ref, headers=headers),
    ]


def test_every_refusal_is_the_same_bytes(
    alice: Owned, token: Callable[[str], str], made: Callable[..., CreatedTask]
) -> None:
    bob, unowned, old, purged = Owned("bob", token, alice.made), made(None), made(), made()
    rewind(old.ref, 3601)
    rewind(purged.ref, 3601)
    get_store().expire()
    other = made()
    refused = [
        *requests(bob),
        *requests(alice, **{"Mcp-Task-Id": UNKNOWN}),
        *requests(alice, ref=REF, **{"Mcp-Task-Id": UNKNOWN}),
        *requests(alice, ref=other.ref),
        *requests(alice, ref=str(alice.made.ref).upper()),
        *requests(alice, ref=alice.made.ref.hex),
        *requests(alice, ref="no-reference"),
        *requests(alice, ref="%00"),
        *requests(alice, **{"Mcp-Task-Id": ""}),
        *requests(alice, **{"Mcp-Task-Id": "no id"}),
        *requests(alice, **{"Mcp-Task-Id": alice.made.task_id + "="}),
        *requests(alice, ref=unowned.ref, **{"Mcp-Task-Id": unowned.task_id}),
        *requests(alice, ref=old.ref, **{"Mcp-Task-Id": old.task_id}),
        *requests(alice, ref=purged.ref, **{"Mcp-Task-Id": purged.task_id}),
    ]
    assert {answer.said for answer in refused} == {(404, "not_found")}
    assert len({answer.body for answer in refused}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in refused if "allow" in answer.headers}) == 2
    assert row(alice.made.ref).status == row(other.ref).status == "working"


def test_without_the_extension_no_task_is_there(alice: Owned, configure: Callable[..., None]) -> None:
    configure(ENABLED=False)
    assert {answer.said for answer in requests(alice)} == {(404, "not_found")}


def test_a_capability_alone_is_not_enough(alice: Owned) -> None:
    stranger = Api()
    answer = stranger.send("GET", f"tasks/{alice.made.ref}/", headers={"Mcp-Task-Id": alice.made.task_id})
    assert answer.said == (401, "not_authenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    wrong = Api("Bearer nonsense").send("GET", f"tasks/{alice.made.ref}/")
    assert wrong.said == (401, "not_authenticated")


def test_an_anonymous_task_is_for_anonymous_callers(
    configure: Callable[..., None], made: Callable[..., CreatedTask], token: Callable[[str], str]
) -> None:
    configure(ALLOW_ANONYMOUS=True)
    unowned = made(None)
    assert Owned(None, token, unowned).ask().status == 200
    assert Owned("alice", token, unowned).ask().status == 404


def test_a_session_is_a_credential_with_its_csrf_token(made: Callable[..., CreatedTask], token: Any) -> None:
    task = made("alice")
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="alice"))
    owned = Owned("alice", token, task)
    owned.client, owned._headers = client, {}
    assert owned.ask().status == 200
    assert owned.ask("POST", "cancel/").said == (403, "permission_denied")
    client.cookies["csrftoken"] = "a" * 32
    assert owned.ask("POST", "cancel/", headers={"X-CSRFToken": "a" * 32}).status == 200


def test_a_foreign_origin_is_refused(alice: Owned, configure: Callable[..., None]) -> None:
    foreign = {"Origin": "https://evil.example.com"}
    assert alice.ask(headers=foreign).said == (403, "permission_denied")
    configure(ALLOWED_ORIGINS=["https://evil.example.com"])
    assert alice.ask(headers=foreign).status == 200
    assert alice.ask(headers={"Host": "evil.example.com"}).said == (403, "permission_denied")


@pytest.mark.parametrize("path", ["", "answers/", "cancel/"])
def test_nothing_is_taken_from_the_query(alice: Owned, path: str) -> None:
    method = "POST" if path else "GET"
    body = {"inputResponses": {}} if path == "answers/" else None
    answer = alice.ask(method, path, body, task_id=alice.made.task_id)
    assert answer.said == (400, "invalid_filter")
    assert alice.made.task_id.encode() not in answer.body


def test_there_is_no_list(alice: Owned) -> None:
    assert alice.client.get("/api/tasks/", headers=alice._headers).status_code == 404


def test_the_capability_reaches_no_log(alice: Owned, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    requests(alice)
    requests(alice, ref=REF)
    assert alice.made.task_id not in "".join(str(vars(record)) for record in caplog.records)


# -- rates --------------------------------------------------------------------------------------------------------


def test_rest_and_mcp_share_the_rates_of_mcp(
    alice: Owned, configure: Callable[..., None], settings: Any, token: Callable[[str], str]
) -> None:
    configure(THROTTLE_CLASSES=["mcp_tasks.access.throttles.ScopeThrottle"])
    rates = {**settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"], "mcp_poll": "2/min", "mcp_update": "1/min"}
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_THROTTLE_RATES": rates}
    cache.clear()
    mcp = make_client("view-wsgi", token=token("alice"))
    assert mcp.get_task(alice.made.task_id)["status"] == "working"
    assert alice.ask().status == 200
    refused = alice.ask()
    assert refused.said == (429, "throttled")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert alice.ask("POST", "answers/", {"inputResponses": {}}).status == 200
    assert alice.ask("POST", "cancel/").said == (429, "throttled")
    assert mcp.post(mcp.envelope("tasks/cancel", {"taskId": alice.made.task_id})).status == 429


def test_without_classes_nothing_is_counted(alice: Owned) -> None:
    cache.clear()
    for _ in range(130):
        assert alice.ask().status == 200
    assert cache._cache == {}  # type: ignore[attr-defined]
