"""Who is alive: one row for each process that runs legs or sweeps, renewed while it lives."""

import hashlib
import os
import socket
from datetime import timedelta

from django.db import IntegrityError
from django.db.models import Subquery

from .. import __version__
from ..dbtime import DbNow, later
from ..models import Process
from ..protocol.codec import Json, dumps, loads
from .locking import database, transact

WEB, WORKER, JANITOR = "web", "worker", "janitor"

#: How often a process says that it is alive, and how long one that does not is remembered.
REPORT_SECONDS = 15
ALIVE_SECONDS = 4 * REPORT_SECONDS
FORGET_SECONDS = 86_400


def own_name() -> str:
    """The name of this process: also the holder of the leases that it takes."""
    return f"{socket.gethostname()[:80]}:{os.getpid()}"


def janitor_name() -> str:
    """The name under which every sweep of this host is noted, whichever process made it."""
    return f"janitor@{socket.gethostname()[:80]}"


def tools_hash(names: list[str]) -> str:
    """Equal for processes that know the same tools."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def report(name: str, kind: str, *, slots: int = 0, busy: int = 0, tools: str = "", info: Json = None) -> None:
    """Say that a process is alive, and what it does."""
    values = {
        "kind": kind,
        "slots": slots,
        "busy": busy,
        "tools_hash": tools,
        "info": dumps({"version": __version__, **(info or {})}),
    }

    def renew(using: str) -> bool:
        return bool(Process.objects.using(using).filter(pk=name).update(seen_at=DbNow(), **values))

    def begin(using: str) -> None:
        host, pid = socket.gethostname()[:100], os.getpid()
        Process.objects.using(using).create(
            name=name, host=host, pid=pid, started_at=DbNow(), seen_at=DbNow(), **values
        )

    if not transact(renew):
        try:
            transact(begin)
        except IntegrityError:
            transact(renew)  # two threads of one process began at once


def only_tools(process: Process) -> list[str] | None:
    """The tools whose tasks a process takes, where it was told not to take all."""
    try:
        info = loads(process.info)
    except ValueError:
        return None
    only = info.get("only") if isinstance(info, dict) else None
    return [name for name in only if isinstance(name, str)] if isinstance(only, list) else None


def leave(name: str) -> None:
    """A process that ends in good order is not missed."""
    transact(lambda using: Process.objects.using(using).filter(pk=name)._raw_delete(using))


def is_outdated(name: str, tools: str) -> bool:
    """Whether a process that began later than this one was heard of lately, and knows other tools."""
    all_of_them = Process.objects.using(database())
    mine = all_of_them.filter(pk=name)
    lately = all_of_them.filter(seen_at__gte=later(DbNow(), -timedelta(seconds=ALIVE_SECONDS))).exclude(kind=JANITOR)
    return lately.filter(started_at__gt=Subquery(mine.values("started_at"))).exclude(tools_hash=tools).exists()


def forget() -> int:
    """Remove processes that have not been heard of for a day; returns how many."""
    limit = later(DbNow(), -timedelta(seconds=FORGET_SECONDS))

    def operation(using: str) -> int:
        return int(Process.objects.using(using).filter(seen_at__lt=limit)._raw_delete(using))

    return transact(operation)


def alive(within_seconds: float) -> list[Process]:
    """The processes heard of lately, by name."""
    limit = later(DbNow(), -timedelta(seconds=within_seconds))
    return list(Process.objects.using(database()).filter(seen_at__gte=limit).order_by("name"))
