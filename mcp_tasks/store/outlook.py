"""What is due: counts of what one pass of the janitor would do, without doing it."""

from django.db.models import F, Q

from ..lifecycle import PARKED, QUEUED, RUNNING
from ..protocol.tasks import WORKING
from . import rollups
from .locking import database
from .retention import Retention, expiring, purgeable
from .sweep import Sweep, due
from .types import SweepReport


class Outlook(Sweep, Retention):
    """The counting operation of the database store."""

    def outlook(self) -> SweepReport:
        using = database()
        lapsed = due(using, RUNNING)
        lost = Q(status=WORKING, attempts__gte=F("max_attempts"))
        return SweepReport(
            recovered=lapsed.exclude(lost).count(),
            failed=lapsed.filter(lost).count(),
            redelivered=due(using, QUEUED).count(),
            timed_out=due(using, PARKED).count(),
            expired=expiring(using).count(),
            purged=purgeable(using).count(),
            rolled_up=rollups.hours_due(using),
        )
