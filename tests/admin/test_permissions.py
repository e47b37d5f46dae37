"""Who may open and do what: every permission against every page, GET and POST, and what a project's policy hides."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import resolve

from mcp_tasks.models import Task
from mcp_tasks.operators.policy import Policy

from .rows import SECRET, add

pytestmark = pytest.mark.django_db

ROOT = "/admin/mcp_tasks/task/"
REASON = {"reason": "a matrix of permissions", "until": "6h"}
#: A state in which the verb can be used.
USABLE = {
    "cancel": "running",
    "fail": "stalled",
    "extend": "running",
    "requeue": "stalled",
    "dismiss": "needs-input",
    "delete": "completed",
}
NEEDS = {verb: "dismiss_task_input" if verb == "dismiss" else f"{verb}_task" for verb in USABLE}
LOOKUP = "lookup/"
#: Page: what it needs besides ``view_task``, and a state in which it is there. The look-up is the one that is sent to.
PAGES: dict[str, tuple[set[str], str]] = {
    "": (set(), "running"),
    "overview/": (set(), "running"),
    "live.json?refs={ref}&since=2026-01-01T00:00:00Z": (set(), "running"),
    LOOKUP: (set(), "running"),
    "{ref}/": (set(), "running"),
    "{ref}/support/": (set(), "running"),
    "{ref}/download/arguments/": ({"view_task_payload"}, "running"),
    "{ref}/download/result/": ({"view_task_payload"}, "completed"),
    "{ref}/download/error/": ({"view_task_payload"}, "failed"),
    "{ref}/download/inputs/": ({"view_task_payload"}, "needs-input"),
    "{ref}/download/arguments/?unmasked=1": ({"view_task_payload", "view_task_secrets"}, "running"),
    "{ref}/download/inputs/?unmasked=1": ({"view_task_payload", "view_task_secrets"}, "needs-input"),
    "bulk-cancel/?refs={ref}": ({"cancel_task"}, "running"),
    **{f"{{ref}}/{verb}/": ({NEEDS[verb]}, state) for verb, state in USABLE.items()},
}
GRANTS = [
    set(),
    {"view_task_payload"},
    {"view_task_secrets"},
    {"view_task_payload", "view_task_secrets"},
    {"view_task_traceback"},
    {"cancel_task"},
    {"fail_task"},
    {"extend_task"},
    {"requeue_task"},
    {"dismiss_task_input"},
    {"delete_task"},
    {"change_task", "add_task"},
]
VERBS = tuple(USABLE)


@pytest.fixture(autouse=True)
def _dismissing(configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": True})


def ordered(client: Client, ref: UUID, verb: str) -> Any:
    """Send the form of a confirmation page."""
    revision = Task.objects.filter(pk=ref).values_list("revision", flat=True).first() or 1
    return client.post(f"{ROOT}{ref}/{verb}/", {**REASON, "revision": revision})


def opened(client: Client, page: str, ref: UUID) -> Any:
    """What a page answers to somebody who has a link to it, or a reference to look up."""
    address = f"{ROOT}{page.format(ref=ref)}"
    return client.post(address, {"q": str(ref)}) if page == LOOKUP else client.get(address)


def made(state: str, **columns: Any) -> UUID:
    """A row in that state, with its question where it has one."""
    ref = add(state, **columns)
    if state == "needs-input":
        ask(ref)
    return ref


def ask(ref: UUID) -> None:
    """A question that an operator may dismiss, in a row that was written past the store."""
    import json

    from mcp_tasks.dbtime import DbNow
    from mcp_tasks.models import TaskInput

    question = {"method": "elicitation/create", "params": {"message": "?"}}
    Task.objects.filter(pk=ref).update(asks_json=json.dumps({"k": question}))
    TaskInput.objects.create(
        task_id=ref,
        key="k",
        key_hash="0" * 64,
        request_hash="0" * 64,
        state="outstanding",
        asked_leg=1,
        asked_at=DbNow(),
        request_json=json.dumps(question),
    )


# -- the matrix -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granted", GRANTS, ids=lambda granted: "+".join(sorted(granted)) or "nothing more")
def test_each_page_opens_with_its_own_permission_and_no_other(
    operator: Callable[..., Client], granted: set[str]
) -> None:
    client = operator("view_task", *granted)
    found = {page: opened(client, page, made(state)).status_code for page, (_needed, state) in PAGES.items()}
    there = {page: 302 if page == LOOKUP else 200 for page in PAGES}
    assert found == {page: there[page] if needed <= granted else 403 for page, (needed, _state) in PAGES.items()}


@pytest.mark.parametrize("granted", GRANTS, ids=lambda granted: "+".join(sorted(granted)) or "nothing more")
def test_each_verb_acts_with_its_own_permission_and_no_other(
    operator: Callable[..., Client], granted: set[str]
) -> None:
    client = operator("view_task", *granted)
    for verb, state in USABLE.items():
        ref = made(state)
        before = Task.objects.filter(pk=ref).values().get()
        answer = ordered(client, ref, verb)
        after = Task.objects.filter(pk=ref).values().first()
        if NEEDS[verb] in granted:
            assert answer.status_code == 302, (verb, answer.content)
            assert after != before
        else:
            assert answer.status_code == 403, verb
            assert after == before


def test_the_table_has_every_page() -> None:
    addresses = {resolve(f"{ROOT}{page.format(ref=uuid4())}".partition("?")[0]).route for page in PAGES}
    site = f"admin/{Task._meta.app_label}/{Task._meta.model_name}/"
    assert addresses == {f"{site}{page.pattern}" for page in admin.site._registry[Task].get_urls()}


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("granted", GRANTS, ids=lambda granted: "+".join(sorted(granted)) or "nothing more")
def test_bulk_cancel_needs_the_permission_to_cancel(
    operator: Callable[..., Client], granted: set[str], method: str
) -> None:
    client, ref = operator("view_task", *granted), add("running")
    if method == "get":
        answer = client.get(f"{ROOT}bulk-cancel/?refs={ref}")
    else:
        answer = client.post(f"{ROOT}bulk-cancel/", {"query": f"refs={ref}", "reason": "no more of it"})
    if "cancel_task" in granted:
        assert answer.status_code == (200 if method == "get" else 302)
    else:
        assert answer.status_code == 403
    assert Task.objects.get(pk=ref).status == (
        "cancelled" if (method, granted) == ("post", {"cancel_task"}) else "working"
    )


@pytest.mark.parametrize("permission", sorted(set().union(*GRANTS)))
def test_no_permission_is_worth_anything_without_the_one_to_view(
    operator: Callable[..., Client], permission: str
) -> None:
    client = operator(permission)
    for page, (_needed, state) in PAGES.items():
        assert opened(client, page, made(state)).status_code == 403, page
    for verb, state in USABLE.items():
        assert ordered(client, add(state), verb).status_code == 403
    assert set(Task.objects.values_list("revision", flat=True)) == {1}


@pytest.mark.parametrize("who", ["nobody", "a member without staff status", "an inactive member"])
def test_who_is_no_active_member_of_staff_is_asked_to_sign_in(operator: Callable[..., Client], who: str) -> None:
    client = Client()
    if who != "nobody":
        attributes = {"is_staff": False} if "without" in who else {"is_active": False}
        client = operator("view_task", *set().union(*GRANTS), **attributes)
    for page, (_needed, state) in PAGES.items():
        answer = opened(client, page, made(state))
        assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")
    for verb, state in USABLE.items():
        assert ordered(client, add(state), verb).headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_without_its_token_against_forgery_is_refused(superuser: Client, verb: str) -> None:
    ref = add(USABLE[verb])
    client = Client(enforce_csrf_checks=True)
    client.cookies = superuser.cookies
    assert ordered(client, ref, verb).status_code == 403
    assert Task.objects.get(pk=ref).revision == 1


def test_pages_that_only_show_take_no_post(superuser: Client) -> None:
    ref = add("running")
    for page in ("overview/", "live.json", f"{ref}/", f"{ref}/support/", f"{ref}/download/arguments/"):
        assert superuser.post(f"{ROOT}{page}").status_code == 405
    assert superuser.get(f"{ROOT}{LOOKUP}").status_code == 405
    assert superuser.delete(f"{ROOT}{ref}/cancel/").status_code == 405


@pytest.mark.parametrize("page", ["change/", "history/", "nonsense/", "download/traceback/", "download/context/"])
def test_there_are_no_other_pages_of_a_task(superuser: Client, page: str) -> None:
    ref = add("completed")
    assert superuser.get(f"{ROOT}{ref}/{page}").status_code == 404
    assert superuser.post(f"{ROOT}{ref}/{page}", {"post": "yes"}).status_code in (404, 405)
    assert Task.objects.filter(pk=ref).exists()


def test_dismissing_is_off_unless_the_settings_allow_it(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"DISMISS_INPUT": False})
    ref = add("needs-input")
    ask(ref)
    assert "Dismiss questions" not in superuser.get(f"{ROOT}{ref}/").content.decode()
    answer = superuser.get(f"{ROOT}{ref}/dismiss/")
    assert answer.status_code == 403
    assert "switched off on this server" in answer.content.decode()
    assert ordered(superuser, ref, "dismiss").status_code == 403
    assert Task.objects.get(pk=ref).phase == "parked"


# -- what is seen -----------------------------------------------------------------------------------------------------


def test_who_may_not_read_payloads_gets_not_a_byte_of_them(operator: Callable[..., Client]) -> None:
    client = operator("view_task", "cancel_task", "dismiss_task_input", "view_task_traceback", "delete_task")
    for state in ("running", "needs-input", "completed", "failed"):
        ref = add(state)
        if state == "needs-input":
            ask(ref)
        for page in ("", "support/", "cancel/", "dismiss/", "delete/"):
            body = client.get(f"{ROOT}{ref}/{page}", follow=True).content.decode()
            assert SECRET not in body
            assert "elicitation/create" not in body


def test_a_traceback_is_shown_with_its_own_permission_only(operator: Callable[..., Client]) -> None:
    ref = add("failed", traceback="Traceback: the line of the fault")
    allowed = operator("view_task", "view_task_traceback", name="one")
    denied = operator("view_task", "view_task_payload", name="two")
    assert "the line of the fault" in allowed.get(f"{ROOT}{ref}/").content.decode()
    assert "the line of the fault" not in denied.get(f"{ROOT}{ref}/").content.decode()


@pytest.mark.parametrize("granted", GRANTS, ids=lambda granted: "+".join(sorted(granted)) or "nothing more")
def test_buttons_are_there_only_for_what_may_be_done(operator: Callable[..., Client], granted: set[str]) -> None:
    client = operator("view_task", *granted)
    for verb, state in USABLE.items():
        ref = add(state)
        body = client.get(f"{ROOT}{ref}/").content.decode()
        assert (f"{ref}/{verb}/" in body) is (NEEDS[verb] in granted), verb
        assert "disabled" not in body


# -- policy -----------------------------------------------------------------------------------------------------------


class OnlyAlice(Policy):
    """A tenant: tasks of others do not exist, and reports are under a hold."""

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(owner_label="alice")

    def may(self, request: Any, verb: str, task: Task) -> bool | str:
        if task.tool == "report":
            return "Reports are under a <legal> hold."
        return task.tool != "silent"


@pytest.fixture
def tenant(configure: Callable[..., None], superuser: Client) -> Client:
    """A superuser whom the project's policy narrows nevertheless."""
    configure(OPERATOR={"POLICY": f"{__name__}.OnlyAlice", "DISMISS_INPUT": True})
    return superuser


