"""``method`` and ``capability``: what a host project adds to the protocol."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks import DeferredTask, InputRequired, McpError, TaskContext, ToolError
from mcp_tasks.rpc import capability, method
from mcp_tasks.rpc.methods import table
from mcp_tasks.testing.client import McpClient
from tests.support.adapters import Wire
from tests.support.inprocess import rpc_client

from .questions import OPEN_FORM, ROOTS, accept, form


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(table, "methods", dict(table.methods))
    monkeypatch.setattr(table, "capabilities", {name: dict(value) for name, value in table.capabilities.items()})
    return


@pytest.fixture
def client() -> McpClient:
    """A caller who needs no database."""
    return rpc_client("alice")


def post(client: McpClient, name: str, params: Any = None, **headers: Any) -> tuple[int, dict[str, Any]]:
    answer = client.post(
        client.envelope(name, params), {key.replace("_", "-"): value for key, value in headers.items()}
    )
    (message,) = answer.messages()
    return answer.status, message.get("error") or message["result"]


def greeting(params: Any, context: TaskContext) -> Any:
    return {"description": None, "messages": [{"role": "user", "content": {"type": "text", "text": params["name"]}}]}


async def async_greeting(params: Any, context: TaskContext) -> Any:
    return greeting(params, context)


@pytest.mark.parametrize("function", [greeting, async_greeting])
def test_a_method_answers_with_its_object_and_the_members_of_every_result(
    client: McpClient, function: Callable[..., Any]
) -> None:
    assert method("prompts/get")(function) is function
    result = client.request("prompts/get", {"name": "hi"})
    assert result.pop("_meta").keys() == {"io.modelcontextprotocol/serverInfo"}
    assert result == {"resultType": "complete", **greeting({"name": "hi"}, None)}  # type: ignore[arg-type]


def test_a_method_announces_its_capability_and_others_may_be_announced_too(client: McpClient) -> None:
    method("prompts/get")(greeting)
    method("resources/read")(greeting)
    method("acme/count", capability="experimental")(greeting)
    capability("experimental", acme={"size": 3})
    capability("logging")
    assert client.request("server/discover")["capabilities"] == {
        "tools": {},
        "prompts": {},
        "resources": {},
        "experimental": {"acme": {"size": 3}},
        "logging": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }


def test_further_extensions_stand_beside_ours(client: McpClient, configure: Callable[..., None]) -> None:
    capability("extensions", **{"com.example/flags": {"a": 1}})
    both = {"com.example/flags": {"a": 1}, "io.modelcontextprotocol/tasks": {}}
    assert client.request("server/discover")["capabilities"]["extensions"] == both
    configure(ENABLED=False)
    assert client.request("server/discover")["capabilities"]["extensions"] == {"com.example/flags": {"a": 1}}


def test_settings_that_have_no_json_form_are_refused() -> None:
    with pytest.raises(ValueError):
        capability("experimental", acme=object())


@pytest.mark.parametrize("kind", ["call", "return"])
def test_a_method_that_may_ask_asks_and_goes_on_with_the_answers(client: McpClient, kind: str) -> None:
    @method("prompts/get")
    async def prompts_get(params: Any, context: TaskContext) -> Any:
        if kind == "return" and not context.answers:
            return InputRequired({"who": form("Who?", who="string")})
        who = context.ask({"who": form("Who?", who="string")})["who"]
        again = context.elicit("again", "Sure?", OPEN_FORM)
        return {"messages": [], "description": f"{who['content']['who']} {again['action']}"}

    params = {"name": "hi", "arguments": {"a": "1"}}
    first = client.request("prompts/get", params)
    assert first["resultType"] == "input_required"
    assert first["inputRequests"] == {"who": form("Who?", who="string")}
    assert not {"ttlMs", "cacheScope"} & first.keys()
    more = {"inputResponses": {"who": accept(who="Ada")}, "requestState": first["requestState"]}
    second = client.request("prompts/get", {**params, **more})
    assert second["inputRequests"].keys() == {"again"}
    more = {"inputResponses": {"again": {"action": "cancel"}}, "requestState": second["requestState"]}
    assert client.request("prompts/get", {**params, **more})["description"] == "Ada cancel"
    for changed in ({"name": "ho"}, {"arguments": {"a": "2"}}, {"inputResponses": {"again": {"action": "x"}}}):
        with pytest.raises(McpError) as refused:
            client.request("prompts/get", {**params, **more, **changed})
        assert refused.value.code == -32602
    with pytest.raises(McpError):
        client.request("prompts/get", {**params, "inputResponses": {"who": accept(who=5)}})


def test_the_state_of_one_method_is_good_for_no_other(client: McpClient) -> None:
    def ask(params: Any, context: TaskContext) -> Any:
        return {"messages": [str(context.roots("r"))]}

    method("prompts/get")(ask)
    method("acme/ask", asks=True, name_param="name")(ask)
    state = client.request("prompts/get", {"name": "x"})["requestState"]
    _, error = post(client, "acme/ask", {"name": "x", "requestState": state}, Mcp_Name="x")
    assert (error["code"], error["message"].split(";")[0]) == (-32602, "requestState belongs to another call")


def test_what_the_client_did_not_declare_is_not_asked(client: McpClient) -> None:
    @method("prompts/get")
    def prompts_get(params: Any, context: TaskContext) -> Any:
        return {"messages": [context.roots("r")]}

    status, error = post(client.declaring({"elicitation": {}}), "prompts/get", {"name": "x"})
    assert (status, error["code"], error["data"]) == (400, -32021, {"requiredCapabilities": {"roots": {}}})


def test_an_answered_question_that_is_returned_again_is_the_methods_fault(client: McpClient) -> None:
    method("prompts/get")(lambda params, context: InputRequired({"r": ROOTS}))
    first = client.request("prompts/get", {"name": "x"})
    params = {"name": "x", "inputResponses": {"r": {"roots": []}}, "requestState": first["requestState"]}
    assert post(client, "prompts/get", params)[1]["code"] == -32603


@pytest.mark.parametrize("name", ["prompts/list", "resources/list", "completion/complete", "acme/count"])
def test_a_method_that_may_not_ask_cannot(client: McpClient, name: str, caplog: pytest.LogCaptureFixture) -> None:
    @method(name)
    def nosy(params: Any, context: TaskContext) -> Any:
        return {"r": context.roots("r")}

    assert post(client, name)[1] == {"code": -32603, "message": "Internal error"}
    assert [record for record in caplog.records if record.levelname == "ERROR"]


def test_hints_for_caches_are_added_where_the_specification_wants_them(client: McpClient) -> None:
    method("prompts/list")(lambda params, context: {"prompts": []})
    method("resources/list")(lambda params, context: {"resources": [], "ttlMs": 5, "cacheScope": "public"})
    method("prompts/get")(greeting)
    method("acme/a", cacheable=True)(lambda params, context: {})
    method("acme/b")(lambda params, context: {})

    def hints(name: str, params: Any = None) -> tuple[Any, Any]:
        result = client.request(name, params)
        return result.get("ttlMs"), result.get("cacheScope")

    assert hints("prompts/list") == (0, "private")
    assert hints("resources/list") == (5, "public")
    assert hints("prompts/get", {"name": "x"}) == (None, None)
    assert hints("acme/a") == (0, "private")
    assert hints("acme/b") == (None, None)


def test_the_mirrored_name_is_checked_for_further_methods_too(client: McpClient) -> None:
    method("prompts/get")(greeting)
    method("resources/read")(lambda params, context: {"contents": []})
    method("acme/open", name_param="door")(lambda params, context: {})
    method("acme/shut")(lambda params, context: {})
    assert post(client, "prompts/get", {"name": "x"})[0] == 200
    assert post(client, "prompts/get", {"name": "x"}, Mcp_Name="y")[0] == 400
    assert post(client, "prompts/get", {"name": "x"}, Mcp_Name=None)[1]["code"] == -32020
    assert post(client, "resources/read", {"uri": "a://b?c=ä"})[0] == 200
    assert post(client, "resources/read", {"uri": "a://b"}, Mcp_Name="a://c")[1]["code"] == -32020
    assert post(client, "acme/open", {"door": "front"}, Mcp_Name="front")[0] == 200
    assert post(client, "acme/open", {"door": "front"}, Mcp_Name="back")[1]["code"] == -32020
    assert post(client, "acme/open", {"door": "front"})[1]["code"] == -32020
    assert post(client, "acme/shut", {"door": "front"}, Mcp_Name="back")[0] == 200


OURS = ["tools/call", "tools/list", "server/discover", "tasks/get", "tasks/update", "tasks/cancel"]


@pytest.mark.parametrize("name", [*OURS, "tasks/list", "tasks/result", "tasks/anything"])
def test_a_name_that_is_ours_or_reserved_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        method(name)(greeting)
    assert name not in table.methods or table.methods[name].function is None


def test_a_name_that_is_ours_is_refused_also_before_our_methods_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "methods", {})
    for name in OURS:
        with pytest.raises(ValueError, match=name):
            method(name)(greeting)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [],
        5,
        DeferredTask(start=print),
        {"at": object()},
        {"x": float("nan")},
        {"_meta": 5},
        {1: object()},
    ],
)
def test_what_is_no_result_object_is_the_methods_fault(client: McpClient, value: Any) -> None:
    method("acme/odd")(lambda params, context: value)
    assert post(client, "acme/odd") == (200, {"code": -32603, "message": "Internal error"})


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (McpError(-32602, "Unknown prompt", {"name": "x"}), 200, {"code": -32602, "message": "Unknown prompt"}),
        (McpError(-32021, "x", {"requiredCapabilities": {}}), 400, {"code": -32021, "message": "x"}),
        (McpError(5, "x", object()), 200, {"code": -32603, "message": "Internal error"}),
        (RuntimeError("hunter2"), 200, {"code": -32603, "message": "Internal error"}),
        (ToolError("hunter2"), 200, {"code": -32603, "message": "Internal error"}),
        (KeyboardInterrupt(), 200, {"code": -32603, "message": "Internal error"}),
    ],
)
def test_what_a_method_raises_is_an_error_of_the_call(
    client: McpClient, raised: BaseException, status: int, error: dict[str, Any]
) -> None:
    @method("acme/odd")
    def odd(params: Any, context: TaskContext) -> Any:
        raise raised

    found_status, found = post(client, "acme/odd")
    found.pop("data", None)
    assert (found_status, found) == (status, error)


def test_a_method_knows_its_caller_and_its_params(client: McpClient) -> None:
    seen: list[Any] = []

    @method("acme/look")
    def look(params: Any, context: TaskContext) -> Any:
        seen.append((params, context.owner, context.ref, context.leg, context.user))
        context.become_task()
        return {}

    client.request("acme/look", {"a": [1, None]}, mark=1)
    params, owner, ref, leg, user = seen[0]
    assert params["a"] == [1, None]
    assert params["_meta"]["mark"] == 1
    assert owner.label == "alice"
    assert (ref, leg, user) == (None, 0, None)


def test_a_method_is_served_to_the_older_era_without_the_newer_members(client: McpClient) -> None:
    from .test_legacy import code, result, send

    method("prompts/list")(lambda params, context: {"prompts": []})

    @method("prompts/get")
    def prompts_get(params: Any, context: TaskContext) -> Any:
        context.roots("r")
        return {}

    assert result("prompts/list") == {"prompts": []}
    assert result("initialize", {"protocolVersion": "2025-11-25"})["capabilities"] == {"tools": {}, "prompts": {}}
    assert code("prompts/get", {"name": "x"}) == (200, -32603)
    assert b"2026-07-28 only" in send("prompts/get", {"name": "x"}).body


def test_over_http_a_method_may_report_progress_first(wire: Wire, configure: Callable[..., None]) -> None:
    from tests.transports.requests import draft

    configure(ALLOW_ANONYMOUS=True)

    @method("acme/slow")
    async def slow(params: Any, context: TaskContext) -> Any:
        context.progress("half", done=1, total=2)
        return {"done": True}

    request = draft("acme/slow", {})
    request.meta["progressToken"] = "p"
    answer = request.send(wire)
    note, last = answer.messages()
    assert note["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    assert last["result"]["done"] is True
    assert request.send(wire).headers["content-type"] == "text/event-stream"
