"""
The id of a task is a credential: with every logger at DEBUG it is nowhere but on the wire to its owner.

Real servers, each way in, each page and command; then everything that was written down is read.
"""

import asyncio
import http.client
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import connect

from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store.types import ref_of
from mcp_tasks.testing.client import McpClient
from tests.faults.databases import Database, database, kinds, recommended
from tests.support.push_clients import Socket, Sse
from tests.support.servers import Server, manage, serving
from tests.support.template import ROOT, spawn

pytestmark = pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite")

APPROVED = {"approval": {"action": "accept", "content": {"approve": True}}}
ADMIN, API = "/admin/mcp_tasks/task/", "/api/"
#: Servers, and what they are told beside their own: to write down every access, and whatever else they can.
SERVERS = {
    "uvicorn": ("--log-level", "debug", "--access-log"),
    "daphne": ("-v", "3", "--access-log", "-"),
    "runserver": ("-v", "3"),
}

SEED = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from rest_framework.authtoken.models import Token
root = User.objects.create_superuser("root", password="x")
session = SessionStore()
session.update({SESSION_KEY: str(root.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
                HASH_SESSION_KEY: root.get_session_auth_hash()})
session.save()
print("SEEDED", session.session_key, Token.objects.create(user=root).key)
"""

#: Every value of every table, the inside of sessions, and how every row of ours shows itself.
DUMP = """
from django.apps import apps
from django.contrib.sessions.models import Session
from django.db import connection
connection.force_debug_cursor = False
with connection.cursor() as cursor:
    for table in connection.introspection.table_names(cursor):
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
        for row in cursor.fetchall():
            print("DUMPED", table, *row)
for session in Session.objects.all():
    print("DUMPED", session.get_decoded())
for model in apps.get_app_config("mcp_tasks").get_models():
    for row in model._base_manager.all():
        print("DUMPED", repr(row), str(row))
"""


class Page:
    """A browser in which an operator is signed in, and a program with a token; both remember what they were told."""

    def __init__(self, server: Server, session: str, token: str) -> None:
        self._port, self._token = server.port, token
        self._cookies = {"sessionid": session}
        self.told: list[str] = []

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> http.client.HTTPResponse:
        """One request; the answer is kept."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        self.last = answer.read().decode()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.split(";")[0].partition("=")
            self._cookies[name] = value
        self.told += [self.last, str(answer.headers)]
        connection.close()
        return answer

    def get(self, path: str) -> int:
        """Open a page."""
        return self.ask("GET", path, Cookie=self._cookie).status

    def post(self, path: str, **fields: Any) -> str:
        """Send the form of a page and follow where it leads; returns the address."""
        fields["csrfmiddlewaretoken"] = self._cookies["csrftoken"]
        headers = {"Cookie": self._cookie, "Content-Type": "application/x-www-form-urlencoded"}
        answer = self.ask("POST", path, urlencode(fields, doseq=True), **headers)
        assert answer.status == 302, self.last
        address = answer.headers["Location"].partition("#")[0]
        assert self.get(address) == 200
        return address

    def api(self, method: str, path: str, body: Any = None) -> int:
        """One request of a program."""
        text = "" if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"} if text else {}
        return self.ask(method, API + path, text, Authorization=f"Token {self._token}", **kind).status

    @property
    def _cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self._cookies.items())

    async def watch(self, ref: str) -> None:
        """As an open list does: name the row, and hear of it."""
        headers = {"Cookie": self._cookie, "Origin": f"http://127.0.0.1:{self._port}"}
        async with connect(f"ws://127.0.0.1:{self._port}/mcp/operators", additional_headers=headers) as socket:
            await socket.send(json.dumps({"refs": [ref]}))
            self.told.append(str(await asyncio.wait_for(socket.recv(), 10)))


