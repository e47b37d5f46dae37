"""Of two faults in one request the earlier step of the ladder is reported, with its status, its code and the id."""

import itertools
from collections.abc import Callable

import pytest

from mcp_tasks import TaskContext
from tests.support.adapters import Wire

from .requests import CAPABILITIES_KEY, VERSION_KEY, Draft, Spoil, draft, error_of

REQUEST_BYTES = 2048


@pytest.fixture(autouse=True)
def _open_to_all(configure: Callable[..., None]) -> None:
    configure(ALLOW_ANONYMOUS=True, LIMITS={"REQUEST_BYTES": REQUEST_BYTES})


def host(request: Draft) -> None:
    request.headers["Host"] = "evil.example.com"


def origin(request: Draft) -> None:
    request.headers["Origin"] = "http://evil.example.com"


def http_method(request: Draft) -> None:
    request.method = "PUT"


def credential(request: Draft) -> None:
    request.headers["Authorization"] = "Basic bm86Ym9keQ=="


def size(request: Draft) -> None:
    request.body = request.text + b" " * REQUEST_BYTES


def content_type(request: Draft) -> None:
    request.headers["Content-Type"] = "text/plain"


def accept(request: Draft) -> None:
    request.headers["Accept"] = "text/html"


def text(request: Draft) -> None:
    request.body = b'{"jsonrpc": "2.0", "id": "r-1", '


def envelope(request: Draft) -> None:
    request.message["jsonrpc"] = "1.0"


def no_id(request: Draft) -> None:
    request.message.pop("id")


def meta(request: Draft) -> None:
    del request.meta[CAPABILITIES_KEY]


def mirrored_header(request: Draft) -> None:
    request.headers["Mcp-Method"] = "tools/list"


def version(request: Draft) -> None:
    request.meta[VERSION_KEY] = request.headers["MCP-Protocol-Version"] = "2030-01-01"


def method(request: Draft) -> None:
    request.message["method"] = request.headers["Mcp-Method"] = "tools/destroy"


#: The steps in order: what is spoiled, HTTP status, JSON-RPC code, whether the error names the request.
STEPS: list[tuple[Spoil, int, int | None, bool]] = [
    (host, 403, -32600, False),
    (origin, 403, -32600, False),
    (http_method, 405, -32600, False),
    (credential, 401, -32600, False),
    (size, 413, -32600, False),
    (content_type, 415, -32600, False),
    (accept, 406, -32600, False),
    (text, 400, -32700, False),
    (envelope, 400, -32600, True),
    (no_id, 202, None, False),
    (meta, 400, -32602, True),
    (mirrored_header, 400, -32020, True),
    (version, 400, -32022, True),
    (method, 404, -32601, True),
]
PAIRS = [(*first, second[0]) for first, second in itertools.pairwise(STEPS)]


def test_a_request_without_a_fault_is_served(wire: Wire) -> None:
    answer = draft().send(wire)
    assert answer.status == 200
    (message,) = answer.messages()
    assert message["id"] == "r-1"
    assert message["result"]["content"] == [{"type": "text", "text": "5"}]