def test_a_task_outside_of_the_policy_is_not_found_anywhere(tenant: Client) -> None:
    for page, (_needed, state) in PAGES.items():
        ref = made(state, owner_label="bob")
        strange, hidden = opened(tenant, page, uuid4()), opened(tenant, page, ref)
        assert hidden.status_code == strange.status_code
        if page.startswith("{ref}"):
            assert (hidden.status_code, hidden.content) == (404, strange.content)
        else:
            assert str(ref) not in hidden.content.decode().replace(page.format(ref=ref), "")
            assert hidden.headers.get("Location") == strange.headers.get("Location")
    for verb, state in USABLE.items():
        ref = add(state, owner_label="bob", tool="free")
        assert ordered(tenant, ref, verb).status_code == 404
        assert Task.objects.get(pk=ref).revision == 1


def test_a_task_outside_of_the_policy_is_in_no_bulk(tenant: Client) -> None:
    mine, theirs = add("running", tool="free"), add("running", owner_label="bob", tool="free")
    page = tenant.get(f"{ROOT}bulk-cancel/?refs={mine},{theirs}").content.decode()
    assert "<strong>1</strong> task will be cancelled" in page
    answer = tenant.post(f"{ROOT}bulk-cancel/", {"query": f"refs={mine},{theirs}", "reason": "ours"}, follow=True)
    assert "Cancelled 1 task. 1 is not there any more." in answer.content.decode()
    assert Task.objects.get(pk=theirs).status == "working"
    tenant.post(f"{ROOT}bulk-cancel/", {"query": "everything=1", "reason": "ours", "word": "CANCEL"})
    assert Task.objects.get(pk=theirs).status == "working"


@pytest.mark.parametrize("verb", VERBS)
def test_the_text_of_the_policy_is_shown_where_it_refuses(tenant: Client, verb: str) -> None:
    ref = add(USABLE[verb])
    words = "Reports are under a &lt;legal&gt; hold."
    page = tenant.get(f"{ROOT}{ref}/").content.decode()
    assert words in page
    assert f"{ref}/{verb}/" not in page
    for answer in (tenant.get(f"{ROOT}{ref}/{verb}/"), ordered(tenant, ref, verb)):
        assert answer.status_code == 403
        assert words in answer.content.decode()
        assert "<form method" not in answer.content.decode().split('id="content-main"')[1]
    assert Task.objects.get(pk=ref).revision == 1


def test_a_policy_that_says_only_no_has_a_text_too(tenant: Client) -> None:
    ref = add("running", tool="silent")
    answer = ordered(tenant, ref, "cancel")
    assert answer.status_code == 403
    assert "This task is not yours to act on." in answer.content.decode()