@dataclass(slots=True)
class Day:
    """Clients and operators at work on one server; ``ids`` are the tasks that they made."""

    server: Server
    alice: McpClient
    bob: McpClient
    operator: Page
    ids: list[str] = field(default_factory=list)

    def call(self, name: str, **arguments: Any) -> str:
        task_id: str = self.alice.call_tool(name, arguments)["taskId"]
        self.ids.append(task_id)
        return task_id

    def clients(self) -> None:
        """Over HTTP: each method, right and wrong, and each way to end."""
        asked = self.call("needs_approval", service="web")
        self.alice.wait_for(asked, ("input_required",))
        for refused in (
            lambda: self.bob.get_task(asked),
            lambda: self.bob.cancel_task(asked),
            lambda: self.bob.update_task(asked, APPROVED),
            lambda: self.alice.update_task(asked, {"approval": {"action": "accept", "content": {"approve": asked}}}),
            lambda: self.alice.get_task(asked + "x"),
            lambda: self.alice.request("tasks/get", {"taskId": [asked]}),
            lambda: self.alice.request("tasks/nothing", {"taskId": asked}),
        ):
            with pytest.raises(McpError):
                refused()
        self.alice.post(self.alice.envelope("tasks/get", {"taskId": asked}), {"Mcp-Name": asked[:-1]})
        self.alice.post(f'{{"broken": "{asked}'.encode(), {"Content-Type": "application/json"})
        self.alice.post({**self.alice.envelope("tasks/get", {"taskId": asked}), "id": asked})
        self.alice.post(self.alice.envelope("tasks/get", {"taskId": asked}), {"Authorization": "Bearer wrong"})
        self.alice.update_task(asked, APPROVED)
        self.alice.wait_for(asked)
        for name, arguments in (("failing_job", {"message": "no"}), ("crashing_job", {})):
            self.alice.wait_for(self.call(name, **arguments))
        ended = self.call("countdown", n=500)
        self.alice.wait_for(ended, ("working",))
        self.alice.cancel_task(ended)

    def owners(self) -> None:
        """Over REST: one's own task, right and wrong."""
        asked = self.call("needs_approval", service="web")
        self.alice.wait_for(asked, ("input_required",))
        ref, other = ref_of(asked), ref_of(self.ids[0])
        mine = {"Mcp-Task-Id": asked, "Content-Type": "application/json"}
        answers = json.dumps({"inputResponses": APPROVED})
        for client in (self.bob, self.alice):
            own = client is self.alice
            headers = {**mine, "Authorization": f"Bearer {client.token}"}
            for expected, method, path, body in (
                (200, "GET", f"tasks/{ref}/", ""),
                (404, "GET", f"tasks/{other}/", ""),
                (400, "POST", f"tasks/{ref}/answers/", "broken"),
                (200, "POST", f"tasks/{ref}/answers/", answers),
                (200, "POST", f"tasks/{ref}/cancel/", ""),
            ):
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
                connection.request(method, API + path, body, headers)
                status = connection.getresponse().status
                connection.close()
                assert status == expected if own else status >= 400, (own, method, path)

    async def listeners(self) -> None:
        """Over SSE and WebSocket: from a running task to its end, beside one of somebody else."""
        for kind in (Sse, Socket):
            task = await asyncio.to_thread(self.call, "countdown", n=500)
            listener = await (await kind.open(self.server.url, self.alice, [task, self.ids[0]])).until_listening(2)
            stranger = await kind.open(self.server.url, self.bob, [task])
            await self.operator.watch(str(ref_of(task)))
            await asyncio.to_thread(self.alice.cancel_task, task)
            await listener.until_terminal(task, 10)
            for each in (listener, stranger):
                await each.close()

    def operators(self) -> None:
        """Pages, verbs, look-ups and the API of operators, on tasks in several states."""
        page, running = self.operator, self.call("countdown", n=500)
        asked = self.call("needs_approval", service="web")
        self.alice.wait_for(asked, ("input_required",))
        assert page.get(ADMIN) == 200
        for task_id in (running, asked, *self.ids[:4]):
            ref = ref_of(task_id)
            assert page.post(f"{ADMIN}lookup/", q=task_id) == f"{ADMIN}{ref}/"
            for path in ("", "support/", "download/arguments/", "download/arguments/?unmasked=1"):
                assert page.get(f"{ADMIN}{ref}/{path}") == 200
            for path in ("", "events/", "payload/arguments/", "payload/arguments/?unmasked=1"):
                assert page.api("GET", f"operator/tasks/{ref}/{path}") == 200
            assert page.api("POST", "operator/lookup/", {"task_id": task_id}) == 200
        page.post(f"{ADMIN}lookup/", q=running[:-1])
        since = "2026-01-01T00:00:00Z"
        for path in (ADMIN, f"{ADMIN}overview/", f"{ADMIN}live.json?refs={ref_of(running)}&since={since}", "/admin/"):
            assert page.get(path) == 200
        for path in ("operator/tasks/", "operator/overview/", "operator/processes/"):
            assert page.api("GET", path) == 200
        confirm = f"{ADMIN}{ref_of(running)}/cancel/"
        assert page.get(confirm) == 200
        held = dict(re.findall(r'name="(revision|run)" value="([^"]*)"', page.last))
        page.post(confirm, reason="a runaway job", share_reason="on", **held)
        page.post(f"{ADMIN}bulk-cancel/", query=f"refs={ref_of(asked)}", reason="all of them")
        assert page.api("POST", f"operator/tasks/{ref_of(running)}/cancel/", {"reason": "again"}) in (200, 409)
        order = {"filter": {"tool": ["countdown"]}, "reason": "all of them"}
        assert page.api("POST", "operator/bulk-cancel/", order) == 200
        for path in ("/metrics", "/health/live", "/health/ready", "/health/detail"):
            assert page.get(path) == 200


