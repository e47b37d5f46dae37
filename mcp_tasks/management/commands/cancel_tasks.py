"""``manage.py cancel_tasks``: cancel everything that matches, one task after the other, oldest first."""

import getpass
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import timezone

from mcp_tasks.dbtime import current
from mcp_tasks.lifecycle import QUEUED
from mcp_tasks.operators.acting import WrongRequest, checked_reason
from mcp_tasks.operators.bulk import BulkReport, cancel_all, cancellable
from mcp_tasks.operators.instants import instant_of
from mcp_tasks.operators.states import FILTERS
from mcp_tasks.protocol.tasks import INPUT_REQUIRED
from mcp_tasks.querysets import TaskQuerySet
from mcp_tasks.store.locking import database, on_database, rows

from ..stopping import until_terminated

INCOMPLETE, USAGE = 1, 2
#: States in which there is something to cancel.
STATES = ("live", "queued", "running", "needs-input", "stalled")
ANONYMOUS = "anonymous"

Found = list[tuple[UUID, str, str]]


class Command(BaseCommand):
    """Tasks that are created after it began are left alone. What others finish meanwhile is counted, never an error."""

    help = "Cancel the unfinished tasks that match every filter; at least one filter and a reason are needed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tool", action="append", metavar="NAME", help="may be given more than once")
        parser.add_argument("--owner", metavar="KEY", help="an owner's key (64 hex digits), or: anonymous")
        parser.add_argument("--state", choices=STATES, help="what operators see; live is every unfinished task")
        parser.add_argument("--created-before", metavar="TIME", help="ISO 8601; without an offset in the site's zone")
        parser.add_argument("--reason", metavar="TEXT", help="3 to 500 characters, kept in the timeline (required)")
        parser.add_argument("--private-reason", action="store_true", help="do not tell the clients the reason")
        parser.add_argument("--dry-run", action="store_true", help="say what would be cancelled, and write nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--database", metavar="ALIAS", help="where the tasks are, if not where the router says")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="how the result is printed")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias is not None and alias not in connections:
            raise _wrong(f"There is no database {alias!r} in DATABASES.")
        reason = _reason(options["reason"])
        with on_database(alias):
            matching = _matching(rows(database()), options)
            tasks = cancellable(matching, current(database()))
            found: Found = list(tasks.values_list("pk", "phase", "status"))
            if options["dry_run"]:
                self._print_dry(found, options)
                return
            if found and not options["yes"] and not self._agreed(found):
                self.stderr.write("Nothing was done.")
                sys.exit(INCOMPLETE)
            stopped = threading.Event()
            with until_terminated(stopped):
                report = cancel_all(
                    _until(stopped, [ref for ref, _, _ in found]),
                    actor=_actor(),
                    reason=reason,
                    share_reason=not options["private_reason"],
                    most_seconds=float("inf"),
                )
        self._print(report, len(found), options)

    def _agreed(self, found: Found) -> bool:
        if not sys.stdin.isatty():
            raise _wrong("Nobody can be asked here: add --yes, or look first with --dry-run.")
        self.stdout.write(f"{_counts(found)} will be cancelled; work that is done outside is not undone.")
        return input("Type yes to go on: ").strip().lower() == "yes"

    def _print_dry(self, found: Found, options: dict[str, Any]) -> None:
        if options["format"] == "json":
            more = {"dry_run": True, "database": database(), "matching": len(found), **_by_state(found)}
            self.stdout.write(json.dumps(more))
        else:
            self.stdout.write(f"would cancel {_counts(found)}")
            if options["verbosity"] > 1:
                for ref, _, _ in found:
                    self.stdout.write(f"cancel {ref}")

    def _print(self, report: BulkReport, number: int, options: dict[str, Any]) -> None:
        left = number - len(report.cancelled) - report.finished_meanwhile - report.refused
        if options["format"] == "json":
            made = {
                "dry_run": False,
                "database": database(),
                "cancelled": len(report.cancelled),
                "finished_meanwhile": report.finished_meanwhile,
                "refused": report.refused,
                "left": left,
            }
            self.stdout.write(json.dumps(made))
        elif options["verbosity"] > 0:
            self.stdout.write(
                f"cancelled {len(report.cancelled)}, finished meanwhile {report.finished_meanwhile}, "
                f"refused {report.refused}, left {left}"
            )
            if options["verbosity"] > 1:
                for ref in report.cancelled:
                    self.stdout.write(f"cancelled {ref}")
        if report.refused or left:
            sys.exit(INCOMPLETE)


def _wrong(message: str) -> CommandError:
    return CommandError(message, returncode=USAGE)


def _reason(text: str | None) -> str:
    if text is None:
        raise _wrong("A reason is needed: --reason TEXT")
    try:
        return checked_reason(text)
    except WrongRequest as problem:
        raise _wrong(str(problem)) from None


def _matching(found: TaskQuerySet, options: dict[str, Any]) -> TaskQuerySet:
    """The tasks that match every filter. A mistyped filter must never mean all of them."""
    tools, owner, state, before = (options[name] for name in ("tool", "owner", "state", "created_before"))
    if not tools and owner is None and state is None and before is None:
        raise _wrong("At least one filter is needed: --tool, --owner, --state or --created-before.")
    if tools:
        found = found.filter(tool__in=tools)
    if owner is not None:
        if owner != ANONYMOUS and not re.fullmatch(r"[0-9a-f]{64}", owner):
            raise _wrong(f"--owner wants the key of an owner, 64 hex digits, or: {ANONYMOUS}")
        found = found.owned_by(None if owner == ANONYMOUS else owner)
    if state is not None:
        found = found.filter(FILTERS[state][1]())
    if before is not None:
        found = found.filter(created_at__lt=_instant(before))
    return found


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        aware = timezone.make_aware(at) if timezone.is_naive(at) else at
    except (ValueError, OverflowError):  # in a zone the first and the last day may have no such time
        aware = None
    found = None if aware is None else instant_of(aware.isoformat())
    if found is None:
        raise _wrong("--created-before wants an ISO 8601 time, for instance 2026-11-30T08:00")
    return found


def _until(stopped: threading.Event, refs: Iterable[UUID]) -> Iterator[UUID]:
    for ref in refs:
        if stopped.is_set():
            return
        yield ref


def _actor() -> str:
    """How the timeline names whoever runs the command: by the system's user, since there is no other."""
    try:
        return f"command:{getpass.getuser()}"[:64]
    except (OSError, KeyError, ImportError):  # a container may run under a number that has no name
        return "command"


def _by_state(found: Found) -> dict[str, int]:
    words = Counter(
        "queued" if phase == QUEUED else "needs_input" if status == INPUT_REQUIRED else "running"
        for _, phase, status in found
    )
    return {word: words[word] for word in ("queued", "running", "needs_input")}


def _counts(found: Found) -> str:
    numbers = _by_state(found)
    parts = f"{numbers['queued']} queued, {numbers['running']} running, {numbers['needs_input']} waiting for input"
    return f"{len(found)} {'task' if len(found) == 1 else 'tasks'} ({parts})"
