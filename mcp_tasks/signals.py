"""
Django signals about tasks: sent after commit, with ``send_robust``, by whichever process made the change.

Every receiver gets keyword arguments: ``sender`` is the model ``Task``, ``ref`` names the task, ``revision`` is its
new revision where one moved (else None), and ``snapshot()`` reads its present state (None once it is gone). A receiver
that raises is logged by Django and changes nothing. Receivers run on the thread that committed, so they must be short.
"""

from django.dispatch import Signal

#: A task was stored and its first leg is queued, or handed to the project's own job.
task_created = Signal()

#: ``status`` moved, for instance from ``working`` to ``input_required``.
task_status_changed = Signal()

#: A task asks its client something; sent again when it asks something else.
input_requested = Signal()

#: An open question was answered, by the client, or by the janitor where its deadline was over.
input_answered = Signal()

#: A task has its outcome: ``completed``, ``failed`` or ``cancelled``. Sent once for each task.
task_settled = Signal()

#: A task is past its time to live, and its payloads are gone.
task_expired = Signal()

#: A leg was lost, released or failed for the moment, and the task is queued again.
task_requeued = Signal()

#: An operator did something to a task, or tried to: ``action`` (the verb), ``user`` (None for a command), ``reason``
#: (None where it was refused before one was read) and ``outcome``, a word of the operators' reference.
operator_acted = Signal()

#: A caller named a task of another owner. To that caller it does not exist. Carries no revision.
access_refused = Signal()
