"""``manage.py expire_tasks``: the janitor, for cron or as a process of its own."""

import json
import sys
import threading
import time
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from mcp_tasks.store import get_store
from mcp_tasks.store.budget import Budget, budget
from mcp_tasks.store.locking import database, on_database
from mcp_tasks.store.sweep import STEPS, sweep
from mcp_tasks.store.types import SweepReport, Unsupported

from ..arguments import positive
from ..stopping import until_terminated

FAILED, BEHIND = 1, 3


def _steps(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        raise ValueError(text)
    return names


_steps.__name__ = f"step (one of {', '.join(STEPS)})"


class Command(BaseCommand):
    """Safe to run at any moment and any number at once; a second run finds nothing."""

    help = "Recover lost legs, expire tasks past their ttl, count finished hours, and purge what is no longer kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what is due, and write nothing")
        parser.add_argument("--only", type=_steps, default=tuple(STEPS), metavar="STEP[,STEP]", help=", ".join(STEPS))
        parser.add_argument("--batch-size", type=positive, metavar="N", help="rows in one transaction")
        parser.add_argument("--max-seconds", type=positive, default=50, metavar="N", help="of one pass (default: 50)")
        parser.add_argument("--max-rows", type=positive, metavar="N", help="rows that one pass takes up")
        parser.add_argument("--loop", type=positive, metavar="SECONDS", help="go on, with a pass each so many seconds")
        parser.add_argument("--database", metavar="ALIAS", help="where the tasks are, if not where the router says")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="how the result is printed")
        parser.add_argument("--fail-if-behind", action="store_true", help="exit with 3 when work is left")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias is not None and alias not in connections:
            raise CommandError(f"There is no database {alias!r} in DATABASES.", returncode=2)
        stopped = threading.Event()
        with on_database(alias), until_terminated(stopped):
            while True:
                status = self._pass(stopped, options)
                if options["loop"] is None or stopped.wait(options["loop"]):
                    break
                connections.close_all()
        if status:
            sys.exit(status)

    def _pass(self, stopped: threading.Event, options: dict[str, Any]) -> int:
        began = time.monotonic()
        if options["dry_run"]:
            report = self._outlook()
        else:
            until = began + options["max_seconds"]
            mine = Budget(options["batch_size"], options["max_rows"], until, stopped=stopped)
            if options["verbosity"] > 1:
                mine.tell = self._tell
            token = budget.set(mine)
            try:
                report = sweep(get_store(), options["only"])
                if mine.is_spent:
                    report.left = self._outlook().changed
            finally:
                budget.reset(token)
        self._print(report, time.monotonic() - began, options)
        if report.errors:
            self.stderr.write(f"These steps failed, see the log: {', '.join(report.errors)}")
            return FAILED
        return BEHIND if report.left and options["fail_if_behind"] else 0

    def _outlook(self) -> SweepReport:
        try:
            return get_store().outlook()
        except Unsupported as problem:
            raise CommandError(str(problem)) from None

    def _tell(self, step: str, refs: list[UUID]) -> None:
        for ref in refs:
            self.stdout.write(f"{step} {ref}")

    def _print(self, report: SweepReport, seconds: float, options: dict[str, Any]) -> None:
        is_dry = options["dry_run"]
        if options["format"] == "json":
            more = {"dry_run": is_dry, "database": database(), "seconds": round(seconds, 3)}
            self.stdout.write(json.dumps({**asdict(report), **more}))
        elif options["verbosity"] > 0:
            hours = f"{report.rolled_up} h"
            counts = (
                f"recovered {report.recovered}, failed {report.failed}, redelivered {report.redelivered}, "
                f"timed out {report.timed_out}, expired {report.expired}, rolled up {hours}, purged {report.purged}"
            )
            tail = "" if is_dry else f", left {report.left}, {seconds:.1f} s"
            self.stdout.write(("would have " if is_dry else "") + counts + tail)
