"""
Decisions that every store makes alike, as pure functions: key rules, picking answers, size limits.

A store brings the rows and writes what comes out; what is allowed is decided here and nowhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .. import conf, observing
from ..lifecycle import OUTSTANDING
from ..protocol.capabilities import PROGRESS_KEY, RELATED_TASK_KEY, SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY
from ..protocol.codec import Json, digest, dumps, size_bytes
from ..protocol.errors import McpError, internal_error
from .base import AnswerCheck
from .types import DEFAULT_TTL, InvalidTransition, Outcome, Requests, RetentionLimitExceeded, TtlMs

#: A hundred years: what is longer would not be a date any more.
TTL_LIMIT_MS = 100 * 365 * 24 * 3600 * 1000

_ADDED_META = (SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY, PROGRESS_KEY, RELATED_TASK_KEY)

#: What a task fails with when its leg was lost and it may not be tried again: ever, or so often.
LEG_LOST = internal_error("The process that ran this task was lost, and the task may not be tried again")

#: What the client reads of a task that an operator failed, unless the operator's own words are shared.
FAILED_BY_OPERATOR = "The task was stopped by an operator of this server"

#: Keys are chosen by the server: visible ASCII, so that they survive every column, header and log.
_KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What replacing the outstanding set means for the rows of a task's questions."""

    inserted: Requests
    superseded: tuple[str, ...]
    asks_json: str


def plan_questions(known: Mapping[str, tuple[str, str]], requests: Requests) -> KeyPlan:
    """
    Apply the key rules: ``known`` maps each key ever issued to its state and the hash of its question.

    Raises InvalidTransition for an empty map, a malformed or spent key, or a live key with another question.
    """
    if not requests:
        raise InvalidTransition("empty_ask: a task cannot wait for nothing")
    inserted: Requests = {}
    for key, request in requests.items():
        if not _KEY.fullmatch(key):
            raise InvalidTransition(f"malformed_key: {key!r} is not 1 to 128 visible ASCII characters")
        state, request_hash = known.get(key, (None, None))
        if state is None:
            inserted[key] = request
        elif state != OUTSTANDING:
            raise InvalidTransition(f"key_spent: {key!r} was {state} and can never be asked again")
        elif request_hash != digest(request):
            raise InvalidTransition(f"key_spent: {key!r} is open with another question")
    limit = conf.get_settings().LIMITS.INPUT_KEYS
    if limit is not None and len(known) + len(inserted) > limit:
        raise RetentionLimitExceeded(f"a task may ask {limit} questions in all (LIMITS['INPUT_KEYS'])")
    superseded = tuple(key for key, (state, _) in known.items() if state == OUTSTANDING and key not in requests)
    return KeyPlan(inserted, superseded, limited("ask", dumps(requests)))


def step_text(name: str, result: Json) -> str:
    """The result of a step as it is stored; raises InvalidTransition for a malformed name, RetentionLimitExceeded."""
    if not _KEY.fullmatch(name):
        raise InvalidTransition(f"malformed_step: {name!r} is not 1 to 128 visible ASCII characters")
    return limited("step", dumps(result))


def same_step(name: str, recorded_hash: str, args_hash: str) -> Outcome:
    """What is said of a step that was recorded before; raises InvalidTransition for other arguments."""
    if recorded_hash != args_hash:
        raise InvalidTransition(f"step_spent: {name!r} was recorded with other arguments")
    return Outcome(False, "unchanged")


def pick_answers(outstanding: Requests, responses: Mapping[str, Json], check: AnswerCheck | None) -> dict[str, str]:
    """
    The answers to keep, as JSON text by key. Keys that are not outstanding are left out before anything is judged.

    Raises what ``check`` raises, and RetentionLimitExceeded; then the whole request is refused.
    """
    picked = {key: answer for key, answer in responses.items() if key in outstanding}
    if check is not None:
        for key, answer in picked.items():
            check(key, outstanding[key], answer)
    return {key: limited("answer", dumps(answer)) for key, answer in picked.items()}


def limited(kind: str, text: str) -> str:
    """The text itself, unless it is beyond ``LIMITS['PAYLOAD_BYTES']``."""
    limit = conf.get_settings().LIMITS.PAYLOAD_BYTES
    size = size_bytes(text)
    if limit is not None and size > limit:
        observing.happened("payload_refused", kind=kind)
        raise RetentionLimitExceeded(f"{kind} has {size} bytes; LIMITS['PAYLOAD_BYTES'] is {limit}")
    observing.happened("payload", kind=kind, size=size)
    return text


def meta_text(meta: Mapping[str, Json]) -> str:
    """A task's own ``_meta`` as it is stored: without the keys that every view adds by itself."""
    return limited("_meta", dumps({key: value for key, value in meta.items() if key not in _ADDED_META}))


def oversized(kind: str) -> McpError:
    """What a task fails with whose result or error was too large: nothing of the content."""
    return internal_error(f"The task's {kind} was larger than this server keeps")


def checked_ttl_ms(ttl_ms: TtlMs) -> int | None:
    """The ttl to store for a new task; raises ValueError naming what is wrong."""
    settings = conf.get_settings()
    if ttl_ms is DEFAULT_TTL:
        return settings.effective_ttl_ms
    if ttl_ms is None:
        if settings.MAX_TTL_MS is not None:
            raise ValueError("a task without ttl needs MCP_TASKS['MAX_TTL_MS'] = None")
        return None
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool) or ttl_ms <= 0:
        raise ValueError("ttl_ms must be a positive number of milliseconds")
    limit = min(settings.MAX_TTL_MS or TTL_LIMIT_MS, TTL_LIMIT_MS)
    if ttl_ms > limit:
        raise ValueError(f"ttl_ms is beyond MCP_TASKS['MAX_TTL_MS'] ({limit})")
    return ttl_ms


def checked_poll_interval_ms(poll_interval_ms: int | None) -> int:
    """The hint to store for a new task, the default where none is given; raises ValueError for what is no interval."""
    if poll_interval_ms is None:
        return conf.get_settings().POLL_INTERVAL_MS
    if not isinstance(poll_interval_ms, int) or not 0 < poll_interval_ms < 2**31:
        raise ValueError("poll_interval_ms must be a positive number of milliseconds")
    return poll_interval_ms


def changed_ttl_ms(ttl_ms: int | None) -> int | None:
    """
    The ttl to store for an existing task: never beyond ``MAX_TTL_MS``, and at least 1 (which has expired at once).

    Raises ValueError for what is no number of milliseconds.
    """
    limit = conf.get_settings().MAX_TTL_MS
    if ttl_ms is None:
        return limit
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool):
        raise ValueError("ttl_ms must be a number of milliseconds, or None")
    return min(max(ttl_ms, 1), limit or TTL_LIMIT_MS, TTL_LIMIT_MS)


def is_form(question: dict[str, Json]) -> bool:
    """Whether a question is for a human: the only kind that an operator may dismiss in the user's place."""
    return question.get("method") == "elicitation/create"


def live_limit(owner_key: str | None) -> int | None:
    """How many live tasks the bucket of this owner may have; anonymous callers share one bucket."""
    limits = conf.get_settings().LIMITS
    return limits.LIVE_TASKS_ANONYMOUS if owner_key is None else limits.LIVE_TASKS_PER_OWNER
