"""``manage.py run_task_worker``: a process that runs tasks and nothing else; as many of them as you like."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from mcp_tasks.execution import running
from mcp_tasks.execution.worker import Worker
from mcp_tasks.notifications import publisher
from mcp_tasks.runners.base import flush, get_runner
from mcp_tasks.store import effects
from mcp_tasks.store.locking import serve_database
from mcp_tasks.store.processes import WORKER, own_name
from mcp_tasks.tools.registry import registry
from mcp_tasks.transports.http.checks import require_servable

from ..arguments import positive, seconds
from ..memory import resident_megabytes

FAILED, USAGE, LEFT = 1, 2, 3
SLOTS, DRAIN_SECONDS = 4, 8

#: Why the main thread goes on: a signal, or the worker's own end, good or not.
TOLD, ENDED, LOST = "told", "ended", "lost"


class Command(BaseCommand):
    """
    Ends with 0 when it was told to and every leg ended, or when its work is done; with 3 when legs did not stop in
    time and are left to their leases; with 1 when something failed.

    The first SIGTERM or SIGINT drains, the second one ends the process at once.
    """

    help = (
        "Run tasks in a process of its own, until it is told to stop. Any number may run, beside each other and beside "
        "the web processes: where the runner of the settings is the embedded one, they add to it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--slots", type=positive, default=SLOTS, metavar="N", help="legs at once (default: 4)")
        parser.add_argument("--tools", action="append", metavar="NAME[,NAME]", help="run tasks of these tools only")
        parser.add_argument("--once", action="store_true", help="run what is queued, and end when nothing is left")
        parser.add_argument("--max-tasks", type=positive, metavar="N", help="end after so many legs")
        parser.add_argument("--max-memory", type=positive, metavar="MB", help="end when the process is larger")
        parser.add_argument(
            "--drain-seconds",
            type=seconds,
            default=DRAIN_SECONDS,
            metavar="S",
            help="how long legs may take to stop when the process is told to (default: 8)",
        )
        parser.add_argument("--database", metavar="ALIAS", help="where the tasks are, if not where the router says")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias is not None and alias not in connections:
            raise CommandError(f"There is no database {alias!r} in DATABASES.", returncode=USAGE)
        try:
            require_servable()
        except ImproperlyConfigured as problem:
            raise CommandError(str(problem)) from None
        if options["max_memory"] is not None and resident_megabytes() is None:
            raise CommandError("--max-memory: this system does not tell how large a process is.", returncode=USAGE)
        tools = _tools(options["tools"])
        serve_database(alias)
        try:
            status = self._work(tools, options)
        finally:
            serve_database(None)
        if status:
            sys.exit(status)

    def _work(self, tools: tuple[str, ...] | None, options: dict[str, Any]) -> int:
        told: SimpleQueue[str] = SimpleQueue()  # whose put is fit for a signal handler
        most, megabytes = options["max_tasks"], options["max_memory"]

        def retires(claims: int) -> bool:
            is_large = megabytes is not None and (resident_megabytes() or 0) > megabytes
            return is_large or (most is not None and claims >= most)

        worker = Worker(
            options["slots"],
            WORKER,
            tools=tools,
            once=options["once"],
            retires=retires,
            end=lambda good: told.put(ENDED if good else LOST),
        )
        with _signals(told), _rung_here(worker):
            worker.start()
            get_runner().answer(worker.ring)
            only = "" if tools is None else f" for {', '.join(tools)}"
            self._say(f"worker {own_name()} runs up to {options['slots']} tasks at once{only}", options)
            why = told.get()
            left = worker.drain(options["drain_seconds"])
        publisher.flush()
        flush()
        self._say(f"worker {own_name()} ended after {worker.claims} legs", options)
        if why == LOST:
            self.stderr.write("The claim loop was lost, see the log.")
        if left:
            self.stderr.write(f"Legs that did not stop are left to their leases: {left}.")
        status = FAILED if why == LOST else LEFT if left else 0
        if running.all_legs() or worker.deaf:
            self._leave(status)
        return status

    def _say(self, line: str, options: dict[str, Any]) -> None:
        if options["verbosity"] > 0:
            self.stdout.write(line)
            self.stdout.flush()

    def _leave(self, status: int) -> None:
        """Without the interpreter's own exit, which would wait for threads that a handler has started."""
        logging.shutdown()
        for stream in (self.stdout, self.stderr):
            stream.flush()
        os._exit(status)


def _tools(given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",")))
    known = [tool.name for tool in registry]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(
            f"There is no tool {', '.join(map(repr, unknown))}. There are: {', '.join(sorted(known)) or 'none'}.",
            returncode=USAGE,
        )
    return names


@contextmanager
def _rung_here(worker: Worker) -> Iterator[None]:
    """What is queued in this process, by its legs or by its sweep, is seen at once, whichever runner there is."""

    def ring(ref: UUID) -> None:
        worker.ring()

    effects.enqueue_hooks.append(ring)
    try:
        yield
    finally:
        effects.enqueue_hooks.remove(ring)


@contextmanager
def _signals(told: "SimpleQueue[str]") -> Iterator[None]:
    """The first SIGTERM or SIGINT tells; the second does what the system does by itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        told.put(TOLD)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
