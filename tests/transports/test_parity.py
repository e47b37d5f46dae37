"""The three ways in are one server: the same status, headers and bytes for the same request."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks import TaskContext
from tests.support.adapters import ADAPTERS, Wire

from .requests import Draft, draft

pytestmark = pytest.mark.usefixtures("open_to_all")


def changed(request: Draft, **headers: str) -> Draft:
    request.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
    return request


def dropped() -> Draft:
    request = draft("notifications/initialized", {})
    del request.message["id"]
    return request


def streamed() -> Draft:
    request = draft("tools/call", {"name": "steps", "arguments": {}})
    request.meta["progressToken"] = "p"
    return request


def broken() -> Draft:
    request = draft()
    request.body = b"{"
    return request


def got() -> Draft:
    request = draft()
    request.method = "GET"
    return request


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(draft, id="a call"),
        pytest.param(lambda: draft("tools/list", {}), id="a list"),
        pytest.param(lambda: draft("tools/call", {"name": "nowhere"}), id="an unknown tool"),
        pytest.param(lambda: draft("nowhere", {}, request_id="\ud800"), id="an unknown method"),
        pytest.param(dropped, id="a notification"),
        pytest.param(streamed, id="a stream"),
        pytest.param(lambda: changed(draft(), Accept="text/event-stream"), id="one event"),
        pytest.param(broken, id="no JSON"),
        pytest.param(got, id="another method"),
        pytest.param(lambda: changed(draft(), Authorization="Nope"), id="a credential"),
        pytest.param(lambda: changed(draft(), Content_Type="text/plain"), id="a media type"),
        pytest.param(lambda: changed(draft(), Accept="text/html"), id="nothing acceptable"),
        pytest.param(lambda: changed(draft(), Origin="http://evil.example.com"), id="an origin"),
        pytest.param(lambda: changed(draft(), Host="evil.example.com"), id="a host"),
    ],
)
def test_every_way_in_answers_alike(mcp_tools: Callable[..., Any], make: Callable[[], Draft]) -> None:
    @mcp_tools(task="never")
    def steps(ctx: TaskContext) -> str:
        ctx.progress("half", done=1, total=2)
        return "dön\u2028e"

    answers = []
    for adapter in ADAPTERS:
        answer = make().send(Wire(adapter))
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        answers.append((answer.status, headers, answer.body))
    assert answers[0] == answers[1] == answers[2]


def test_discover_differs_only_in_what_wsgi_cannot_do() -> None:
    view_wsgi, view_asgi, endpoint = (draft("server/discover", {}).send(Wire(adapter)) for adapter in ADAPTERS)
    assert (view_asgi.status, view_asgi.body) == (endpoint.status, endpoint.body)
    told = json.loads(endpoint.body)
    assert told["result"]["capabilities"]["tools"] == {"listChanged": True}
    told["result"]["capabilities"]["tools"] = {}
    assert (view_wsgi.status, json.loads(view_wsgi.body)) == (endpoint.status, told)
