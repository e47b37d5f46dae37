"""``manage.py demo``: the demo site with nothing to install, configure or start."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from mcp_tasks.testing.client import McpClient
from project.demo import accounts, server, tour


class Command(BaseCommand):
    """Migrates its own SQLite file, makes users with tokens, and serves MCP and the site until it is stopped."""

    help = "Run the demo site: an MCP server on /mcp, with users, tokens and tools."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
        parser.add_argument("--port", type=int, help="port to listen on (default: 8000; with --once a free one)")
        parser.add_argument("--once", action="store_true", help="serve, drive every feature as a client, and end")
        parser.add_argument("--fresh", action="store_true", help="forget the database of earlier runs first")
        parser.add_argument("--show-tokens", action="store_true", help="print NAME TOKEN of each user, and end")

    def handle(self, *args: Any, **options: Any) -> None:
        self._prepare(fresh=options["fresh"])
        tokens = accounts.tokens()
        if options["show_tokens"]:
            for name, token in tokens.items():
                self.stdout.write(f"{name} {token}")
            return
        host = options["host"]
        port = options["port"] or (server.free_port(host) if options["once"] else 8000)
        server.require_free(host, port)
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if options["once"]:
            self._tour(host, port, url, tokens)
        else:
            password = accounts.reset_operator()
            server.serve(host, port, lambda: self._greet(url, tokens, password))

    def _prepare(self, *, fresh: bool) -> None:
        database = settings.DATABASES["default"]
        path = Path(str(database["NAME"]))
        own_file = database["ENGINE"] == "django.db.backends.sqlite3"
        try:
            if own_file:
                path.parent.mkdir(parents=True, exist_ok=True)
            if fresh and own_file:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
            elif fresh:
                call_command("flush", interactive=False, verbosity=0)
            call_command("migrate", interactive=False, verbosity=0)
        except (OSError, DatabaseError) as problem:
            raise CommandError(
                f"The database {path} cannot be written: {problem}. Make its folder writable, "
                "or name another with the environment variable MCP_TASKS_DEMO_DIR."
            ) from None
        finally:
            connection.close()

    def _greet(self, url: str, tokens: dict[str, str], password: str) -> None:
        name, token = next(iter(tokens.items()))
        headers = {"Authorization": f"Bearer {token}"}
        configuration = {"mcpServers": {"demo": {"type": "http", "url": f"{url}/mcp", "headers": headers}}}
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "slow_echo",
                "arguments": {"text": "hello"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
                },
            },
        }
        lines = [
            "",
            f"MCP endpoint   {url}/mcp",
            f"Web page       {url}/",
            f"Admin          {url}/admin/   user {accounts.OPERATOR}, password {password}",
            *(f"Token          {user}: {key}" for user, key in tokens.items()),
            "",
            f"Start a task as {name}:",
            "",
            f"  curl -s {url}/mcp -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\",
            "    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: slow_echo' \\",
            f"    -d '{json.dumps(call)}'",
            "",
            "Configuration for a client:",
            "",
            *(f"  {line}" for line in json.dumps(configuration, indent=2).splitlines()),
            "",
            "Stop with Ctrl-C.",
        ]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()

    def _tour(self, host: str, port: int, url: str, tokens: dict[str, str]) -> None:
        outcome: list[str | None] = []
        # The tour lets bob try alice's task, and says so itself.
        logging.getLogger("mcp_tasks.access").setLevel(logging.ERROR)
        alice, bob = (McpClient.http(f"{url}/mcp", token=tokens[name]) for name in ("alice", "bob"))

        def drive() -> None:
            try:
                tour.take(alice, bob, self._say)
                outcome.append(None)
            except Exception as problem:
                outcome.append(f"{type(problem).__name__}: {problem}")
            finally:
                server.stop()

        server.serve(host, port, threading.Thread(target=drive, daemon=True).start)
        if not outcome:
            raise CommandError("The tour was interrupted.")
        if outcome[0] is not None:
            raise CommandError(f"The tour failed: {outcome[0]}")
        self._say("\nAll of it worked.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
