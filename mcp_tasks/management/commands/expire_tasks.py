"""``manage.py expire_tasks``: one pass of the janitor, for cron."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from mcp_tasks.store import get_store
from mcp_tasks.store.sweep import sweep


class Command(BaseCommand):
    """Safe to run at any time and any number at once; a second run finds nothing."""

    help = "Recover lost legs, expire tasks past their ttl, and purge what is no longer kept: one pass."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=("text", "json"), default="text", help="how the result is printed")

    def handle(self, *args: Any, **options: Any) -> None:
        report = sweep(get_store())
        if options["format"] == "json":
            self.stdout.write(json.dumps(asdict(report)))
        elif options["verbosity"] > 0:
            self.stdout.write(
                f"recovered {report.recovered}, failed {report.failed}, redelivered {report.redelivered}, "
                f"timed out {report.timed_out}, expired {report.expired}, purged {report.purged}"
            )
        if report.errors:
            raise CommandError(f"These steps failed, see the log: {', '.join(report.errors)}")
