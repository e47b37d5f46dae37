"""Clients that work against a server which is killed again and again, and remember what they were promised."""

import http.client
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mcp_tasks.protocol.capabilities import IDEMPOTENCY_KEY
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.testing.client import McpClient

T = TypeVar("T")

#: What a client sees of a server that is not there, or goes away in the middle.
GONE = (OSError, http.client.HTTPException)


@dataclass(slots=True)
class Promise:
    """One acknowledged task: what kind, what its result must say, and what else was acknowledged for it."""

    task_id: str
    kind: str
    text: str = ""
    answers: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False


class Load:
    """A few threads of one user. ``url`` gives the address of the server of the moment."""

    def __init__(self, url: Callable[[], str], token: str, *, threads: int = 6) -> None:
        self._url, self._token = url, token
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(threads)]
        self.promises: list[Promise] = []
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def insist(self, request: Callable[[McpClient], T], *, tries_seconds: float = 60.0) -> T:
        """Ask until a server answers; for what may be asked twice."""
        deadline = time.monotonic() + tries_seconds
        while True:
            try:
                return request(McpClient.http(self._url(), token=self._token))
            except GONE:
                if time.monotonic() > deadline:
                    raise
                self.seen["lost replies"] += 1
                time.sleep(0.1)

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        kinds = [self._echo, self._charge, self._survey, self._cancel, self._keyed]
        while not self._stop.is_set():
            try:
                chance.choice(kinds)()
            except GONE:
                self.seen["lost replies"] += 1
                time.sleep(0.1)
            except McpError as error:
                self.faults.append(f"a client was refused: {error}")
            time.sleep(chance.uniform(0.0, 0.05))

    def _create(self, kind: str, tool: str, arguments: dict[str, Any], text: str = "") -> Promise:
        """Not repeated when the reply is lost: nobody was promised anything then."""
        created = McpClient.http(self._url(), token=self._token).call_tool(tool, arguments)
        return self._promised(Promise(created["taskId"], kind, text))

    def _promised(self, promise: Promise) -> Promise:
        with self._lock:
            self.promises.append(promise)
        self.seen[f"{promise.kind} created"] += 1
        return promise

    def _echo(self) -> None:
        text = uuid.uuid4().hex
        self._create("echo", "slow_echo", {"text": text, "seconds": 0.1}, text)

    def _charge(self) -> None:
        text = uuid.uuid4().hex
        self._create("charge", "charge", {"text": text, "seconds": 0.2}, text)

    def _survey(self) -> None:
        promise = self._create("survey", "survey", {})
        for key in ("first", "second"):
            if not self._answer(promise, key):
                return

    def _answer(self, promise: Promise, key: str) -> bool:
        """Answer once the question is there; the same answer again when the reply was lost."""
        deadline = time.monotonic() + 20
        while key not in self.insist(lambda client: client.get_task(promise.task_id)).get("inputRequests", {}):
            if self._stop.is_set() or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        value = uuid.uuid4().hex
        response = {key: {"action": "accept", "content": {"value": value}}}
        self.insist(lambda client: client.update_task(promise.task_id, response))
        promise.answers[key] = value
        self.seen["answers acknowledged"] += 1
        return True

    def _cancel(self) -> None:
        promise = self._create("cancel", "countdown", {"n": 100_000})
        time.sleep(0.1)
        self.insist(lambda client: client.cancel_task(promise.task_id))
        promise.cancelled = True
        self.seen["cancels acknowledged"] += 1

    def _keyed(self) -> None:
        text, key = uuid.uuid4().hex, uuid.uuid4().hex
        params = {"name": "slow_echo", "arguments": {"text": text, "seconds": 0.1}}

        def create(client: McpClient) -> str:
            task_id: str = client.request("tools/call", params, **{IDEMPOTENCY_KEY: key})["taskId"]
            return task_id

        task_id = self.insist(create)
        if self.insist(create) != task_id:
            self.faults.append("one idempotency key gave two tasks")
        self._promised(Promise(task_id, "keyed", text))

    def open_questions(self, promise: Promise) -> None:
        """Answer what a survey still asks, so that everything can come to an end."""
        for key in ("first", "second"):
            if key not in promise.answers:
                self._stop.clear()
                self._answer(promise, key)
                self._stop.set()
