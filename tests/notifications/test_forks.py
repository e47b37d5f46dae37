"""A process that forks: the child has its own threads and listeners, and locks that nobody holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SETUP = """
import os, signal, sys, threading, time
import django
django.setup()
from mcp_tasks.notifications.groups import ListChanged, TaskChanged
from mcp_tasks.notifications.hub import hub
from mcp_tasks.store import MemoryTaskStore

class Remembers:
    def __init__(self): self.told = []
    def changed(self, ref, state): self.told.append(state and state.snapshot.task.status)
    def list_changed(self, kind): self.told.append(kind)

def soon(condition):
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()

store = MemoryTaskStore()
ref = store.create_task("report", {}).ref

def in_a_child(work):
    signal.alarm(20)
    child = os.fork()
    if not child:
        signal.alarm(10)
        try:
            assert work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
"""


def run(script: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SETUP + script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def test_a_child_hears_of_its_own_tasks_and_of_none_that_its_parent_watched() -> None:
    run(
        """
mine = Remembers()
hub.watch(store, ref, mine)
assert soon(lambda: mine.told == ["working"])

def work():
    own = Remembers()
    assert hub.count() == 0
    hub.watch(store, ref, own)
    assert soon(lambda: own.told == ["working"])
    store.complete_task(ref, {})
    return soon(lambda: own.told == ["working", "completed"]) and mine.told == ["working"]

in_a_child(work)
store.cancel_task(ref)
assert soon(lambda: mine.told == ["working", "cancelled"]), "the parent goes on"
"""
    )


def test_a_lock_that_a_thread_of_the_parent_held_stops_no_child() -> None:
    run(
        """
held, release = threading.Event(), threading.Event()

def hold():
    with hub._lock:
        held.set()
        release.wait(50)

threading.Thread(target=hold, daemon=True).start()
held.wait(5)
actions = {
    "watch": lambda: hub.watch(store, ref, Remembers()),
    "publish": lambda: hub.publish(TaskChanged(ref, 5)),
    "crosses_processes": lambda: hub.crosses_processes,
    "close": hub.close,
    "count": hub.count,
    "unwatch": lambda: hub.unwatch(ref, Remembers()),
    "lists": lambda: hub.publish(ListChanged("tools")),
}

def work(what):
    actions[what]()
    return True

for what in actions:
    print(what, file=sys.stderr)  # the last that is seen is the one that failed
    in_a_child(lambda: work(what))
release.set()
"""
    )


def test_a_child_of_a_child_listens_too() -> None:
    run(
        """
def listens():
    own = Remembers()
    hub.watch(store, ref, own)
    return soon(lambda: own.told == ["working"])

def work():
    assert listens()
    in_a_child(listens)
    return True

assert listens()
in_a_child(work)
"""
    )


def test_importing_and_publishing_starts_no_thread() -> None:
    run(
        """
from mcp_tasks.notifications import list_changed
store.complete_task(ref, {})
hub.publish(TaskChanged(ref, 5))
hub.publish(ListChanged("tools"))
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
from django.db import connections
assert [c.alias for c in connections.all(initialized_only=True) if c.connection] == []
"""
    )
