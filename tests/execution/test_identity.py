"""One task after the other on one thread: nothing of the first is left for the second, and its outcome is stored."""

import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.utils import timezone, translation

from mcp_tasks import compat
from mcp_tasks.execution.leg import run_leg
from mcp_tasks.models import Task
from mcp_tasks.store import get_store
from mcp_tasks.store.types import CreatedTask

pytestmark = pytest.mark.django_db(transaction=True)

marked: ContextVar[str] = ContextVar("marked", default="nobody")


def run(tool: str) -> CreatedTask:
    """One leg on this thread, which the next one gets too."""
    created = get_store().create_task(tool, {})
    claim = get_store().claim(created.ref)
    assert claim is not None
    run_leg(get_store(), claim)
    return created


def text_of(created: CreatedTask) -> str:
    found = get_store().get_task_result(created.ref)
    assert found is not None
    assert found.result is not None
    return str(found.result["content"][0]["text"])


def open_block() -> None:
    transaction.atomic().__enter__()
    User.objects.create(username="ghost")


def open_block_that_failed() -> None:
    open_block()
    with suppress(DatabaseError):
        User.objects.create(username="ghost")


def open_block_that_was_closed() -> None:
    open_block()
    connection.close()


def no_autocommit() -> None:
    transaction.set_autocommit(False)
    User.objects.create(username="ghost")


def no_autocommit_and_a_failure() -> None:
    no_autocommit()
    with suppress(DatabaseError):
        User.objects.create(username="ghost")


LEAVES: list[Callable[[], None]] = [
    open_block,
    open_block_that_failed,
    open_block_that_was_closed,
    no_autocommit,
    no_autocommit_and_a_failure,
]


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("style", ["sync", "async", "raising"])
def test_what_a_handler_leaves_in_its_connection_is_rolled_back(
    mcp_tools: Any, leave: Callable[[], None], style: str, caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tools(name="untidy")
    def untidy() -> str:
        leave()
        if style == "raising":
            raise RuntimeError
        return "done"

    @mcp_tools(name="untidy_async")
    async def untidy_async() -> str:
        await sync_to_async(leave)()
        return "done"

    @mcp_tools(name="tidy")
    def tidy() -> bool:
        User.objects.create(username="real")
        return connection.in_atomic_block or not connection.get_autocommit()

    with caplog.at_level(logging.WARNING):
        first = run("untidy_async" if style == "async" else "untidy")
    second = run("tidy")
    connection.close()  # and with it whatever was not committed
    assert text_of(second) == "false"
    assert sorted(Task.objects.values_list("status", flat=True)) == ["completed", "completed"]
    assert (text_of(first) == "done") is (style != "raising")
    assert list(User.objects.values_list("username", flat=True)) == ["real"]
    assert [record.event for record in caplog.records if hasattr(record, "database")] == ["transaction_left"]


READ_ONLY = {"sqlite": "PRAGMA query_only = ON", "postgresql": "SET default_transaction_read_only TO on"}


@pytest.mark.skipif(connection.vendor not in READ_ONLY, reason="how a session is made read-only differs")
@pytest.mark.parametrize("style", ["sync", "async"])
@pytest.mark.parametrize("max_age", [0, 600])
def test_what_a_handler_sets_in_its_session_is_not_there_for_its_outcome_nor_for_the_next(
    mcp_tools: Any, style: str, max_age: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", max_age)
    connection.close()  # it counts from the next one

    def set_it() -> None:
        with connection.cursor() as cursor:
            cursor.execute(READ_ONLY[connection.vendor])

    @mcp_tools(name="sync")
    def sync() -> str:
        set_it()
        return "done"

    @mcp_tools(name="async")
    async def coroutine() -> str:
        await sync_to_async(set_it)()
        return "done"

    @mcp_tools(name="writes")
    def writes() -> str:
        User.objects.create(username="written")
        return "done"

    assert text_of(run(style)) == "done"
    assert text_of(run("writes")) == "done"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="Django has a pool for PostgreSQL")
@pytest.mark.parametrize("is_broken", [False, True])
def test_a_connection_of_a_pool_goes_back_as_it_came(monkeypatch: pytest.MonkeyPatch, is_broken: bool) -> None:
    pooled: Any = connection.copy()
    pooled.settings_dict = {**connection.settings_dict, "OPTIONS": {"pool": {"min_size": 1, "max_size": 1}}}
    asked = "SELECT current_setting('search_path'), current_setting('TimeZone'), current_setting('statement_timeout')"

    def ask(*statements: str) -> Any:
        with pooled.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            cursor.execute(asked)
            return cursor.fetchone()

    def broken(raw: Any) -> None:
        raise pooled.Database.Error

    try:
        before = ask()
        changed = ask("SET search_path TO pg_catalog", "SET TimeZone TO 'Asia/Tokyo'", "SET statement_timeout TO 7000")
        assert not set(changed) & set(before)
        if is_broken:  # it is another one then
            monkeypatch.setattr(pooled, "_configure_connection", broken)
        compat.forget_session(pooled)
        monkeypatch.undo()
        pooled.close()
        assert ask() == before
    finally:
        pooled.close()
        pooled.close_pool()


def test_a_connection_that_a_handler_left_alone_is_kept(mcp_tools: Any) -> None:
    mcp_tools(name="alone")(lambda: "done")
    mcp_tools(name="uses")(lambda: User.objects.count())
    run("alone")
    before = connection.connection
    run("alone")
    assert connection.connection is before
    run("uses")
    assert connection.connection is not before


def test_a_transaction_of_the_caller_is_left_alone(mcp_tools: Any) -> None:
    from mcp_tasks.connections import left_as_found

    with transaction.atomic():
        with left_as_found("inline"):
            User.objects.create(username="kept")
        assert connection.in_atomic_block
    connection.close()
    assert User.objects.filter(username="kept").exists()


@pytest.mark.parametrize("style", ["sync", "async"])
def test_language_time_zone_and_context_of_one_task_are_not_those_of_the_next(mcp_tools: Any, style: str) -> None:
    def dress() -> None:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        marked.set("somebody")

    @mcp_tools
    def dressed() -> None:
        dress()

    @mcp_tools
    async def dressed_async() -> None:
        dress()
        await sync_to_async(dress)()

    @mcp_tools
    def seen() -> str:
        return f"{translation.get_language()} {timezone.get_current_timezone_name()} {marked.get()}"

    before = run("seen")
    run("dressed" if style == "sync" else "dressed_async")
    assert text_of(run("seen")) == text_of(before)
    assert text_of(before).endswith(" nobody")
