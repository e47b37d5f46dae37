"""The signals that stop a server: streams are ended first, and whoever listened before is called as if alone."""

import os
import signal
import threading
from typing import Any

import pytest

from mcp_tasks.transports import stopping

pytestmark = pytest.mark.usefixtures("own_signals")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    order: list[Any] = []
    monkeypatch.setattr(stopping, "end_all", lambda: order.append("ended"))
    return order


@pytest.mark.parametrize("number", stopping.SIGNALS)
def test_streams_are_ended_before_the_servers_own_handler(order: list[Any], number: int) -> None:
    for each in stopping.SIGNALS:
        signal.signal(each, lambda number, frame: order.append((number, frame is not None)))
    stopping.hear_signals()
    assert not stopping.is_stopping()
    os.kill(os.getpid(), number)
    assert order == ["ended", (number, True)]
    assert stopping.is_stopping()


def test_hearing_twice_chains_once(order: list[Any]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: order.append("server"))
    for _ in range(3):
        stopping.hear_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    assert order == ["ended", "server"]


def test_a_handler_that_the_server_set_later_is_found_by_the_next_stream(order: list[Any]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: order.append("first"))
    stopping.hear_signals()
    signal.signal(signal.SIGTERM, lambda number, frame: order.append("second"))
    stopping.hear_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    assert order == ["ended", "second"]


@pytest.mark.parametrize("what", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_the_system_does_by_itself_is_left_alone(order: list[Any], what: Any) -> None:
    signal.signal(signal.SIGTERM, what)
    stopping.hear_signals()
    assert signal.getsignal(signal.SIGTERM) is what


def test_nothing_is_heard_from_another_thread(order: list[Any]) -> None:
    def server(number: int, frame: Any) -> None:
        order.append("server")

    signal.signal(signal.SIGTERM, server)
    thread = threading.Thread(target=stopping.hear_signals)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is server
