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

#: Lengths of plain text columns.
STATUS_MESSAGE_LENGTH = 1000
OWNER_LABEL_LENGTH = 200
#: A task's timeline has at most this many entries, terminal ones excepted.
EVENTS_PER_TASK = 500
