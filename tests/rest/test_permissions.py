"""Who may do what: every permission against every address and method."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.views import APIView

from mcp_tasks.models import Task, TaskEvent
from mcp_tasks.transports.rest.base import RestView
from mcp_tasks.transports.rest.mounted import authentication_problem
from mcp_tasks.transports.rest.operator import OperatorView
from mcp_tasks.transports.rest.owned import OwnedView
from mcp_tasks.transports.rest.urls import urlpatterns

from .api import Answer, Api
from .conftest import Tasks, user

pytestmark = pytest.mark.django_db

VIEW = "view_task"
PAYLOAD, SECRETS = {VIEW, "view_task_payload"}, {VIEW, "view_task_payload", "view_task_secrets"}
REASON = {"reason": "for a test"}
LATER = {**REASON, "expires_at": "2036-01-31T12:00:00Z"}

#: Method, address, body, and the permissions that it takes together.
ENDPOINTS: list[tuple[str, str, Any, set[str]]] = [
    ("GET", "operator/tasks/", None, {VIEW}),
    ("GET", "operator/tasks/{ref}/", None, {VIEW}),
    ("HEAD", "operator/tasks/{ref}/", None, {VIEW}),
    ("GET", "operator/tasks/{ref}/events/", None, {VIEW}),
    ("GET", "operator/tasks/{ref}/payload/arguments/", None, PAYLOAD),
    ("GET", "operator/tasks/{ref}/payload/result/", None, PAYLOAD),
    ("GET", "operator/tasks/{ref}/payload/error/", None, PAYLOAD),
    ("GET", "operator/tasks/{ref}/payload/inputs/", None, PAYLOAD),
    ("GET", "operator/tasks/{ref}/payload/arguments/?unmasked=1", None, SECRETS),
    ("GET", "operator/tasks/{ref}/payload/inputs/?unmasked=1", None, SECRETS),
    ("GET", "operator/tasks/{ref}/traceback/", None, {VIEW, "view_task_traceback"}),
    ("GET", "operator/overview/", None, {VIEW}),
    ("GET", "operator/processes/", None, {VIEW}),
    ("POST", "operator/lookup/", {"task_id": "A" * 43}, {VIEW}),
    ("POST", "operator/tasks/{ref}/requeue/", REASON, {VIEW, "requeue_task"}),
    ("POST", "operator/tasks/{ref}/dismiss-inputs/", REASON, {VIEW, "dismiss_task_input"}),
    ("POST", "operator/tasks/{ref}/extend/", LATER, {VIEW, "extend_task"}),
    ("POST", "operator/tasks/{ref}/fail/", REASON, {VIEW, "fail_task"}),
    ("POST", "operator/bulk-cancel/", {"filter": {"tool": "nobody"}, **REASON}, {VIEW, "cancel_task"}),
    ("POST", "operator/tasks/{ref}/cancel/", REASON, {VIEW, "cancel_task"}),
    ("DELETE", "operator/tasks/{ref}/?reason=for+a+test", None, {VIEW, "delete_task"}),
]
OTHERS = sorted(set().union(*(needs for *_, needs in ENDPOINTS)) - {VIEW})
GRANTS = [
    (),
    (VIEW,),
    *((name,) for name in OTHERS),
    *((VIEW, name) for name in OTHERS),
    tuple(sorted(SECRETS)),
    (VIEW, *OTHERS),
    ("add_task", "change_task"),
    (VIEW, "add_task", "change_task"),
]


def sent(api: Api, endpoint: tuple[str, str, Any, set[str]], ref: Any) -> Answer | int:
    method, path, body, _ = endpoint
    if method == "HEAD":  # answers without a body cannot be read as such
        return int(api.client.head(f"/api/{path.format(ref=ref)}", headers=api._headers).status_code)
    return api.send(method, path.format(ref=ref), body)


def status_of(answer: Answer | int) -> int:
    return answer if isinstance(answer, int) else answer.status


def image(ref: Any) -> Any:
    return list(Task.objects.values("revision", "status", "phase", "expires_at")), TaskEvent.objects.count()


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: "+".join(grant) or "nothing")
def test_each_address_takes_exactly_its_permissions(
    staff: Callable[..., Api], tasks: Tasks, configure: Callable[..., None], grant: tuple[str, ...]
) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})
    api = staff(*grant)
    for endpoint in ENDPOINTS:
        ref = tasks.queued()
        before = image(ref)
        status = status_of(sent(api, endpoint, ref))
        if endpoint[3] <= set(grant):
            assert status not in (401, 403, 405), endpoint
        else:
            assert status == 403, endpoint
            assert image(ref) == before, endpoint


@pytest.mark.parametrize(
    ("who", "status"),
    [("nobody", 401), ("customer", 403), ("superuser who is no staff", 403), ("superuser", 0), ("inactive", 401)],
)
def test_only_active_staff_comes_in(staff: Callable[..., Api], tasks: Tasks, who: str, status: int) -> None:
    everything = [VIEW, *OTHERS]
    api = {
        "nobody": lambda: Api(),
        "customer": lambda: staff(*everything, is_staff=False),
        "superuser who is no staff": lambda: staff(is_staff=False, is_superuser=True),
        "superuser": lambda: staff(is_superuser=True),
        "inactive": lambda: staff(*everything, is_active=False),
    }[who]()
    for endpoint in ENDPOINTS:
        if "dismiss" in endpoint[1]:
            continue
        found = status_of(sent(api, endpoint, tasks.queued()))
        assert found == status if status else found not in (401, 403), endpoint


def test_the_table_above_is_complete() -> None:
    named = {path.split("?")[0].replace("{ref}", "<str:ref>") for _, path, *_ in ENDPOINTS}
    assert named == {str(it.pattern) for it in urlpatterns if str(it.pattern).startswith("operator/")}
    known = {(str(it.pattern), method) for it in urlpatterns for method in it.callback.view_class.operations}
    listed = {(p.split("?")[0].replace("{ref}", "<str:ref>"), m) for m, p, *_ in ENDPOINTS if m != "HEAD"}
    assert {(path, method) for path, method in known if path.startswith("operator/")} == listed


def test_every_other_method_is_refused(root: Api, tasks: Tasks) -> None:
    ref = tasks.queued()
    paths = {path.split("?")[0] for _, path, *_ in ENDPOINTS}
    allowed = {(method, path.split("?")[0]) for method, path, *_ in ENDPOINTS}
    for path in paths:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            if (method, path) not in allowed:
                answer = root.send(method, path.format(ref=ref), {})
                assert answer.said == (405, "method_not_allowed")
                assert answer.headers["allow"]


def test_a_verb_that_is_switched_off_is_refused_to_everybody(root: Api, tasks: Tasks) -> None:
    answer = root.do("dismiss-inputs", tasks.parked())
    assert answer.said == (403, "permission_denied")
    assert "switched off" in answer.json["detail"]


def test_a_task_that_the_policy_hides_is_one_that_never_was(root: Api, tasks: Tasks, policy: None) -> None:
    hidden, unknown = tasks.queued(tool="hidden"), "0bda41da-2c9e-4f59-be67-1d524453ba4c"
    for endpoint in ENDPOINTS:
        if "{ref}" not in endpoint[1] or endpoint[0] == "HEAD":
            continue
        answers = [sent(root, endpoint, ref) for ref in (hidden, unknown, str(hidden).upper(), "no-reference", "%00")]
        assert {answer.body for answer in answers} == {answers[0].body}  # type: ignore[union-attr]
        assert answers[0].said == (404, "not_found")  # type: ignore[union-attr]
    assert root.get("operator/tasks/").json["results"] == []
    overview = root.get("operator/overview/").json
    assert (overview["live"]["queued"], overview["owners"], overview["oldest_queued"]) == (0, [], [])
    assert (overview["ended"], overview["hours"], overview["tools"]) == (None, None, None)
    made = tasks.made(tool="hidden")
    assert root.post("operator/lookup/", {"task_id": made.task_id}).status == 404
    answer = root.post("operator/bulk-cancel/", {"filter": {"state": "live"}, **REASON})
    assert (answer.json["cancelled"], answer.json["refused"]) == (0, 0)
    assert Task.objects.filter(status="working").count() == 2


def test_a_task_that_the_policy_keeps_is_refused_with_its_reason(root: Api, tasks: Tasks, policy: None) -> None:
    kept = tasks.queued(tool="kept")
    answer = root.do("cancel", kept)
    assert answer.said == (403, "permission_denied")
    assert answer.json["detail"] == "This one is being looked into."
    assert root.get(f"operator/tasks/{kept}/").json["verbs"] == []


def browser(name: str, *permissions: str) -> Client:
    made = Client(enforce_csrf_checks=True)
    made.force_login(user(name, *permissions))
    return made


def test_a_session_needs_the_csrf_token_for_what_changes(tasks: Tasks) -> None:
    api = Api(client=browser("clara", VIEW, "cancel_task"))
    ref = tasks.queued()
    assert api.get(f"operator/tasks/{ref}/").status == 200
    answer = api.do("cancel", ref)
    assert answer.said == (403, "permission_denied")
    assert "CSRF" in answer.json["detail"]
    api.client.cookies["csrftoken"] = "a" * 32
    path = f"operator/tasks/{ref}/cancel/"
    assert api.post(path, REASON, headers={"X-CSRFToken": "a" * 32}).status == 200


@pytest.mark.parametrize("header", ["Authorization", "Cookie"])
def test_a_credential_that_no_database_takes_is_none(root: Api, header: str) -> None:
    answer = root.send("GET", "operator/tasks/", headers={header: "Token a\x00b"})
    assert answer.said == (401, "not_authenticated")


def test_no_setting_of_the_project_changes_the_views_but_authentication_and_rates() -> None:
    policies = [name for name in vars(APIView) if name.endswith(("_classes", "_class"))]
    by_method = {"authentication_classes", "throttle_classes"}
    assert [name for name in policies if name not in {*vars(RestView), *by_method}] == []
    for view in (OwnedView, OperatorView):
        assert {"get_authenticators", "get_throttles"} <= set(vars(view))


def test_the_admins_own_log_has_an_entry_where_there_is_one(
    root: Api, tasks: Tasks, boss: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Any] = []
    log = SimpleNamespace(objects=SimpleNamespace(log_actions=lambda *entry: entered.append(entry)))
    module: Any = ModuleType("django.contrib.admin.models")
    module.LogEntry, module.CHANGE, module.DELETION = log, 2, 3
    monkeypatch.setitem(sys.modules, "django.contrib.admin.models", module)
    monkeypatch.setattr(apps, "is_installed", lambda name: True)
    first, second, third = tasks.running(), tasks.queued(), tasks.completed()
    root.do("cancel", first)
    root.do("cancel", first)
    root.do("cancel", third)
    root.post("operator/bulk-cancel/", {"filter": {"state": "live"}, **REASON})
    root.do("delete", third)
    found = [(user, [task.pk for task in of], flag, text) for user, of, flag, text in entered]
    assert found == [
        (boss, [first], 2, "Cancel: for a test"),
        (boss, [second], 2, "Cancel: for a test"),
        (boss, [third], 3, "Delete: for a test"),
    ]


@pytest.mark.parametrize(
    ("urls", "classes", "is_wrong"),
    [("tests.rest.urls", [], True), ("tests.urls", [], False), ("tests.rest.urls", None, False)],
)
def test_operator_addresses_that_nobody_can_use_are_a_problem(
    settings: Any, urls: str, classes: Any, is_wrong: bool
) -> None:
    settings.ROOT_URLCONF = urls
    if classes is not None:
        settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_AUTHENTICATION_CLASSES": classes}
    assert (authentication_problem() is not None) == is_wrong


def test_without_authentication_classes_nobody_comes_in(settings: Any, tasks: Tasks) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_AUTHENTICATION_CLASSES": []}
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    assert Api(client=client).get("operator/tasks/").said == (403, "not_authenticated")
