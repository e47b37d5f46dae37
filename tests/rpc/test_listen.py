"""``subscriptions/listen`` in the dispatcher: what is decided before any transport opens a stream."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mcp_tasks.access.owners import Owner
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from mcp_tasks.protocol.codec import dumps, loads
from mcp_tasks.rpc.caller import Caller
from mcp_tasks.rpc.dispatch import serve
from mcp_tasks.rpc.methods import method, table
from mcp_tasks.rpc.requests import Listen, Reply
from mcp_tasks.store import DatabaseTaskStore
from mcp_tasks.testing.client import ALL_CAPABILITIES, HttpAnswer, McpClient
from tests.store.statements import counted

pytestmark = pytest.mark.django_db

ALICE = Owner(("test", "alice"), "Alice")
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def ask(params: Any, *, pushes: bool = True, capabilities: Any = None, request_id: Any = "L") -> Any:
    """What the dispatcher makes of a request of Alice's, on a transport without headers."""
    client = McpClient(lambda body, headers: HttpAnswer(0, {}, b""), capabilities=capabilities or ALL_CAPABILITIES)
    message = {**client.envelope("subscriptions/listen", params), "id": request_id}
    if capabilities is not None:
        message["params"]["_meta"][CAPABILITIES] = capabilities
    return serve(dumps(message), Caller(ALICE), None, pushes=pushes)


def code(answer: Any) -> tuple[int, int]:
    assert isinstance(answer, Reply)
    return answer.status, loads(answer.body or "")["error"]["code"]


def accepted(answer: Any) -> Any:
    assert isinstance(answer, Listen)
    text = answer.subscription.acknowledgement.text(answer.subscription.id_text)
    return loads(text)["params"]["notifications"]


@pytest.fixture
def further() -> Iterator[None]:
    """A project that serves prompts as well."""
    before = dict(table.methods), {name: dict(value) for name, value in table.capabilities.items()}
    method("prompts/list")(lambda params, context: {"prompts": []})
    yield
    table.methods, table.capabilities = before


def test_the_order_of_faults_is_transport_then_extension_then_filter() -> None:
    wrong = {"notifications": {"taskIds": [1]}}
    assert code(ask(wrong, pushes=False, capabilities={})) == (404, -32601)
    assert code(ask(wrong, capabilities={})) == (400, -32021)
    assert code(ask(wrong)) == (200, -32602)


def test_deciding_starts_nothing_and_takes_no_place() -> None:
    created = DatabaseTaskStore().create_task("report", {}, owner=ALICE, durable=False)
    answer = ask({"notifications": {"taskIds": [created.task_id], "toolsListChanged": True}})
    assert accepted(answer) == {"toolsListChanged": True, "taskIds": [created.task_id]}
    assert hub.count() == 0
    assert places.count() == 0


def test_without_ids_nothing_is_queried() -> None:
    with counted() as statements:
        assert accepted(ask({"notifications": {"toolsListChanged": True, "taskIds": []}})) == {"toolsListChanged": True}
    assert statements == []


@pytest.mark.parametrize("count", [1, 50])
def test_any_number_of_own_ids_is_one_query(count: int) -> None:
    store = DatabaseTaskStore()
    ids = [store.create_task("report", {}, owner=ALICE, durable=False).task_id for _ in range(count)]
    with counted() as statements:
        assert accepted(ask({"notifications": {"taskIds": ids}})) == {"taskIds": ids}
    assert len(statements) == 1


def test_prompts_are_told_only_where_the_project_serves_them(further: None) -> None:
    wanted = {"notifications": {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}}
    assert accepted(ask(wanted)) == {"toolsListChanged": True, "promptsListChanged": True}


def test_what_the_project_serves_is_announced_as_changing_where_it_is_told(further: None) -> None:
    told = table.server_capabilities(pushes=True)
    assert (told["tools"], told["prompts"]) == ({"listChanged": True}, {"listChanged": True})
    assert "resources" not in told
    plain = table.server_capabilities(pushes=False)
    assert (plain["tools"], plain["prompts"]) == ({}, {})
    assert table.capabilities["tools"] == {}, "announcing changes nothing"


@pytest.mark.parametrize("configured", [True, False])
def test_a_project_cannot_replace_the_method(configured: bool, configure: Callable[..., None]) -> None:
    configure(ENABLED=configured)
    with pytest.raises(ValueError, match="served by mcp_tasks"):
        method("subscriptions/listen")


@pytest.mark.parametrize("request_id", ["L", 5, ""])
def test_the_subscription_has_the_id_of_its_request(request_id: Any) -> None:
    answer = ask({"notifications": {}}, request_id=request_id)
    assert answer.subscription.id == request_id
    assert type(answer.subscription.id) is type(request_id)


@pytest.mark.parametrize("too_long", ["x" * 1025, 10**1024])
def test_an_id_that_is_too_long_to_be_kept_opens_nothing(too_long: Any) -> None:
    answer = ask({"notifications": {}}, request_id=too_long)
    assert code(answer) == (400, -32600)
    assert loads(answer.body)["id"] == too_long
    kept = ask({"notifications": {}}, request_id=too_long[:-1] if isinstance(too_long, str) else too_long // 10)
    assert isinstance(kept, Listen)
