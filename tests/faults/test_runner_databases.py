"""The database crashes and comes back while clients create tasks and workers run them."""

import http.client
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from mcp_tasks.protocol.errors import McpError
from tests.faults.databases import for_processes, kinds
from tests.support.clusters import cluster
from tests.support.runner_sites import DJANGO_TASKS, Site, site, text_of

from .conftest import each

pytestmark = pytest.mark.skipif(not kinds(), reason="this database is not served by real processes in the suite")

T = TypeVar("T")

SECONDS = 5.0
QUIET = 40.0
KEYS = ("first", "second")
#: What a client sees of a server whose database is away.
REFUSED = (McpError, OSError, http.client.HTTPException)


@dataclass(slots=True)
class Survey:
    """What a person answers, which of the answers were sent, and which were acknowledged."""

    answers: dict[str, str]
    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)


class Callers:
    """Threads, one for each kind of task, that create them, and remember what was acknowledged."""

    def __init__(self, here: Site) -> None:
        self._site = here
        self._stop = threading.Event()
        works = (self._echo, self._charge, self._survey)
        self._threads = [threading.Thread(target=self._work, args=(work,), daemon=True) for work in works]
        self.echoes: dict[str, str] = {}
        self.charges: dict[str, str] = {}
        self.surveys: dict[str, Survey] = {}
        self.refused = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    @property
    def acknowledged(self) -> int:
        """How many answers were."""
        return sum(len(survey.acknowledged) for survey in self.surveys.values())

    def ask(self, name: str) -> str:
        """A survey, of which the first answer was acknowledged."""
        task_id = self._site.call("survey")
        self.surveys[task_id] = Survey({key: f"{name}-{key}" for key in KEYS})
        assert self.answer(task_id, "first", QUIET)
        return task_id

    def answer(self, task_id: str, key: str, seconds: float) -> bool:
        """Answer once the question is there, and the same again while it is; whether it is answered by now."""
        survey, deadline = self.surveys[task_id], time.monotonic() + seconds
        response = {key: {"action": "accept", "content": {"value": survey.answers[key]}}}
        while time.monotonic() < deadline:
            task = self._tried(lambda: self._site.client.get_task(task_id))
            if task is not None and key in task.get("inputRequests", {}):
                survey.sent.add(key)
                if self._tried(lambda: self._site.client.update_task(task_id, response)) is not None:
                    survey.acknowledged.add(key)
                    return True
            elif task is not None and key in survey.sent:
                return True  # it was kept, though its acknowledgement was lost
            time.sleep(0.05)
        return False

    def _tried(self, request: Callable[[], T]) -> T | None:
        try:
            return request()
        except REFUSED:
            self.refused += 1  # nobody was promised anything
            self._stop.wait(0.2)
            return None

    def _work(self, work: Callable[[str], None]) -> None:
        for number in itertools.count():
            if self._stop.wait(0.05):
                return
            work(str(number))

    def _echo(self, text: str) -> None:
        task_id = self._tried(lambda: self._site.call("slow_echo", text=text, seconds=0.05))
        if task_id is not None:
            self.echoes[task_id] = text

    def _charge(self, text: str) -> None:
        task_id = self._tried(lambda: self._site.call("charge", text=text, seconds=0.2))
        if task_id is not None:
            self.charges[task_id] = text

    def _survey(self, text: str) -> None:
        task_id = self._tried(lambda: self._site.call("survey"))
        if task_id is None:
            return
        self.surveys[task_id] = Survey({key: f"{text}-{key}" for key in KEYS})
        for key in KEYS:
            while not self._stop.is_set() and not self.answer(task_id, key, 1.0):
                pass


@each()
def test_a_database_that_crashes_under_load_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    with cluster() as database:
        made = for_processes(database.settings, tmp_path)
        with site(kind, tmp_path, made) as here:
            here.alive()
            callers = Callers(here)
            callers.start()
            time.sleep(SECONDS / 3)
            callers.ask("before")
            database.stop()  # with the acknowledgement still warm
            time.sleep(0.5)
            database.start()
            began = time.monotonic()
            with ExitStack() as stack:
                if kind == DJANGO_TASKS:
                    stack.enter_context(here.supervised())  # its workers end with their database, sooner or later
                time.sleep(SECONDS / 2)
                callers.stop()
                # Whoever runs this one takes whatever waits besides.
                last = here.call("slow_echo", text="last", seconds=0.01)
                assert text_of(here.end_of(last, QUIET)) == "last"
                _nothing_is_lost(here, callers)
                assert kind == DJANGO_TASKS or all(worker.is_alive for worker in here.workers)
            tasks = len(callers.echoes) + len(callers.charges) + len(callers.surveys)
            took = time.monotonic() - began
            print(f"{kind}: {tasks} tasks with {callers.acknowledged} answers, all over {took:.1f} s after the restart")
            assert min(len(callers.echoes), len(callers.charges)) > 5
            assert len(callers.surveys) > 2
            assert callers.refused, "the crash did not meet the load"


def _nothing_is_lost(here: Site, callers: Callers) -> None:
    for task_id, text in callers.echoes.items():
        assert text_of(here.end_of(task_id, QUIET)) == text
        assert here.outcomes(task_id) == ["completed"]
        assert here.row(task_id)["attempts"] <= 3
    for task_id, text in callers.charges.items():
        task = here.end_of(task_id, QUIET)
        assert task["status"] == "failed" or text_of(task) == text
        assert here.outcomes(task_id) == [task["status"]]
        assert here.events(task_id).count("claimed") == 1
    for task_id, survey in callers.surveys.items():
        for key in KEYS:
            # Of what was acknowledged nobody is asked again, or this waits for ever.
            assert key in survey.acknowledged or callers.answer(task_id, key, QUIET)
        assert text_of(here.end_of(task_id, QUIET)) == " ".join(survey.answers.values())
        assert here.outcomes(task_id) == ["completed"]
