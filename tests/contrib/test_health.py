"""The probes: what each answers, to whom, and what it asks of the database."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mcp_tasks.contrib import health
from mcp_tasks.models import Process
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.store.processes import JANITOR, WORKER, janitor_name, report
from mcp_tasks.testing import rewind

store = DatabaseTaskStore()


@pytest.fixture(autouse=True)
def _mounted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = "tests.contrib.health_urls"
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
    ]
    monkeypatch.setattr(health, "_probe", health._Probe())


def test_live_asks_nothing_of_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the mark django_db any query fails this test; so would the transaction of ATOMIC_REQUESTS.
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    answer = client.get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.parametrize("name", ["live", "ready", "detail"])
def test_probes_are_read_only(client: Client, name: str) -> None:
    assert client.post(f"/health/{name}").status_code == 405


@pytest.mark.django_db(transaction=True)
def test_ready_says_ok_and_nothing_else(client: Client) -> None:
    for _ in range(2):
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert client.head("/health/ready").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_not_ready_while_a_migration_is_missing(client: Client) -> None:
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("mcp_tasks", "0001_initial")
    try:
        answer = client.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})
    finally:
        recorder.record_applied("mcp_tasks", "0001_initial")
    assert client.get("/health/ready").status_code == 200


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A database that does not answer; the looks at it."""
    looks: list[str] = []
    goes_on = threading.Event()

    def hang(self: Any, using: str) -> bool:
        looks.append(using)
        goes_on.wait(10)
        return True

    monkeypatch.setattr(health._Probe, "_answers", hang)
    monkeypatch.setattr(health, "READY_SECONDS", 0.05)
    yield looks
    goes_on.set()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_hangs_costs_one_thread_and_no_patience(client: Client, hanging: list[str]) -> None:
    assert [client.get("/health/ready").status_code for _ in range(3)] == [503, 503, 503]
    assert hanging == ["default"]


@pytest.mark.django_db(transaction=True)
def test_a_database_that_fails_is_not_ready_and_its_text_is_not_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, using: str) -> bool:
        raise OperationalError("password of tasks@10.0.0.1 is wrong")

    monkeypatch.setattr(health._Probe, "_answers", fail)
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})


# -- detail ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def signed_in(client: Client, db: None, grant: Callable[[Any, str], None]) -> Callable[..., Client]:
    def make(*, is_staff: bool = False, may_view: bool = False) -> Client:
        user = User.objects.create_user("operator", is_staff=is_staff)
        if may_view:
            grant(user, "view_task")
        client.force_login(user)
        return client

    return make


@pytest.mark.parametrize("has_users", [True, False])
def test_strangers_are_refused(client: Client, db: None, settings: Any, has_users: bool) -> None:
    if not has_users:
        settings.MIDDLEWARE = []
    answer = client.get("/health/detail")
    assert (answer.status_code, answer.json()) == (403, {"status": "forbidden"})


@pytest.mark.parametrize(
    ("is_staff", "may_view", "expected"), [(False, False, 403), (True, False, 200), (False, True, 200)]
)
def test_staff_and_who_may_view_tasks_see_the_numbers(
    signed_in: Callable[..., Client], is_staff: bool, may_view: bool, expected: int
) -> None:
    assert signed_in(is_staff=is_staff, may_view=may_view).get("/health/detail").status_code == expected


def test_all_is_well(signed_in: Callable[..., Client]) -> None:
    report("web:1", WORKER, slots=4, busy=1)
    report(janitor_name(), JANITOR)
    found = signed_in(is_staff=True).get("/health/detail").json()
    assert found.pop("janitor_seconds") < 5
    assert found == {
        "status": "ok",
        "warnings": [],
        "queued": 0,
        "running": 0,
        "needs_input": 0,
        "stalled": 0,
        "overdue": 0,
        "oldest_queued_seconds": None,
        "workers": 1,
        "slots": 4,
        "busy": 1,
    }


def test_what_is_wrong_is_said_in_sentences_and_with_200(signed_in: Callable[..., Client]) -> None:
    report(janitor_name(), JANITOR)
    janitor = Process.objects.get(kind=JANITOR)
    Process.objects.update(seen_at=janitor.seen_at - timedelta(seconds=660))
    rewind(store.create_task("report", {}, ttl_ms=86_400_000).ref, 7200)
    lapsed = store.create_task("report", {}, ttl_ms=86_400_000).ref
    store.claim(lapsed)
    rewind(lapsed, 600)
    rewind(store.create_task("report", {}, ttl_ms=60_000).ref, 61)
    answer = signed_in(is_staff=True).get("/health/detail")
    assert answer.status_code == 200
    assert answer.json()["status"] == "warning"
    assert answer.json()["warnings"] == [
        "The janitor has not run for 11 min.",
        "Tasks whose process let its lease lapse: 1.",
        "The oldest queued task has waited for 2 h.",
        "Tasks are queued and no process that runs them was seen within a minute.",
        "Tasks past their time to live that still hold payloads: 1.",
    ]


def test_a_site_where_nothing_ever_ran_says_so(signed_in: Callable[..., Client]) -> None:
    assert signed_in(is_staff=True).get("/health/detail").json()["warnings"] == ["The janitor has never run."]


def test_a_database_that_fails_is_a_warning(signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OperationalError("10.0.0.1 is away")

    monkeypatch.setattr(health, "vitals", fail)
    answer = signed_in(is_staff=True).get("/health/detail")
    assert answer.status_code == 200
    assert answer.json() == {"status": "warning", "warnings": ["The database does not answer."]}


def test_detail_costs_four_statements_beside_the_sign_in(signed_in: Callable[..., Client]) -> None:
    client = signed_in(is_staff=True)
    with CaptureQueriesContext(connection) as captured:
        client.get("/health/detail")
    assert len([query for query in captured if "session" not in query["sql"] and "auth_user" not in query["sql"]]) == 4
