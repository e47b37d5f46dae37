"""``manage.py task_stats``: how the tasks are, for shells and monitors; or one of them, without its payloads."""

import json
import sys
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from mcp_tasks.dbtime import current
from mcp_tasks.models import Task
from mcp_tasks.operators.numbers import Ended, history
from mcp_tasks.operators.vitals import Vitals, vitals
from mcp_tasks.operators.why import span
from mcp_tasks.protocol.tasks import is_task_id
from mcp_tasks.store.locking import database, on_database
from mcp_tasks.store.types import ref_of

from ..arguments import not_negative, whole
from ..one_task import facts_of_task, text_of_task
from ..printing import columns, plain

BROKEN, USAGE = 1, 2


class Command(BaseCommand):
    """Reads only; every number comes from an index, so that a monitor may ask each minute."""

    requires_system_checks = []  # what a monitor reads on stderr are broken limits, and nothing else
    help = "Print how many tasks wait, run and ended, and who serves them; exit with 1 when a limit is broken."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--hours",
            type=whole("number of hours (1 to 168)", 1, 168),
            default=24,
            metavar="N",
            help="of what has ended (default: 24)",
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="how the result is printed")
        parser.add_argument("--database", metavar="ALIAS", help="where the tasks are, if not where the router says")
        limits = parser.add_argument_group("limits: exit with 1, and a line on stderr for each that is broken")
        limits.add_argument(
            "--max-queue-age", type=not_negative, metavar="S", help="seconds that the oldest queued waited"
        )
        limits.add_argument("--max-stalled", type=not_negative, metavar="N", help="tasks whose lease lapsed")
        limits.add_argument("--max-janitor-age", type=not_negative, metavar="S", help="seconds since the janitor ran")
        limits.add_argument("--min-workers", type=not_negative, metavar="N", help="processes that run tasks")
        one = parser.add_argument_group("one task, without its payloads").add_mutually_exclusive_group()
        one.add_argument("--ref", metavar="UUID", help="its server-side name")
        one.add_argument("--task-id", metavar="-", help="read the client's id of it from standard input")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias is not None and alias not in connections:
            raise CommandError(f"There is no database {alias!r} in DATABASES.", returncode=USAGE)
        with on_database(alias):
            if options["ref"] is not None or options["task_id"] is not None:
                self._one(_named(options), options)
            else:
                self._all(options)

    def _one(self, ref: UUID, options: dict[str, Any]) -> None:
        task = Task.objects.using(database()).defer(*_PAYLOADS).filter(pk=ref).first()
        if task is None:
            # What was asked for is not repeated: it may be a client's id that was pasted into the wrong place.
            raise CommandError(
                "No task has this name. It may have been purged, or the name was cut short when it was copied.",
                returncode=BROKEN,
            )
        found = facts_of_task(task, current(database()))
        self.stdout.write(json.dumps(found, indent=2) if options["format"] == "json" else text_of_task(found))

    def _all(self, options: dict[str, Any]) -> None:
        now = vitals()
        past = history(now.now, options["hours"])
        broken = _broken(now, options)
        if options["format"] == "json":
            made = {
                "database": database(),
                **_live(now),
                "finished": {"hours": options["hours"], **_ended(past.total)},
                "tools": {name: _ended(ended) for name, ended in sorted(past.tools.items())},
                "workers": now.workers,
                "slots": now.slots,
                "busy": now.busy,
                "janitor_seconds": now.janitor_seconds,
                "broken": broken,
            }
            self.stdout.write(json.dumps(made, indent=2))
        else:
            self.stdout.write("\n".join(_text(now, past.total, past.tools, options["hours"])))
        if broken:
            for line in broken:
                self.stderr.write(line)
            sys.exit(BROKEN)


_PAYLOADS = (
    "status_message",
    "asks_json",
    "result_json",
    "error_json",
    "meta_json",
    "arguments_json",
    "context_json",
    "traceback",
)