@pytest.mark.parametrize(("spoil", "status", "code", "named"), STEPS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_fault_alone_has_its_status_its_code_and_the_id(
    wire: Wire, spoil: Spoil, status: int, code: int | None, named: bool
) -> None:
    request = draft()
    spoil(request)
    answer = request.send(wire)
    assert error_of(answer) == (status, code, "r-1" if named else None)
    if answer.body and not named:
        assert "id" not in answer.messages()[0]


@pytest.mark.parametrize(
    ("spoil", "status", "code", "named", "later"), PAIRS, ids=lambda value: getattr(value, "__name__", "")
)
def test_of_two_neighbouring_faults_the_earlier_wins(
    wire: Wire, spoil: Spoil, status: int, code: int | None, named: bool, later: Spoil
) -> None:
    request = draft()
    later(request)
    spoil(request)
    # An invalid envelope without an id cannot be named in its error.
    named = named and "id" in request.message
    assert error_of(request.send(wire)) == (status, code, "r-1" if named else None)


@pytest.mark.parametrize("first", range(len(STEPS)))
def test_the_first_fault_wins_over_all_that_follow_together(wire: Wire, first: int) -> None:
    request = draft()
    spoil, status, code, named = STEPS[first]
    for later, *_ in reversed(STEPS[first:]):
        # A notification is dropped whatever its body says, but not in a version that we do not speak.
        if not (spoil is no_id and later is version):
            later(request)
    named = named and "id" in request.message
    assert error_of(request.send(wire)) == (status, code, "r-1" if named else None)


def test_a_credential_nobody_accepts_is_challenged_before_the_body_is_looked_at(wire: Wire) -> None:
    request = draft()
    credential(request)
    text(request)
    answer = request.send(wire)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def without_tasks(request: Draft) -> Draft:
    request.meta[CAPABILITIES_KEY] = {"elicitation": {}}
    return request


def misnamed(request: Draft) -> Draft:
    request.headers["Mcp-Name"] = "another"
    return request


def talkative(request: Draft) -> Draft:
    request.meta["io.modelcontextprotocol/logLevel"] = "shouting"
    return request


def call(name: str, arguments: object) -> Draft:
    return draft("tools/call", {"name": name, "arguments": arguments})


@pytest.mark.parametrize(
    ("make", "status", "code"),
    [
        pytest.param(lambda: without_tasks(draft("tasks/list", {})), 404, -32601, id="method, capability"),
        pytest.param(lambda: draft("tasks/result", {"taskId": "x"}), 404, -32601, id="method, missing name"),
        pytest.param(lambda: talkative(draft("ping", {})), 404, -32601, id="removed method, log level"),
        pytest.param(lambda: misnamed(without_tasks(draft("tasks/get", {"taskId": "x"}))), 400, -32020, id="name, cap"),
        pytest.param(lambda: without_tasks(draft("tasks/get", {"taskId": "x"})), 400, -32021, id="capability, task"),
        pytest.param(lambda: without_tasks(draft("tasks/get", {"taskId": 5})), 400, -32021, id="capability, shape"),
        pytest.param(lambda: without_tasks(draft("tasks/update", {})), 400, -32021, id="capability, responses"),
        pytest.param(lambda: talkative(without_tasks(draft("tasks/cancel", {}))), 400, -32021, id="capability, level"),
        pytest.param(lambda: talkative(draft("tasks/get", {"taskId": 5})), 200, -32602, id="log level"),
        pytest.param(lambda: draft("tools/call", {"name": 5, "arguments": []}), 200, -32602, id="shape of a call"),
        pytest.param(lambda: misnamed(call("nowhere", {})), 400, -32020, id="name, tool"),
        pytest.param(lambda: call("nowhere", {"a": "?"}), 200, -32602, id="tool, arguments"),
        pytest.param(lambda: without_tasks(call("mirrored", {"region": "eu"})), 400, -32020, id="param header, cap"),
        pytest.param(lambda: without_tasks(call("task_only", {"n": "?"})), 400, -32021, id="capability, arguments"),
    ],
)
def test_the_steps_of_a_method_come_in_their_order(
    wire: Wire, mcp_tools: Callable[..., None], make: Callable[[], Draft], status: int, code: int
) -> None:
    register_tools(mcp_tools)
    assert error_of(make().send(wire)) == (status, code, "r-1")


def register_tools(tool: Callable[..., Callable[[Callable[..., str]], object]]) -> None:
    region = {"type": "string", "x-mcp-header": "Region"}

    @tool(task="required", input_schema={"type": "object", "properties": {"region": region}})
    def mirrored(region: str = "") -> str:
        return region

    @tool(task="required")
    def task_only(n: int, ctx: TaskContext) -> str:
        return str(n)


def test_a_method_of_an_extension_that_is_switched_off_does_not_exist(
    wire: Wire, configure: Callable[..., None]
) -> None:
    configure(ENABLED=False)
    assert error_of(without_tasks(draft("tasks/get", {"taskId": "x"})).send(wire)) == (404, -32601, "r-1")
