"""Places: so many streams for each owner, counted exactly, and given back however a stream ends."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks.notifications.places import Place, Places
from mcp_tasks.protocol.errors import McpError


def test_places_are_counted_for_each_owner_and_given_back_once(configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 2})
    counted = Places()
    first, second = counted.take("alice"), counted.take("alice")
    with pytest.raises(McpError) as refused:
        counted.take("alice")
    assert refused.value.code == -32603
    nobody = counted.take(None)
    first.release()
    first.release()
    third = counted.take("alice")
    with pytest.raises(McpError):
        counted.take("alice")
    for place in (second, third, nobody):
        place.release()
    assert counted.count() == 0


def test_a_place_that_is_forgotten_comes_back(configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 1})
    counted = Places()
    counted.take("alice")
    held = counted.take("alice")
    with pytest.raises(McpError):
        counted.take("alice")
    del held
    counted.take("alice").release()


def test_a_refused_place_costs_nothing(configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 1})
    counted = Places()
    held = counted.take("alice")
    for _ in range(5):
        with pytest.raises(McpError):
            counted.take("alice")
    held.release()
    counted.take("alice").release()
    assert counted.count() == 0


class Collects(str):
    """An owner at whose look-up the collector of garbage comes to run, as it may at any allocation."""

    __slots__ = ()

    def __hash__(self) -> int:
        gc.collect()
        return super().__hash__()


def test_a_place_that_is_collected_while_another_is_taken_comes_back_too(configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 2})
    counted = Places()

    def forget(place: Place) -> None:
        circle: list[Any] = [place]
        circle.append(circle)

    def take() -> None:
        forget(counted.take("alice"))
        held.append(counted.take(Collects("alice")))

    held: list[Place] = []
    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    taking.join(5)
    assert held, "it waits for itself"
    assert counted.count() == 1


def test_of_many_who_want_a_place_at_once_as_many_get_one_as_there_are(configure: Callable[..., None]) -> None:
    configure(LIMITS={"STREAMS_PER_OWNER": 3})
    counted, most = Places(), 0
    together = threading.Barrier(8)
    counting = threading.Lock()
    have = 0

    def come_and_go() -> None:
        nonlocal have, most
        together.wait(5)
        for _ in range(500):
            try:
                place = counted.take("alice")
            except McpError:
                continue
            with counting:
                have += 1
                most = max(most, have)
            with counting:
                have -= 1
            place.release()

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert counted.count() == 0
