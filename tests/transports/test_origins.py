"""Host and Origin: the guard against a page that talks to a server its reader can reach."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.adapters import Wire

from .requests import draft, error_of

pytestmark = pytest.mark.usefixtures("open_to_all")


def status(wire: Wire, *, secure: bool = False, **headers: str) -> int:
    request = draft()
    answer = wire.send(request.text, {**request.headers, **headers}, secure=secure)
    if answer.status == 403:
        assert error_of(answer) == (403, -32600, None)
    return answer.status


@pytest.mark.parametrize("host", ["evil.example.com", "localhost.evil.com", "testserver:80:80", "a b", "", "10.0.0.9"])
def test_a_host_that_is_not_ours_is_refused(wire: Wire, host: str) -> None:
    assert status(wire, Host=host) == 403


@pytest.mark.parametrize("host", ["testserver", "TESTSERVER", "testserver:8000", "localhost:8000", "127.0.0.1"])
def test_a_host_of_ours_is_served_without_an_origin(wire: Wire, host: str) -> None:
    assert status(wire, Host=host) == 200


def test_under_rebinding_equal_host_and_origin_help_nobody(wire: Wire) -> None:
    assert status(wire, Host="evil.example.com", Origin="http://evil.example.com") == 403


@pytest.mark.parametrize(
    ("host", "origin", "secure"),
    [
        ("testserver", "http://testserver", False),
        ("testserver", "http://testserver:80", False),
        ("testserver:80", "http://testserver", False),
        ("localhost:8123", "http://localhost:8123", False),
        ("TestServer", "http://testserver", False),
        ("testserver", "https://testserver", True),
        ("testserver:443", "https://testserver", True),
        ("testserver", "https://testserver:443", True),
    ],
)
def test_a_page_of_our_own_is_served(wire: Wire, host: str, origin: str, secure: bool) -> None:
    assert status(wire, secure=secure, Host=host, Origin=origin) == 200


@pytest.mark.parametrize(
    ("host", "origin", "secure"),
    [
        ("testserver", "http://evil.example.com", False),
        ("testserver", "null", False),
        ("testserver", "", False),
        ("testserver", "testserver", False),
        ("testserver", "//testserver", False),
        ("testserver", "ftp://testserver", False),
        ("testserver", "http://testserver:8000", False),
        ("testserver:8000", "http://testserver", False),
        ("testserver", "https://testserver:80", True),
        ("testserver", "http://testserver:443", True),
        ("testserver", "http://testserver.evil.com", False),
        ("testserver", "http://user@testserver", False),
        ("testserver", "http://testserver@evil.com", False),
        ("testserver", "http://localhost", False),
        ("testserver", "http://testserver, http://evil.example.com", False),
        ("testserver", "http://[::1", False),
        ("testserver", "http://[testserver", False),
        ("testserver", "http://test\u2100server", False),
        ("testserver", "http://\x00", False),
    ],
)
def test_a_page_of_somebody_else_is_refused(wire: Wire, host: str, origin: str, secure: bool) -> None:
    try:
        origin.encode("latin-1")
    except UnicodeEncodeError:
        origin = origin.encode().decode("latin-1")
    assert status(wire, secure=secure, Host=host, Origin=origin) == 403


def test_a_page_on_the_list_is_served_exactly_as_it_is_written_there(
    wire: Wire, configure: Callable[..., None]
) -> None:
    configure(ALLOWED_ORIGINS=["https://app.example.com", "http://localhost:3000"])
    assert status(wire, Origin="https://app.example.com") == 200
    assert status(wire, Origin="http://localhost:3000") == 200
    assert status(wire, Origin="http://app.example.com") == 403
    assert status(wire, Origin="https://app.example.com:8443") == 403
    assert status(wire, Origin="https://x.app.example.com") == 403
    assert status(wire, Origin="null") == 403


def test_cookies_of_an_https_site_are_not_for_a_page_that_anybody_on_the_way_may_have_written(
    wire: Wire, configure: Callable[..., None], settings: Any
) -> None:
    cookie = {"Cookie": "theme=dark"}
    assert status(wire, secure=True, Origin="http://testserver", **cookie) == 403
    assert status(wire, secure=True, Origin="https://testserver", **cookie) == 200
    assert status(wire, secure=True, Origin="http://testserver") == 200
    assert status(wire, secure=True, Origin="http://testserver", Authorization="Other x", **cookie) == 401
    assert status(wire, Origin="https://testserver", **cookie) == 200
    configure(ALLOWED_ORIGINS=["http://testserver"])
    assert status(wire, secure=True, Origin="http://testserver", **cookie) == 200
    configure(ALLOWED_ORIGINS=[])
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    proxied = {"X-Forwarded-Proto": "https", **cookie}
    assert status(wire, Origin="http://testserver", **proxied) == 403


def test_the_list_of_origins_does_not_widen_the_hosts(wire: Wire, configure: Callable[..., None]) -> None:
    configure(ALLOWED_ORIGINS=["https://app.example.com"])
    assert status(wire, Host="app.example.com", Origin="https://app.example.com") == 403


def test_behind_a_proxy_the_host_it_names_is_the_one_that_counts(wire: Wire, settings: Any) -> None:
    settings.USE_X_FORWARDED_HOST = True
    forwarded = {"X-Forwarded-Host": "localhost", "Host": "internal"}
    assert status(wire, **forwarded, Origin="http://localhost") == 200
    assert status(wire, **forwarded, Origin="http://internal") == 403


def test_a_page_behind_a_proxy_that_speaks_https_is_our_own(wire: Wire, settings: Any) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    forwarded = {"X-Forwarded-Proto": "https"}
    assert status(wire, **forwarded, Host="testserver:443", Origin="https://testserver") == 200


def test_an_address_that_is_no_text_breaks_nothing(wire: Wire) -> None:
    request = draft()
    assert wire.send(request.text, request.headers, path="/mcp?%FF").status == 200
    assert wire.send(request.text, request.headers, path="/mcp?\xff=\xfe").status in (200, 400)
