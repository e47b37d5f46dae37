"""A server that ends, or is killed, while clients listen to it; and clients that break off in the middle."""

import asyncio
import json
import signal
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.faults.databases import kinds
from tests.support.push_clients import ACKNOWLEDGED, Listener, Socket, Sse, listen_request, socket_to
from tests.support.push_needs import PUBSUB, layer, redis
from tests.support.push_sites import IDLE, Served, Site, site, until

pytestmark = [
    pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite"),
    pytest.mark.xdist_group("push ends"),
]

#: uvicorn waits for open responses without end, daphne cuts them; neither needs to.
SECONDS = 5.0
#: Within a second of a handshake, on a busy machine two, daphne does not yet know whom to end, and cuts everybody.
SETTLED = {"uvicorn": 0.0, "daphne": 3.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("ends")
    with redis(folder / "redis") as server, site("ends", folder / "site", layer(PUBSUB, server)) as made:
        yield made


@pytest.fixture(scope="module")
def lasting(made: Site) -> Served:
    """A server that no test ends."""
    return made.serve("uvicorn", **IDLE)


async def _open(served: Served, task: str) -> list[Any]:
    listeners: list[Any] = [await Sse.open(served.url, served.alice, [task]) for _ in range(5)]
    listeners += [await Socket.open(served.url, served.alice, [task]) for _ in range(5)]
    return [await listener.until_listening() for listener in listeners]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_a_server_that_is_told_to_stop_ends_its_streams_and_then_itself(made: Site, kind: str, number: int) -> None:
    served = made.serve(kind, **IDLE)
    usual = -number if (kind, number) == ("uvicorn", signal.SIGTERM) else 0

    async def scenario() -> int:
        listeners = await _open(served, served.hold())
        await asyncio.sleep(SETTLED[kind])
        began = time.monotonic()
        status = await asyncio.to_thread(served.server.end, number)
        assert time.monotonic() - began < SECONDS
        for listener in listeners:
            await listener.until(lambda of=listener: of.ended, 1)
            assert listener.result is not None, listener.messages[-1]
            assert listener.result["resultType"] == "complete"
            if isinstance(listener, Sse):
                assert not listener.cut, "the stream was cut, not ended"
                _, last = listener.messages[-1]
                assert last["id"] == "L-1"
                assert last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "L-1"
        return status

    assert asyncio.run(scenario()) == usual
    assert "Traceback" not in served.server.log.read_text()


def test_a_server_with_a_handler_that_streams_and_listeners_still_drains_and_ends(made: Site) -> None:
    # The leg gets its eight seconds; the streams do not wait for it.
    served = made.serve("uvicorn")

    async def scenario() -> None:
        task = served.alice.call_tool("patient", {"seconds": 60})["taskId"]
        listener = await (await Sse.open(served.url, served.alice, [task])).until_listening()
        began = time.monotonic()
        ending = asyncio.ensure_future(asyncio.to_thread(served.server.end, signal.SIGTERM))
        await listener.until(lambda: listener.result, SECONDS)
        await ending
        assert time.monotonic() - began < 10

    asyncio.run(scenario())


def test_a_client_that_does_not_read_holds_up_no_end_longer_than_the_server_allows(made: Site, lasting: Served) -> None:
    """What uvicorn has taken it wants to hand over first; how long it tries is for the project to say."""
    served = made.serve("uvicorn", "--timeout-graceful-shutdown", "1", **IDLE)

    async def scenario() -> None:
        tasks = [served.hold() for _ in range(10)]
        deaf = await Sse.open(served.url, served.alice, tasks, receive_buffer=1024, reads=False)
        until(lambda: served.numbers()["subscriptions"] == 1, 10)
        await asyncio.to_thread(lasting.act, do="complete", task=tasks, size=2_000_000)
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await asyncio.to_thread(served.server.end, signal.SIGTERM)
        assert time.monotonic() - began < SECONDS
        deaf.vanish()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_listeners_of_a_killed_server_see_the_cut_and_go_on_at_another(made: Site, lasting: Served, kind: str) -> None:
    one, two = made.serve(kind, **IDLE), lasting

    async def scenario() -> None:
        task = one.hold()
        listeners = await _open(one, task)
        await asyncio.to_thread(two.act, do="progress", task=task, text="before")
        for listener in listeners:
            await listener.until(lambda of=listener: _message(of, task) == "before 0", 2)
        one.server.end(signal.SIGKILL)
        for listener in listeners:
            await listener.until(lambda of=listener: of.ended, 2)
            assert listener.cut
        await asyncio.to_thread(two.act, do="progress", task=task, text="meanwhile")
        for again_as in (Sse, Socket):
            began = time.monotonic()
            again: Any = await again_as.open(two.url, two.alice, [task])
            await again.until_listening(seconds=2)
            assert _message(again, task) == "meanwhile 0"
            assert time.monotonic() - began < 1
            await asyncio.to_thread(two.act, do="progress", task=task, text=again_as.__name__)
            await again.until(lambda of=again, name=again_as.__name__: _message(of, task) == f"{name} 0", 2)
            await asyncio.to_thread(two.act, do="progress", task=task, text="meanwhile")
            await again.close()

    asyncio.run(scenario())


# -- clients that know no manners ---------------------------------------------------------------------------------

TEXT, CONTINUED, BINARY, PING = 0x01, 0x00, 0x02, 0x09
FINAL, RESERVED = 0x80, 0x30


def _frame(first: int, payload: bytes) -> bytes:
    """A frame of a WebSocket, masked with zeros."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + struct.pack(">H", len(payload))
    return bytes([first]) + length + bytes(4) + payload


@pytest.mark.parametrize("kind", ["uvicorn", "daphne"])
def test_frames_that_are_none_end_their_own_socket_only(made: Site, lasting: Served, kind: str) -> None:
    served = lasting if kind == "uvicorn" else made.serve(kind, **IDLE)

    async def scenario() -> None:
        task = served.hold()
        other = await (await Socket.open(served.url, served.alice, [task])).until_listening()
        request = json.dumps(listen_request(served.alice, [task])).encode()

        # In pieces, with a ping between them: a message like any other.
        whole = await socket_to(served.url, served.alice)
        for frame in (
            _frame(TEXT, request[:40]),
            _frame(FINAL | PING, b"there?"),
            _frame(CONTINUED, request[40:90]),
            _frame(FINAL | CONTINUED, request[90:]),
        ):
            whole.transport.write(frame)
            await asyncio.sleep(0.02)
        assert json.loads(await asyncio.wait_for(whole.recv(), 5))["method"] == ACKNOWLEDGED

        # Bytes are refused in words.
        whole.transport.write(_frame(FINAL | BINARY, request))
        while "error" not in (answer := json.loads(await asyncio.wait_for(whole.recv(), 5))):
            pass
        assert answer["error"]["code"] == -32600

        for rude in (
            _frame(FINAL | TEXT, b"\xff\xfe"),
            _frame(FINAL | RESERVED | TEXT, request),
            _frame(FINAL | CONTINUED, request),
            _frame(TEXT, request[:40]) + _frame(FINAL | TEXT, request),
        ):
            connection = await socket_to(served.url, served.alice)
            await connection.send(request.decode())
            assert json.loads(await asyncio.wait_for(connection.recv(), 5))["method"] == ACKNOWLEDGED
            connection.transport.write(rude)
            with pytest.raises(ConnectionClosed):
                while True:
                    await asyncio.wait_for(connection.recv(), 5)

        await asyncio.to_thread(served.act, do="complete", task=task)
        await other.until_terminal(task, 5)
        await whole.close()
        await other.close()

    asyncio.run(scenario())
    until(lambda: served.numbers()["subscriptions"] == 0, 10, "a subscription is left")
    assert served.numbers()["places"] == 0


def _message(listener: Listener, task: str) -> Any:
    return listener.of(task)[-1].get("statusMessage")
