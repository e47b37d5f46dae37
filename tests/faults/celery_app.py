"""The Celery app of the fault tests: its broker and its queue are the test's."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.settings")

app = Celery("faults", broker=os.environ.get("FAULTS_BROKER", "memory://"))
app.conf.update(
    task_default_queue=os.environ.get("FAULTS_QUEUE", "faults"),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_cancel_long_running_tasks_on_connection_loss=False,
)
