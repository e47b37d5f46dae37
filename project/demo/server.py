"""The demo's server process: daphne on one address, and a drain when it is told to stop."""

import errno
import socket
from collections.abc import Callable

from django.core.management.base import CommandError

from mcp_tasks.asgi import DRAIN_SECONDS
from mcp_tasks.runners.base import get_runner


def require_free(host: str, port: int) -> None:
    """Raise CommandError in a sentence when the address cannot be listened on; daphne itself would just end."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise CommandError(
                f"Port {port} on {host} is taken. Stop what listens there, or choose another with --port."
            ) from None
        raise CommandError(f"Cannot listen on {host}:{port}: {problem}. Choose other --host and --port.") from None


def free_port(host: str) -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def serve(host: str, port: int, ready: Callable[[], None]) -> None:
    """Run until SIGTERM, Ctrl-C or ``stop``; then give running legs time to stop, and release what may be re-run."""
    # Importing it installs Twisted's asyncio reactor, which nothing else of the command needs.
    from daphne.server import Server  # type: ignore[import-untyped]

    from project.asgi import application

    endpoint = f"tcp:port={port}:interface={host.replace(':', chr(92) + ':')}"
    Server(application=application, endpoints=[endpoint], ready_callable=ready, server_name="django-mcp-tasks").run()
    get_runner().drain(DRAIN_SECONDS)


def stop() -> None:
    """End ``serve`` from another thread."""
    from twisted.internet import reactor

    reactor.callFromThread(reactor.stop)  # type: ignore[misc]