def command(environment: dict[str, str], *arguments: str, typed: str = "") -> str:
    """What a command said, on either stream."""
    with TemporaryFile() as stdin, TemporaryFile() as output:
        stdin.write(typed.encode())
        stdin.seek(0)
        status = spawn([str(ROOT / "manage.py"), *arguments, "-v", "3"], environment, stdin=stdin, stdout=output).wait()
        output.seek(0)
        said = output.read().decode()
    assert status == 0, said[-3000:]
    return said


def commands(environment: dict[str, str], task_id: str) -> list[str]:
    """Everything that an operator does in a shell."""
    return [
        command(environment, "task_stats"),
        command(environment, "task_stats", "--ref", str(ref_of(task_id)), "--format", "json"),
        command(environment, "task_stats", "--task-id", "-", typed=f"{task_id}\n"),
        command(environment, "cancel_tasks", "--tool", "needs_approval", "--reason", "for a test", "--yes"),
        command(environment, "expire_tasks", "--dry-run"),
        command(environment, "expire_tasks"),
        command(environment, "check", "--database", "default"),
    ]


@contextmanager
def at_work(kind: str, environment: dict[str, str], folder: Path) -> Iterator[Day]:
    """A server of this kind on a database of its own, and those who use it."""
    tokens = dict(line.split() for line in manage(environment, "demo", "--show-tokens").splitlines()[-2:])
    seeded = manage(environment, "shell", "-v", "0", "-c", SEED)
    session, token = re.findall(r"^SEEDED (\S+) (\S+)$", seeded, re.MULTILINE)[0]
    with serving(environment, folder, kind=kind, options=SERVERS[kind]) as server:
        url = server.url if kind != "runserver" else server.url.replace("/mcp", "/view")
        alice, bob = (McpClient.http(url, token=tokens[name]) for name in ("alice", "bob"))
        yield Day(server, alice, bob, Page(server, session, token))


def told_environment(made: Database) -> dict[str, str]:
    return {**made.environment, "DJANGO_SETTINGS_MODULE": "tests.support.told_site.settings"}


def leaked(text: str, ids: list[str]) -> list[str]:
    """Where a text holds one of the ids, or any 43 characters that are the id of one of these tasks."""
    refs = {ref_of(task_id) for task_id in ids}
    runs = re.findall(r"[A-Za-z0-9_-]{43,}", text)
    windows = {run[at : at + 43] for run in set(runs) for at in range(len(run) - 42)}
    return [window for window in windows if window in ids or ref_of(window) in refs]


@pytest.mark.parametrize("kind", SERVERS)
def test_no_id_is_in_a_log_an_address_a_page_a_model_or_a_column(kind: str, tmp_path: Path) -> None:
    with database(recommended(), f"told_{kind}_{os.getpid()}", tmp_path) as made:
        environment = told_environment(made)
        with at_work(kind, environment, tmp_path) as day:
            day.clients()
            day.owners()
            if kind != "runserver":
                asyncio.run(day.listeners())
            day.operators()
            # A shell knows of no server.
            said = commands(environment, day.call("needs_approval", service="web")) if kind == "uvicorn" else []
            day.server.end()
        dumped = manage(environment, "shell", "-v", "0", "-c", DUMP)
        log = day.server.log.read_text()
    for what in ("mcp_tasks.rpc", "mcp_tasks.operator", "mcp_tasks.access", "mcp_tasks.runner", "django.db.backends"):
        assert f"{what}: " in log, what
    assert re.search(r"POST /(mcp|view)\b", log), "the server writes down no access"
    assert str(ref_of(day.ids[0])) in log
    assert dumped.count("DUMPED") > 100
    for name, text in (
        ("log", log),
        ("commands", "".join(said)),
        ("pages", "\n".join(day.operator.told)),
        ("rows", dumped),
    ):
        found = leaked(text, day.ids)
        assert not found, (name, [line[:1500] for line in text.splitlines() if found[0] in line][:3])
