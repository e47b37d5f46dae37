"""The list while others write: nobody waits for it, and it waits for nobody."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection, connections
from django.test import Client

from mcp_tasks.store import get_store
from mcp_tasks.store.types import Owner

pytestmark = pytest.mark.django_db(transaction=True)

WRITES = 300


def test_viewing_while_tasks_change_meets_no_lock(operator: Callable[..., Client]) -> None:
    client = operator("view_task")
    store, problems, done = get_store(), [], threading.Event()

    def write() -> None:
        try:
            for number in range(WRITES // 3):
                created = store.create_task(tool="report", owner=Owner(("alice",)), arguments={"number": number})
                store.cancel(created.ref, actor="operator:1", reason="race")
                store.delete_terminal(created.ref, actor="operator:1", reason="race")
        except Exception as problem:
            problems.append(problem)
        finally:
            done.set()
            connections[connection.alias].close()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set() or seen < 3:
        assert client.get("/admin/mcp_tasks/task/").status_code == 200
        seen += 1
    writer.join()
    assert problems == []
