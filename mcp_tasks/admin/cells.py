"""
What a row of the list shows, as values: made once, then written into the page or into the answer of a live refresh.

Nothing here reads a payload.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..lifecycle import DONE, LIVE, RUNNING
from ..models import Task
from ..operators.secrecy import message_of
from ..operators.states import EXPIRED_STATE, State, is_handed_over, is_still_stopping, state_of
from ..operators.why import span

#: The columns that the list reads. None of them holds what a client sent or a tool made of it.
COLUMNS = (
    "ref",
    "owner_key",
    "owner_label",
    "tool",
    "status",
    "phase",
    "status_message",
    "attempts",
    "max_attempts",
    "progress_done",
    "progress_total",
    "revision",
    "created_at",
    "started_at",
    "finished_at",
    "run_ms",
    "due_at",
    "expires_at",
    "tool_error",
    "lease_holder",
)

#: Unfinished tasks that end in less than this are marked.
SHORT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A row in words. ``percent`` is None where the tool has not said how much there is to do."""

    state: State
    note: str
    percent: int | None
    amount: str
    message: str
    age: str
    left: str
    is_short: bool


def cells(task: Task, now: datetime, *, shows_payload: bool) -> Cells:
    """What is shown of a task at a moment of the database's clock, to who may read payloads or to who may not."""
    state = state_of(task, now)
    percent, amount = _progress(task)
    is_live = task.phase in LIVE and state is not EXPIRED_STATE
    return Cells(
        state=state,
        note=_note(task, state, now),
        percent=percent,
        amount=amount,
        message=message_of(task, now, shows_payload=shows_payload) or "",
        age=brief(now - task.created_at),
        left=_left(task, state, now),
        is_short=is_live and task.expires_at is not None and task.expires_at - now < SHORT,
    )


def _note(task: Task, state: State, now: datetime) -> str:
    if state is EXPIRED_STATE:
        return ""
    if is_still_stopping(task, now):
        return _("worker still stopping")
    if task.phase == DONE:
        return _("ran {time}").format(time=precise(task.run_ms)) if task.started_at is not None else ""
    if is_handed_over(task):
        return _("handed over to a job")
    if task.phase == RUNNING:
        tries = f"{task.attempts}/{task.max_attempts}"
        return f"{task.lease_holder} · {tries}" if task.lease_holder else tries
    return ""


def _progress(task: Task) -> tuple[int | None, str]:
    done, total = task.progress_done, task.progress_total
    if done is None:
        return None, ""
    if not total or total <= 0:
        return None, f"{done:g}"
    # Divided before it is multiplied, and bound before it is an integer: either could be beyond all numbers.
    percent = int(max(0.0, min(100.0, 100 * (done / total))))
    return percent, f"{percent} %"


def _left(task: Task, state: State, now: datetime) -> str:
    if state is EXPIRED_STATE:
        return _("over")
    if task.expires_at is None:
        return _("no limit")
    return brief(task.expires_at - now)


def brief(duration: timedelta) -> str:
    """The larger unit of a duration: enough for a column."""
    return " ".join(span(duration.total_seconds()).split(" ")[:2])


def precise(milliseconds: float) -> str:
    """A running time: tenths of a second while they matter."""
    seconds = milliseconds / 1000
    return span(seconds) if seconds >= 60 else f"{seconds:.1f} {_('s')}"


def grouped(number: int) -> str:
    """A count with its thousands apart."""
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")


def clock(at: datetime) -> str:
    """An instant in the zone of the site, and in UTC where that is another."""
    here, there = timezone.localtime(at), at.astimezone(UTC)
    utc = f"{there:%Y-%m-%d %H:%M:%S} UTC"
    if here.utcoffset() == timedelta(0):
        return utc
    name = here.tzname() if isinstance(here.tzinfo, ZoneInfo) else ""
    return f"{here:%Y-%m-%d %H:%M:%S} {name}".rstrip() + f" · {utc}"


def time_of(at: datetime, words: str, classes: str = "") -> SafeString:
    """An instant told by words such as its age, with the instant itself for who points at it."""
    return format_html('<time class="{}" datetime="{}" title="{}">{}</time>', classes, at.isoformat(), clock(at), words)


def badge(state: State) -> SafeString:
    """A state as glyph, word and colour: none of them is alone."""
    return format_html(
        '<span class="mcp-badge mcp-is-{}"><span class="mcp-glyph" aria-hidden="true">{}</span> '
        '<span class="mcp-word">{}</span></span>',
        state.name,
        state.glyph,
        state.word,
    )


def as_json(task: Task, now: datetime, *, shows_payload: bool) -> dict[str, Any]:
    """The same for a live refresh: what may have changed in a row that is on the screen."""
    shown = cells(task, now, shows_payload=shows_payload)
    return {
        "revision": task.revision,
        "state": shown.state.name,
        "glyph": shown.state.glyph,
        "word": str(shown.state.word),
        "note": shown.note,
        "percent": shown.percent,
        "amount": shown.amount,
        "message": shown.message,
        "age": shown.age,
        "left": shown.left,
        "short": shown.is_short,
    }
