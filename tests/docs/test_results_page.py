"""docs/reference/results.md: each kind of value and exception becomes what the table says."""

from collections.abc import Callable

import pytest

from mcp_tasks import McpError
from mcp_tasks.protocol.codec import Json
from mcp_tasks.testing import McpClient, run_until_idle

PAGE = "docs/reference/results.md"


@pytest.fixture
def plain(ada: McpClient) -> McpClient:
    """A caller whose calls are answered at once."""
    return ada.declaring({})


def test_a_dataclass_is_structured_and_repeated_as_text(plain: McpClient) -> None:
    result = plain.call_tool("stock", {"item": "lamp"})
    assert result["structuredContent"] == {"item": "lamp", "pieces": 12}
    assert result["content"] == [{"type": "text", "text": '{"item":"lamp","pieces":12}'}]


def test_blocks_are_content_and_a_result_by_hand_is_as_it_is(plain: McpClient) -> None:
    assert [block["type"] for block in plain.call_tool("picture", {"item": "lamp"})["content"]] == ["text", "image"]
    quiet = plain.call_tool("quiet", {"item": "lamp"})
    assert quiet["structuredContent"] == {"item": "lamp"}
    assert quiet["_meta"]["shop.example/shelf"] == 4


def test_a_tool_error_completes_and_an_mcp_error_fails(ada: McpClient, plain: McpClient) -> None:
    assert plain.call_tool("stock", {"item": "unicorn"})["isError"]
    with pytest.raises(McpError) as raised:
        plain.call_tool("locked", {"item": "lamp"})
    assert raised.value.data == {"until": "18:00"}
    first, second = ada.call_tool("stock", {"item": "unicorn"}), ada.call_tool("locked", {"item": "lamp"})
    run_until_idle()
    completed, failed = ada.get_task(first["taskId"]), ada.get_task(second["taskId"])
    assert completed["status"] == "completed"
    assert completed["result"]["content"][0]["text"] == "There is no such item. Ask for a list first."
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": -32000, "message": "The stock is being counted", "data": {"until": "18:00"}}


@pytest.mark.parametrize(
    ("value", "content"),
    [(3, "3"), (True, "true"), ([1, "a"], '[1,"a"]'), ({"a": 1}, '{"a":1}'), ("text", "text"), (None, None)],
)
def test_plain_values_are_text(
    plain: McpClient, mcp_tools: Callable[..., object], value: Json, content: str | None
) -> None:
    def give() -> Json:
        """Give."""
        return value

    mcp_tools(give)
    result = plain.call_tool("give")
    assert result["content"] == ([] if content is None else [{"type": "text", "text": content}])
    assert result.get("structuredContent") == (value if isinstance(value, dict) else None)


def test_any_other_exception_says_nothing_of_itself(plain: McpClient, mcp_tools: Callable[..., object]) -> None:
    @mcp_tools
    def burst() -> str:
        """Burst."""
        raise RuntimeError("a secret")

    result = plain.call_tool("burst")
    assert result["isError"]
    assert "secret" not in str(result)
