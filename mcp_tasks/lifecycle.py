"""The table of the state machine: which status a phase may have. Pure data, no Django."""

from .protocol.tasks import CANCELLED, COMPLETED, FAILED, INPUT_REQUIRED, TERMINAL, WORKING

QUEUED, RUNNING, PARKED, DONE, EXPIRED = "queued", "running", "parked", "done", "expired"

#: Phases in which something is still to happen.
LIVE = (QUEUED, RUNNING, PARKED)
STATUSES = (WORKING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED)
PHASES = (*LIVE, DONE, EXPIRED)

#: The only legal pairs. A tombstone keeps the status it had.
PAIRS: dict[str, tuple[str, ...]] = {
    QUEUED: (WORKING,),
    RUNNING: (WORKING, INPUT_REQUIRED),
    PARKED: (INPUT_REQUIRED,),
    DONE: TERMINAL,
    EXPIRED: STATUSES,
}

#: States of one question.
OUTSTANDING, ANSWERED, SUPERSEDED, WITHDRAWN = "outstanding", "answered", "superseded", "withdrawn"
INPUT_STATES = (OUTSTANDING, ANSWERED, SUPERSEDED, WITHDRAWN)

#: How long a queued task waits before its doorbell is rung again, doubled each time up to the limit.
REDELIVER_SECONDS = 60
REDELIVER_LIMIT_SECONDS = 900

#: A time to live may not be changed in its last moments: a reader might see "expired", then "present".
TTL_MARGIN_SECONDS = 0.25

#: Upper bounds of the buckets in which running times are counted; the last bucket has none.
DURATION_BOUNDS_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

#: How a task ended, in counts: a completed one whose result is an error counts apart.
TOOL_ERROR = "tool_error"
OUTCOMES = (COMPLETED, TOOL_ERROR, FAILED, CANCELLED, EXPIRED)

#: Lengths of plain text columns.
STATUS_MESSAGE_LENGTH = 1000
OWNER_LABEL_LENGTH = 200
#: A task's timeline has at most this many entries, terminal ones excepted.
EVENTS_PER_TASK = 500
