"""Looking tasks up: what is found, and that what was asked for is left nowhere."""

import logging
import secrets
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mcp_tasks.admin.lookup import PER_MINUTE
from mcp_tasks.models import TaskStat
from mcp_tasks.store.types import ref_of

from .rows import add

pytestmark = pytest.mark.django_db

LIST = "/admin/mcp_tasks/task/"
LOOKUP = f"{LIST}lookup/"
NOT_FOUND = "No task has this id."


def look_up(client: Client, text: str) -> str:
    """Where the form leads to."""
    answer = client.post(LOOKUP, {"q": text})
    assert answer.status_code == 302
    return str(answer["Location"])


def test_an_id_a_reference_and_its_beginning_lead_to_the_task(superuser: Client) -> None:
    task_id = secrets.token_urlsafe(32)
    ref = add(ref=ref_of(task_id))
    for text in (task_id, f"  {task_id}\n", str(ref), str(ref).upper(), ref.hex, ref.hex[:8], str(ref)[:20]):
        assert look_up(superuser, text) == f"{LIST}{ref}/"


def test_a_beginning_that_several_have_leads_to_a_list_of_ten_at_most(superuser: Client) -> None:
    for number in range(12):
        add(ref=f"0bda41da-0000-4000-8000-{number:012d}")
    address = look_up(superuser, "0bda41da")
    assert address.startswith(f"{LIST}?ref=")
    assert superuser.get(address).content.decode().count("data-ref=") == 10


def test_seven_digits_are_too_few(superuser: Client) -> None:
    ref = add()
    assert look_up(superuser, ref.hex[:7]) == LIST


def test_an_owner_and_a_tool_lead_to_their_tasks(superuser: Client) -> None:
    assert look_up(superuser, f"owner:{'B' * 64}") == f"{LIST}?owner={'b' * 64}"
    assert look_up(superuser, "owner: anonymous") == f"{LIST}?owner=anonymous"
    assert look_up(superuser, "add") == f"{LIST}?tool=add"


def test_a_tool_that_only_the_counts_remember_is_found(superuser: Client) -> None:
    from django.utils import timezone

    TaskStat.objects.create(hour=timezone.now(), tool="old_tool", outcome="completed", count=1)
    assert look_up(superuser, "old_tool") == f"{LIST}?tool=old_tool"
    assert "old_tool" in superuser.get(LIST).content.decode()


@pytest.mark.parametrize(
    "text",
    ["", "x", "owner:bob", "unheard_of", "é" * 43, "a" * 43, "\0" * 43, "f" * 33, "z" * 5000, "deadbeef", "\ud800"],
)
def test_what_means_nothing_is_answered_with_a_sentence(superuser: Client, text: str) -> None:
    answer = superuser.post(LOOKUP, {"q": text.encode("utf-8", "replace").decode()}, follow=True)
    assert answer.redirect_chain == [(LIST, 302)]
    assert NOT_FOUND in answer.content.decode()


def test_the_id_is_in_no_address_no_log_no_statement_and_no_page(
    superuser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    known, unknown, cut = (secrets.token_urlsafe(32)[:length] for length in (43, 43, 40))
    add(ref=ref_of(known))
    caplog.set_level(logging.DEBUG)
    with CaptureQueriesContext(connection) as seen:
        answers = [superuser.post(LOOKUP, {"q": text}, follow=True) for text in (known, unknown, cut)]
    told = [
        *(answer.content.decode() for answer in answers),
        *(address for answer in answers for address, _status in answer.redirect_chain),
        *(query["sql"] for query in seen.captured_queries),
        *(str(vars(record)) for record in caplog.records if not record.name.startswith("django.request")),
    ]
    assert not any(task_id in text for task_id in (known, unknown, cut) for text in told)


def test_every_look_up_is_logged_as_hit_or_miss(superuser: Client, caplog: pytest.LogCaptureFixture) -> None:
    ref = add()
    with caplog.at_level(logging.INFO, "mcp_tasks.operator"):
        look_up(superuser, str(ref))
        look_up(superuser, "nothing")
    records: list[Any] = [record for record in caplog.records if record.name == "mcp_tasks.operator"]
    assert [(record.event, record.code) for record in records] == [("lookup", "hit"), ("lookup", "miss")]
    assert all(record.actor.startswith("operator:") for record in records)
    assert records[0].ref == str(ref)
    assert "nothing" not in str(vars(records[1]))


def test_the_input_is_hidden_from_reports_of_errors(superuser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.views.debug import SafeExceptionReporterFilter

    seen = {}

    def fail(request: Any) -> None:
        seen["post"] = SafeExceptionReporterFilter().get_post_parameters(request)
        raise RuntimeError

    monkeypatch.setattr("mcp_tasks.admin.lookup._may_ask", lambda user: True)
    monkeypatch.setattr("mcp_tasks.admin.lookup._note", lambda request, *rest: fail(request))
    superuser.raise_request_exception = False
    assert superuser.post(LOOKUP, {"q": "secret-id"}).status_code == 500
    assert "secret-id" not in str(dict(seen["post"]))


def test_twenty_look_ups_a_minute_for_each_operator(
    operator: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks.admin.lookup.time", SimpleNamespace(time=lambda: 1_000_000.0))
    ref = add()
    one, other = operator("view_task", name="one"), operator("view_task", name="other")
    for _ in range(PER_MINUTE):
        assert look_up(one, str(ref)) == f"{LIST}{ref}/"
    answer = one.post(LOOKUP, {"q": str(ref)}, follow=True)
    assert answer.redirect_chain == [(LIST, 302)]
    assert "At most 20 look-ups a minute." in answer.content.decode()
    assert look_up(other, str(ref)) == f"{LIST}{ref}/"
    monkeypatch.setattr("mcp_tasks.admin.lookup.time", SimpleNamespace(time=lambda: 1_000_060.0))
    assert look_up(one, str(ref)) == f"{LIST}{ref}/"


def test_a_cache_that_keeps_nothing_limits_nothing(superuser: Client, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    ref = add()
    assert look_up(superuser, str(ref)) == f"{LIST}{ref}/"


def test_only_by_post_and_only_with_the_permission(operator: Callable[..., Client]) -> None:
    ref = add()
    assert operator("view_task").get(LOOKUP).status_code == 405
    assert operator("cancel_task", name="second").post(LOOKUP, {"q": str(ref)}).status_code == 403
    assert "/login/" in Client().post(LOOKUP, {"q": str(ref)})["Location"]


def test_it_is_protected_against_forged_requests(operator: Callable[..., Client]) -> None:
    client = operator("view_task")
    client.handler.enforce_csrf_checks = True
    assert client.post(LOOKUP, {"q": "x"}).status_code == 403


def test_what_the_policy_hides_is_not_found(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": "tests.admin.test_list.OnlyAlice"})
    task_id = secrets.token_urlsafe(32)
    ref = add(ref=ref_of(task_id), owner_label="bob")
    for text in (task_id, str(ref), ref.hex[:8]):
        assert look_up(superuser, text) == LIST


def test_one_statement_by_the_primary_key(superuser: Client) -> None:
    ref = add()
    for text in (secrets.token_urlsafe(32), str(ref), ref.hex[:8]):
        with CaptureQueriesContext(connection) as seen:
            superuser.post(LOOKUP, {"q": text})
        found = [query["sql"] for query in seen.captured_queries if 'mcp_tasks_task"' in query["sql"]]
        assert len(found) == 1
