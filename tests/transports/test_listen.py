"""``subscriptions/listen`` over HTTP: what is accepted, what is sent, in which order, and what never is."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.notifications import list_changed
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.subscription import end_all
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.rpc.methods import table
from mcp_tasks.store import CreatedTask, get_store
from mcp_tasks.testing import rewind
from mcp_tasks.testing.contract_support import question
from tests.support.adapters import Wire, make_client
from tests.support.push import soon

from .listens import ACKNOWLEDGED, SUBSCRIPTION_ID, TASKS, Listening, listen_draft, listening, status_of, streaming
from .requests import CAPABILITIES_KEY, draft, error_of

__all__ = ["listening", "streaming"]

RESULT = {"content": [{"type": "text", "text": "done"}]}
MakeTask = Callable[..., CreatedTask]
UNKNOWN, MALFORMED = "A" * 43, "no id at all\x00"


# -- what is accepted ---------------------------------------------------------------------------------------------


def test_the_acknowledgement_comes_first_with_own_present_tasks_once_in_the_clients_order(
    listening: Listening, task: MakeTask
) -> None:
    first, second = sorted((task(), task()), key=lambda made: made.task_id, reverse=True)
    foreign, unowned, old = task("bob"), task(None), task(ttl_ms=100_000)
    rewind(old.ref, 101)
    wanted = [foreign.task_id, first.task_id, UNKNOWN, second.task_id, first.task_id, old.task_id, MALFORMED, ""]
    stream = listening.open(taskIds=[*wanted, unowned.task_id, second.task_id])
    assert stream.next() == {
        "jsonrpc": "2.0",
        "method": ACKNOWLEDGED,
        "params": {
            "notifications": {"taskIds": [first.task_id, second.task_id]},
            "_meta": {SUBSCRIPTION_ID: "L-1"},
        },
    }


def test_where_no_task_remains_the_key_is_left_out_and_the_stream_stays_open(
    listening: Listening, task: MakeTask
) -> None:
    stream = listening.open(taskIds=[task("bob").task_id, UNKNOWN])
    assert stream.next()["params"]["notifications"] == {}
    assert stream.is_silent()


@pytest.mark.parametrize("of", ["foreign", "unowned", "unknown", "malformed", "expired", "swept", "purged"])
def test_every_id_that_is_not_the_callers_own_and_present_gets_the_same_bytes(
    listening: Listening, task: MakeTask, configure: Callable[..., None], of: str
) -> None:
    configure(RETENTION_SECONDS=0, TOMBSTONE_SECONDS=0)
    made = task({"foreign": "bob", "unowned": None}.get(of, "alice"), ttl_ms=100_000)
    if of in ("expired", "swept", "purged"):
        rewind(made.ref, 101)
    if of in ("swept", "purged"):
        get_store().expire()
    if of == "purged":
        get_store().purge()
    task_id = {"unknown": UNKNOWN, "malformed": MALFORMED}.get(of, made.task_id)
    stream, nothing = listening.open(taskIds=[task_id]), listening.open()
    assert stream.event() == nothing.event()
    assert stream.body == nothing.body


def test_nothing_is_ever_sent_of_a_task_that_was_left_out(listening: Listening, task: MakeTask) -> None:
    own, foreign, unowned = task(), task("bob"), task(None)
    stream = listening.open(taskIds=[foreign.task_id, own.task_id, unowned.task_id])
    store = get_store()
    for made in (foreign, unowned, own):
        store.set_status(made.ref, "Reading")
        store.complete_task(made.ref, RESULT)
    sent = stream.until(lambda message: status_of(message) == "completed")
    assert {message["params"]["taskId"] for message in sent[1:]} == {own.task_id}
    assert stream.is_silent()


@pytest.mark.parametrize("holder", ["alice", None])
@pytest.mark.parametrize("caller", ["alice", "bob", None])
def test_no_owner_is_an_owner_like_any_other(
    listening: Listening, task: MakeTask, open_to_all: None, holder: str | None, caller: str | None
) -> None:
    made = task(holder)
    accepted = listening.open(caller, taskIds=[made.task_id]).next()["params"]["notifications"]
    assert accepted == ({"taskIds": [made.task_id]} if holder == caller else {})


def test_a_foreign_id_is_logged_and_an_unknown_one_is_not(
    listening: Listening, task: MakeTask, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = task("bob")
    with caplog.at_level(logging.WARNING, "mcp_tasks.access"):
        listening.open(taskIds=[UNKNOWN]).next()
        assert not caplog.records
        listening.open(taskIds=[foreign.task_id]).next()
    (record,) = caplog.records
    assert (record.event, record.reason, record.ref) == ("access_refused", "owner", str(foreign.ref))  # type: ignore[attr-defined]
    assert foreign.task_id not in caplog.text


def test_a_thousand_ids_are_accepted_and_one_more_is_refused(listening: Listening, task: MakeTask) -> None:
    own = task()
    ids = [f"{number:043d}" for number in range(999)]
    assert listening.open(taskIds=[*ids, own.task_id]).next()["params"]["notifications"] == {"taskIds": [own.task_id]}
    refused = listening.open(taskIds=[*ids, own.task_id, UNKNOWN])
    assert (refused.status, refused.whole()["error"]["code"]) == (200, -32602)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "notifications",
    [
        *[{"taskIds": wrong} for wrong in ("T", None, 1, True, {}, {"0": "T"}, ["T", 1], [None], [["T"]])],
        *[
            {kind: wrong}
            for kind in ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
            for wrong in ("true", None, 1, 0, {}, [])
        ],
        *[{"resourceSubscriptions": wrong} for wrong in ("file:///x", None, True, {}, [1], [None])],
        None,
        [],
        "all",
        True,
        0,
    ],
)
def test_a_field_of_another_type_refuses_the_whole_request_before_a_stream(
    listening: Listening, open_to_all: None, notifications: Any
) -> None:
    refused = listening.send(listen_draft(notifications))
    assert refused.status == 200
    answer = refused.whole()
    assert (answer["id"], answer["error"]["code"]) == ("L-1", -32602)


def test_the_filter_is_required(listening: Listening, open_to_all: None) -> None:
    request = listen_draft({})
    del request.params["notifications"]
    assert listening.send(request).whole()["error"]["code"] == -32602


def test_fields_that_nobody_knows_ask_for_nothing(listening: Listening, open_to_all: None) -> None:
    stream = listening.open(None, weatherChanged=True, resourceSubscriptions=["file:///x"], toolsListChanged=False)
    assert stream.next()["params"]["notifications"] == {}


@pytest.mark.parametrize("capabilities", [{}, {"extensions": {}}, {"extensions": {"other": {}}}])
def test_tasks_need_the_extension_and_nothing_else_does(
    listening: Listening, task: MakeTask, token: Callable[[str], str], capabilities: Any
) -> None:
    task_id = task().task_id
    for ids, status in (([task_id], 400), ([UNKNOWN], 400), ([], 200)):
        request = listen_draft({"taskIds": ids, "toolsListChanged": True}, token=token("alice"))
        request.meta[CAPABILITIES_KEY] = capabilities
        stream = listening.send(request)
        assert stream.status == status
        if status == 200:
            assert stream.next()["params"]["notifications"] == {"toolsListChanged": True}
        else:
            error = stream.whole()["error"]
            assert error["code"] == -32021
            assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@pytest.mark.parametrize("accept", ["application/json", "application/*", "text/event-stream;q=0, */*"])
def test_who_cannot_read_a_stream_is_told_so_and_takes_no_place(
    listening: Listening, token: Callable[[str], str], configure: Callable[..., None], accept: str
) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 1})
    request = listen_draft({"toolsListChanged": True}, token=token("alice"))
    request.headers["Accept"] = accept
    for _ in range(2):
        refused = listening.send(request)
        assert refused.status == 406
        assert "text/event-stream" in refused.whole()["error"]["message"]
    assert listening.open(toolsListChanged=True).next()["method"] == ACKNOWLEDGED


def test_a_stream_alone_may_be_accepted(listening: Listening, open_to_all: None) -> None:
    request = listen_draft({})
    request.headers["Accept"] = "text/event-stream"
    assert listening.send(request).next()["method"] == ACKNOWLEDGED


def test_a_server_that_cannot_push_says_what_could(open_to_all: None) -> None:
    answer = listen_draft({"toolsListChanged": True}).send(Wire("view-wsgi"))
    assert error_of(answer) == (404, -32601, "L-1")
    assert "ASGI" in answer.messages()[0]["error"]["message"]


@pytest.mark.parametrize("version", [None, "2025-11-25"])
def test_the_older_era_has_no_such_method(wire: Wire, open_to_all: None, version: str | None) -> None:
    request = draft("subscriptions/listen", {"notifications": {}})
    del request.params["_meta"]
    request.headers = {"Content-Type": "application/json"}
    if version is not None:
        request.headers["MCP-Protocol-Version"] = version
    assert error_of(request.send(wire)) == (200, -32601, "r-1")


def test_changed_lists_are_announced_only_where_they_are_told(wire: Wire, open_to_all: None, adapter: str) -> None:
    (message,) = draft("server/discover", {}).send(wire).messages()
    told = {} if adapter == "view-wsgi" else {"listChanged": True}
    assert message["result"]["capabilities"]["tools"] == told


def test_without_the_extension_lists_are_still_told_and_tasks_are_not(
    listening: Listening, task: MakeTask, configure: Callable[..., None]
) -> None:
    made = task()
    configure(ENABLED=False)
    stream = listening.open(taskIds=[made.task_id], toolsListChanged=True)
    assert stream.next()["params"]["notifications"] == {"toolsListChanged": True}
    list_changed("tools")
    assert stream.next()["method"] == "notifications/tools/list_changed"


# -- the subscription's id ----------------------------------------------------------------------------------------

IDS = ["L-1", "", "1", 1, 0, -5, 2**60, 'q"\\uote', "\u2028 and \x85 and \u2029", "\ud800", "\n\r\n\ndata: x", "💡"]


@pytest.mark.parametrize("request_id", IDS)
def test_every_message_carries_the_id_of_the_request_in_its_own_type(
    listening: Listening, task: MakeTask, request_id: Any
) -> None:
    made = task()
    stream = listening.open(request_id=request_id, taskIds=[made.task_id], toolsListChanged=True)
    messages = [stream.next(), stream.next()]
    list_changed("tools")
    messages.append(stream.next())
    get_store().complete_task(made.ref, RESULT)
    messages.append(stream.next())
    end_all()
    (result,) = stream.rest()
    ids = [message["params"]["_meta"][SUBSCRIPTION_ID] for message in messages]
    ids += [result["id"], result["result"]["_meta"][SUBSCRIPTION_ID]]
    assert ids == [request_id] * 6
    assert {type(found) for found in ids} == {type(request_id)}
    for line in stream.body.decode("utf-8", "surrogatepass").splitlines():
        assert line in ("", "event: message") or line.startswith("data: {"), "no text of a client ends a line"


# -- states of tasks ----------------------------------------------------------------------------------------------


def _shown(task_id: str, name: str, token: Callable[[str], str]) -> Any:
    return make_client("endpoint", token=token(name)).get_task(task_id)


@pytest.mark.parametrize("state", ["queued", "progress", "asked", "completed", "failed", "cancelled", "strange"])
def test_the_present_state_follows_the_acknowledgement_and_is_what_a_poll_would_show(
    listening: Listening, task: MakeTask, token: Callable[[str], str], state: str
) -> None:
    store = get_store()
    made = task(meta={"com.example/k": {"deep": [1, None]}, "b": 2, "a": 1})
    ref = made.ref
    {
        "queued": lambda: None,
        "progress": lambda: store.set_status(ref, "Half\u2028 way", done=1, total=2.5),
        "asked": lambda: store.require_input(ref, {"z": question("Z?"), "a": question("A?")}, "Sure?"),
        "completed": lambda: store.complete_task(ref, RESULT, status_message="Done"),
        "failed": lambda: store.fail_task(ref, McpError(4711, "no", {"k": [1.5, 2**53 + 1]})),
        "cancelled": lambda: store.cancel_task(ref, "why"),
        "strange": lambda: store.complete_task(ref, {"content": [], "x\u2028\x85": "\ud800\x00", "n": 10**30}),
    }[state]()
    stream = listening.open(taskIds=[made.task_id])
    assert stream.next()["method"] == ACKNOWLEDGED
    message = stream.next()
    polled = _shown(made.task_id, "alice", token)
    assert (polled.pop("resultType"), message["method"]) == ("complete", TASKS)
    meta, own_meta = polled.pop("_meta"), message["params"].pop("_meta")
    assert message["params"] == polled
    assert list(message["params"]) == list(polled), "members come in the same order"
    assert own_meta.pop(SUBSCRIPTION_ID) == "L-1"
    del meta["io.modelcontextprotocol/serverInfo"]
    assert own_meta == meta
    assert {"com.example/k", "b", "a"} <= set(meta)
    if state in ("completed", "failed", "cancelled", "strange"):
        assert stream.is_silent(), "there is nothing after an outcome"


def test_each_change_of_status_is_told_in_order_and_the_outcome_exactly_once(
    listening: Listening, task: MakeTask
) -> None:
    store, made = get_store(), task()
    stream = listening.to(made.task_id)
    store.require_input(made.ref, {"sure": question()})
    assert status_of(stream.next()) == "input_required"
    store.apply_input_responses(made.ref, {"sure": {"action": "decline"}})
    assert status_of(stream.next()) == "working"
    assert store.complete_task(made.ref, RESULT)
    assert status_of(stream.next()) == "completed"
    store.cancel_task(made.ref)
    store.fail_task(made.ref, McpError(1, "late"))
    store.set_ttl(made.ref, 7_200_000)
    assert stream.is_silent(1.0)
    assert hub.count() == 0, "nothing is watched for a task that is over"


def test_a_task_that_changes_without_end_still_shows_rising_states_and_its_outcome(
    listening: Listening, task: MakeTask
) -> None:
    store, made = get_store(), task()
    stream = listening.to(made.task_id)
    for number in range(1, 101):
        store.set_status(made.ref, f"at {number}", done=number)
    store.complete_task(made.ref, RESULT)
    sent = stream.until(lambda message: status_of(message) == "completed")
    shown = [message["params"]["_meta"].get("django-mcp-tasks/progress", {}).get("done", 0) for message in sent]
    assert shown == sorted(shown)
    assert len(sent) < 60, "progress is coalesced"
    assert stream.is_silent()


@pytest.mark.parametrize("how", ["expired", "swept", "purged", "discarded"])
def test_a_task_that_is_gone_is_dropped_without_a_word(
    listening: Listening, task: MakeTask, configure: Callable[..., None], how: str
) -> None:
    configure(RETENTION_SECONDS=0, TOMBSTONE_SECONDS=0)
    store, made, other = get_store(), task(ttl_ms=100_000), task()
    stream = listening.to(made.task_id, other.task_id)
    if how == "discarded":
        store.discard_task(made.ref)
    else:
        rewind(made.ref, 101)
    if how in ("swept", "purged"):
        store.expire()
    if how == "purged":
        store.purge()
    assert soon(lambda: hub.count() == 1), "nobody watches it any more"
    assert stream.is_silent(0.1)
    store.complete_task(other.ref, RESULT)
    assert stream.next()["params"]["taskId"] == other.task_id
    assert stream.is_silent(0.1)


def test_neither_progress_nor_log_messages_come_on_a_listening_stream(
    listening: Listening, task: MakeTask, token: Callable[[str], str]
) -> None:
    made = task()
    request = listen_draft({"taskIds": [made.task_id], "toolsListChanged": True}, token=token("alice"))
    request.meta.update({"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"})
    stream = listening.send(request)
    alice = make_client("endpoint", token=token("alice"))
    alice.call_tool("echo", {"text": "x"})
    alice.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, progressToken="p")
    get_store().set_status(made.ref, "Reading", done=1)
    get_store().complete_task(made.ref, RESULT)
    sent = stream.until(lambda message: status_of(message) == "completed")
    assert {message["method"] for message in sent} == {ACKNOWLEDGED, TASKS}


def test_a_task_of_another_tool_made_meanwhile_is_not_told(listening: Listening, task: MakeTask) -> None:
    made = task()
    stream = listening.to(made.task_id)
    other = task()
    get_store().complete_task(other.ref, RESULT)
    assert stream.is_silent()


# -- lists --------------------------------------------------------------------------------------------------------


def test_a_changed_list_is_told_to_who_asked_for_it_and_to_nobody_else(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.capabilities, "prompts", {})
    tools, prompts = listening.open(toolsListChanged=True), listening.open("bob", promptsListChanged=True)
    nothing = listening.open(toolsListChanged=False)
    assert tools.next()["params"]["notifications"] == {"toolsListChanged": True}
    assert prompts.next()["params"]["notifications"] == {"promptsListChanged": True}
    assert nothing.next()["params"]["notifications"] == {}
    list_changed("tools")
    assert tools.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": {SUBSCRIPTION_ID: "L-1"}},
    }
    list_changed("resources")
    list_changed("prompts")
    assert prompts.next()["method"] == "notifications/prompts/list_changed"
    assert tools.is_silent()
    assert nothing.is_silent(0.05)


def test_lists_that_the_project_does_not_serve_are_left_out(listening: Listening) -> None:
    stream = listening.open(toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True)
    assert stream.next()["params"]["notifications"] == {"toolsListChanged": True}
    list_changed("prompts")
    list_changed("resources")
    assert stream.is_silent()
