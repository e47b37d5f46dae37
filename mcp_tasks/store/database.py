"""DatabaseTaskStore: the default store, assembled from one module per subject."""

from .creation import Creation
from .legs import Legs
from .operating import Operating
from .outlook import Outlook
from .steps import Steps


class DatabaseTaskStore(Creation, Legs, Steps, Operating, Outlook):
    """
    Tasks as rows of Django models.

    Every transition is one durable transaction, retried whole where the database ended it for a conflict. The
    database's clock alone decides what is due or expired, so any number of processes and hosts may share it.
    """
