"""HTTP methods, media types and sizes: what is refused before the text is read."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import RequestFactory

from mcp_tasks.transports.http.negotiation import accepted
from mcp_tasks.transports.http.view import mcp
from tests.support.adapters import ADAPTERS, Wire

from .requests import Draft, draft, error_of

pytestmark = pytest.mark.usefixtures("open_to_all")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])
def test_only_post_is_served(wire: Wire, method: str) -> None:
    request = draft()
    request.method = method
    answer = request.send(wire)
    assert answer.status == 405
    assert answer.headers["allow"] == "POST"
    if method != "HEAD":
        assert error_of(answer) == (405, -32600, None)


def test_a_client_that_opens_the_older_stream_is_told_there_is_none(wire: Wire) -> None:
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": "x", "Last-Event-ID": "1"}
    assert wire.send(b"", headers, method="GET").status == 405


def test_session_headers_of_older_revisions_mean_nothing(wire: Wire) -> None:
    request = draft()
    request.headers |= {"Mcp-Session-Id": "x", "Last-Event-ID": "1"}
    answer = request.send(wire)
    assert answer.status == 200
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", " application/json ;charset=UTF-8"],
)
def test_json_is_read_whatever_its_parameters(wire: Wire, content_type: str) -> None:
    request = draft()
    request.headers["Content-Type"] = content_type
    assert request.send(wire).status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "text/plain; application/json",
        "application/json-rpc",
        "application/jsonx",
        "application/vnd.api+json",
    ],
)
def test_everything_else_is_an_unsupported_media_type(wire: Wire, content_type: str) -> None:
    request = draft()
    request.headers["Content-Type"] = content_type
    assert error_of(request.send(wire)) == (415, -32600, None)


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "application/json, text/event-stream",
        "application/json",
        "APPLICATION/JSON",
        "*/*",
        "application/*",
        "text/html, application/json;q=0.1",
        "application/json; charset=utf-8",
    ],
)
def test_what_admits_json_is_answered_in_json(wire: Wire, accept: str | None) -> None:
    request = draft()
    del request.headers["Accept"]
    if accept is not None:
        request.headers["Accept"] = accept
    answer = request.send(wire)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "text/*", "text/event-stream, application/json", "application/json;q=0, */*"]
)
def test_what_prefers_or_only_reads_the_stream_gets_one_event(wire: Wire, accept: str) -> None:
    request = draft()
    request.headers["Accept"] = accept
    answer = request.send(wire)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.body.startswith(b"event: message\ndata: {")
    assert answer.body.endswith(b"}\n\n")
    assert b"\nid:" not in answer.body
    assert len(answer.messages()) == 1


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "image/*",
        "application/xml, text/plain",
        "*/*;q=0",
        "application/json;q=0",
        ",",
        "json",
        "text/json",
    ],
)
def test_what_admits_neither_is_not_acceptable(wire: Wire, accept: str) -> None:
    request = draft()
    request.headers["Accept"] = accept
    assert error_of(request.send(wire)) == (406, -32600, None)


@pytest.mark.parametrize(
    ("header", "json", "stream", "prefers_stream"),
    [
        ("application/json, text/event-stream", True, True, False),
        ("text/event-stream, application/json", True, True, True),
        ("text/event-stream;q=0.5, application/json", True, True, False),
        ("application/json;q=0.5, text/event-stream;q=0.6", True, True, True),
        ("application/json;q=0, */*", False, True, True),
        ("text/event-stream;q=0, */*", True, False, False),
        ("*/*, text/event-stream;q=0.1", True, True, False),
        ("text/*;q=0.2, */*;q=0.1, application/json;q=0.15", True, True, True),
        ("application/json;q=high", False, False, False),
        ("application/json;level=1;q=0.4", True, False, False),
    ],
)
def test_the_most_specific_range_decides_about_a_form(
    header: str, json: bool, stream: bool, prefers_stream: bool
) -> None:
    found = accepted(header)
    assert (found.json, found.stream, found.prefers_stream) == (json, stream, prefers_stream)


def padded(to: int) -> Draft:
    request = draft()
    request.body = request.text.ljust(to)
    assert len(request.body) == to
    return request


@pytest.mark.parametrize(
    ("limit", "django_limit", "size", "status"),
    [
        (2000, "unset", 2000, 200),
        (2000, "unset", 2001, 413),
        (None, "unset", 3_000_000, 200),
        (2000, None, 2001, 413),
        (2000, 1500, 1501, 413),
        (2000, 1500, 1500, 200),
        (None, 1500, 1501, 413),
        (2000, 9000, 2001, 413),
    ],
)
def test_the_smaller_limit_decides_how_large_a_body_may_be(
    wire: Wire,
    configure: Callable[..., None],
    settings: Any,
    limit: int | None,
    django_limit: int | str | None,
    size: int,
    status: int,
) -> None:
    configure(LIMITS={"REQUEST_BYTES": limit})
    if django_limit != "unset":
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = django_limit
    request = padded(size)
    assert request.send(wire).status == status
    if wire.adapter != "view-wsgi":
        middle = size // 2
        chunks = [request.text[:middle], b"", request.text[middle:]]
        assert wire.stream(chunks, request.headers).status == status


def test_without_a_setting_four_mebibytes_are_read_though_django_reads_less(wire: Wire) -> None:
    assert padded(4 * 1024 * 1024).send(wire).status == 200
    assert padded(4 * 1024 * 1024 + 1).send(wire).status == 413


@pytest.mark.parametrize("adapter", ADAPTERS[1:])  # a WSGI server hands no such request on
@pytest.mark.parametrize("length", ["", "abc", "-5", "1e3", "\u00b2", "99999999999999999999"])
def test_a_length_that_is_a_lie_breaks_nothing(wire: Wire, length: str) -> None:
    request = draft()
    request.headers["Content-Length"] = length
    assert wire.send(request.text, request.headers).status in (200, 400, 413)


def test_a_body_that_breaks_off_is_a_bad_request() -> None:
    class Broken:
        def read(self, *size: int) -> bytes:
            raise OSError("connection reset")

    request = RequestFactory().post("/mcp", b"{}", content_type="application/json")
    request._stream = Broken()  # type: ignore[attr-defined]
    response = mcp(request)
    assert response.status_code == 400


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "text/event-stream"])
def test_every_reply_forbids_to_keep_it_and_to_guess_its_type(wire: Wire, accept: str) -> None:
    refusals = [{"Host": "evil.example.com"}, {"Authorization": "Nope x"}, {"Content-Type": "text/plain"}, {}]
    replies = [wire.send(draft().text, {**draft().headers, "Accept": accept, **headers}) for headers in refusals]
    broken, unknown, dropped = draft(), draft("ping", {}), draft()
    broken.body = b"{"
    del dropped.message["id"]
    replies += [request.send(wire) for request in (broken, unknown, dropped)]
    replies.append(wire.send(b"", {}, method="GET"))
    assert len({reply.status for reply in replies}) == 8
    for reply in replies:
        assert "no-store" in reply.headers["cache-control"]
        assert reply.headers["x-content-type-options"] == "nosniff"
