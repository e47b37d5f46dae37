"""Who may do what: permission, state and the project's policy, each alone enough to refuse."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from mcp_tasks import checks
from mcp_tasks.dbtime import current
from mcp_tasks.models import Task
from mcp_tasks.operators.acting import Order, WrongRequest, act, checked_reason
from mcp_tasks.operators.policy import VERBS, Policy, may_see, may_view, offered, refusal
from mcp_tasks.signals import operator_acted
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.testing import rewind

pytestmark = pytest.mark.django_db(transaction=True)

store = DatabaseTaskStore()


class OnlyReports(Policy):
    """Narrows what operators see and do to one tool."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(tool="report")

    def may(self, request: Any, verb: str, task: Task) -> bool | str:
        return True if verb == "cancel" else "Ask the owner first."


class Half:
    """Lacks two of the three methods."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset


def an_operator(*codenames: str, **flags: Any) -> User:
    user = User.objects.create(username="op", **{"is_staff": True, **flags})
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def asking(user: User) -> Any:
    return SimpleNamespace(user=user)


def a_task(tool: str = "report") -> Task:
    return Task.objects.get(pk=store.create_task(tool, {}).ref)


def a_stalled_task() -> Task:
    ref = store.create_task("report", {}).ref
    store.claim(ref)
    rewind(ref, 61)
    return Task.objects.get(pk=ref)


def test_a_viewer_is_active_staff_with_the_permission() -> None:
    assert may_view(an_operator("view_task"))
    for flags in ({"is_staff": False}, {"is_active": False}):
        User.objects.all().delete()
        assert not may_view(an_operator("view_task", **flags))
    User.objects.all().delete()
    assert not may_view(an_operator())


@pytest.mark.parametrize("what", ["payload", "secrets", "traceback"])
def test_what_a_task_holds_needs_a_permission_of_its_own(what: str) -> None:
    assert not may_see(an_operator("view_task"), what)
    User.objects.all().delete()
    assert may_see(an_operator("view_task", f"view_task_{what}"), what)
    User.objects.all().delete()
    assert not may_see(an_operator(f"view_task_{what}"), what)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_needs_its_permission_and_that_to_view(name: str, settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "OPERATOR": {"DISMISS_INPUT": True}}
    verb, task = VERBS[name], a_task()
    assert refusal(asking(an_operator("view_task", verb.permission)), verb, task) is None
    User.objects.all().delete()
    others = [other.permission for other in VERBS.values() if other is not verb]
    assert refusal(asking(an_operator("view_task", *others)), verb, task) is not None
    User.objects.all().delete()
    assert refusal(asking(an_operator(verb.permission)), verb, task) is not None


def test_dismissing_is_off_by_default() -> None:
    user = an_operator("view_task", "dismiss_task_input")
    assert refusal(asking(user), VERBS["dismiss"], a_task()) is not None


def test_verbs_are_offered_where_they_make_sense() -> None:
    user = an_operator("view_task", *(verb.permission for verb in VERBS.values()))
    now = current("default")
    assert [verb.name for verb in offered(asking(user), a_task(), now)] == ["extend", "cancel"]
    stalled = a_stalled_task()
    assert [v.name for v in offered(asking(user), stalled, now)] == ["requeue", "extend", "fail", "cancel"]
    store.cancel_task(stalled.pk)
    assert [v.name for v in offered(asking(user), Task.objects.get(pk=stalled.pk), now)] == ["delete"]


def test_the_policy_of_the_project_takes_away_and_says_why(settings: Any) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "OPERATOR": {"POLICY": f"{__name__}.OnlyReports"}}
    user = an_operator("view_task", *(verb.permission for verb in VERBS.values()))
    task = a_task()
    assert [verb.name for verb in offered(asking(user), task, current("default"))] == ["cancel"]
    with pytest.raises(PermissionError, match="Ask the owner first"):
        act(asking(user), task, Order(verb="fail", reason="It hangs"))
    assert act(asking(user), task, Order(verb="cancel", reason="It hangs"))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere.Policy", "cannot be imported"),
        (f"{__name__}.Half", "lacks may, mask"),
        (f"{__name__}.OnlyReports", None),
    ],
)
def test_a_wrong_policy_is_a_check_error(settings: Any, path: str, said: str | None) -> None:
    settings.MCP_TASKS = {**settings.MCP_TASKS, "OPERATOR": {"POLICY": path}}
    found = [message for message in checks.check_settings(None) if message.id == "mcp_tasks.E006"]
    assert [said in message.msg for message in found if said] == ([True] if said else [])


@pytest.mark.parametrize("text", ["", "  ", "no", None, 5, "x" * 501, "a\x00bc", "tur\u202ened", "hid\u200bden"])
def test_a_reason_says_something_and_hides_nothing(text: Any) -> None:
    with pytest.raises(WrongRequest) as wrong:
        checked_reason(text)
    assert wrong.value.field == "reason"


def test_a_reason_is_kept_as_it_was_written() -> None:
    assert checked_reason("  Läuft seit gestern 🐢 ") == "Läuft seit gestern 🐢"


def test_what_an_operator_does_is_in_the_timeline_with_name_and_reason() -> None:
    user = an_operator("view_task", "cancel_task")
    task = a_task()
    assert act(asking(user), task, Order(verb="cancel", reason="It hangs"))
    event = task.events.get(kind="cancelled")
    assert (event.actor, event.detail) == (f"operator:{user.pk}", '{"reason":"It hangs"}')


def test_a_project_hears_what_its_operators_do_and_what_became_of_it() -> None:
    heard: list[dict[str, Any]] = []

    def listen(**told: Any) -> None:
        heard.append({name: told[name] for name in ("ref", "action", "user", "reason", "outcome")})

    user = an_operator("view_task", "cancel_task")
    task = a_task()
    operator_acted.connect(listen)
    try:
        act(asking(user), task, Order(verb="cancel", reason="It hangs"))
        act(asking(user), task, Order(verb="cancel", reason="It hangs"))
        with pytest.raises(PermissionError):
            act(asking(user), task, Order(verb="fail", reason="It hangs"))
        with pytest.raises(WrongRequest):
            act(asking(user), task, Order(verb="cancel", reason=""))
    finally:
        operator_acted.disconnect(listen)
    told = {"ref": task.pk, "user": user, "reason": "It hangs"}
    assert heard == [
        {**told, "action": "cancel", "outcome": "ok"},
        {**told, "action": "cancel", "outcome": "already_finished"},
        {**told, "action": "fail", "outcome": "permission_denied"},
        {**told, "action": "cancel", "outcome": "wrong_request", "reason": None},
    ]