def _named(options: dict[str, Any]) -> UUID:
    if options["ref"] is not None:
        try:
            return UUID(options["ref"])
        except ValueError:
            raise CommandError("--ref wants a UUID.", returncode=USAGE) from None
    if options["task_id"] != "-":
        # On a command line it would stay in the shell's history and be shown to everybody by ps.
        raise CommandError("Give the id on standard input: --task-id -", returncode=USAGE)
    task_id = sys.stdin.readline(1024).strip()
    if not is_task_id(task_id):
        raise CommandError("What was read is no task id: one has 43 characters.", returncode=USAGE)
    return ref_of(task_id)


def _live(now: Vitals) -> dict[str, Any]:
    live = now.live
    return {
        "queued": live.queued,
        "running": live.running,
        "needs_input": live.needs_input,
        "stalled": live.stalled,
        "expire_soon": live.expire_soon,
        "overdue": now.overdue,
        "oldest_queued_seconds": now.oldest_queued_seconds,
        "oldest_input_seconds": now.oldest_input_seconds,
    }


def _ended(ended: Ended) -> dict[str, Any]:
    return {
        "count": ended.count,
        **ended.by_outcome,
        "failed_share": ended.failed_share,
        "p50_seconds": ended.percentile_seconds(0.5),
        "p95_seconds": ended.percentile_seconds(0.95),
    }


def _broken(now: Vitals, options: dict[str, Any]) -> list[str]:
    waited, stalled, janitor = options["max_queue_age"], options["max_stalled"], options["max_janitor_age"]
    lines = []
    if waited is not None and (now.oldest_queued_seconds or 0) > waited:
        lines.append(f"queue age: {span(now.oldest_queued_seconds or 0)}, at most {span(waited)}")
    if stalled is not None and now.live.stalled > stalled:
        lines.append(f"stalled: {now.live.stalled}, at most {stalled}")
    if janitor is not None and (now.janitor_seconds is None or now.janitor_seconds > janitor):
        seen = "never ran" if now.janitor_seconds is None else f"ran {span(now.janitor_seconds)} ago"
        lines.append(f"janitor: {seen}, at most {span(janitor)}")
    if options["min_workers"] is not None and now.workers < options["min_workers"]:
        lines.append(f"workers: {now.workers}, at least {options['min_workers']}")
    return lines


def _text(now: Vitals, total: Ended, tools: dict[str, Ended], hours: int) -> list[str]:
    live = now.live
    lines = [
        (
            f"queued {live.queued}{_oldest(now.oldest_queued_seconds)}, running {live.running}, "
            f"need input {live.needs_input}{_oldest(now.oldest_input_seconds)}, stalled {live.stalled}, "
            f"expire in 10 min {live.expire_soon}, overdue {now.overdue}"
        ),
        f"finished in {hours} h: {total.count} ({', '.join(f'{k} {v}' for k, v in total.by_outcome.items())})"
        + _share(total.failed_share, " failed", before=", "),
        f"workers {now.workers}, slots {now.slots}, busy {now.busy}; the janitor "
        + ("never ran" if now.janitor_seconds is None else f"ran {span(now.janitor_seconds)} ago"),
    ]
    if tools:
        head = ("TOOL", "FINISHED", "FAILED", "ABOUT HALF WITHIN", "95 % WITHIN")
        table = [
            (
                plain(name),
                str(ended.count),
                _share(ended.failed_share),
                _about(ended.percentile_seconds(0.5)),
                _about(ended.percentile_seconds(0.95)),
            )
            for name, ended in sorted(tools.items())
        ]
        lines += ["", *columns([head, *table])]
    return lines


def _oldest(seconds: float | None) -> str:
    return "" if seconds is None else f" (oldest {span(seconds)})"


def _share(share: float | None, after: str = "", *, before: str = "") -> str:
    return "" if share is None else f"{before}{100 * share:.1f} %{after}"


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3g} s"
