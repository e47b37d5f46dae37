"""DatabaseTaskStore: the default store, assembled from one module per subject."""

from .creation import Creation
from .inputs import Inputs
from .legs import Legs
from .outcomes import Outcomes
from .retention import Retention
from .sweep import Sweep


class DatabaseTaskStore(Creation, Legs, Outcomes, Inputs, Sweep, Retention):
    """
    Tasks as rows of Django models.

    Every transition is one durable transaction, retried whole where the database ended it for a conflict. The
    database's clock alone decides what is due or expired, so any number of processes and hosts may share it.
    """
