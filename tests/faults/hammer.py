"""
The hammer: real processes that wait at a barrier and then do one operation each on the same task.

The processes live as long as the hammer; each keeps its connection. The first of them also prepares the tasks and
looks at what came of them, so that the process of the test itself needs no database.
"""

import itertools
import multiprocessing
import os
import random
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from .histories import Race

PROCESSES = 8
_BARRIER_SECONDS = 60
_STOP_SECONDS = 5
#: Half of the starts are spread over so long, since operations that start together do not always meet.
_SPREAD_SECONDS = 0.003


@dataclass(slots=True)
class Report:
    """What became of all races of one kind."""

    violations: list[str] = field(default_factory=list)
    #: How often each history was seen.
    histories: Counter[Any] = field(default_factory=Counter)


class Hammer:
    """Started once for a database, then fed with races by name."""

    def __init__(self, environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        barriers = {parties: context.Barrier(parties) for parties in range(1, PROCESSES + 1)}
        pipes = [context.Pipe() for _ in range(PROCESSES)]
        self._pipes = [mine for mine, _ in pipes]
        theirs = [end for _, end in pipes]
        self._foreman = context.Process(target=_lead, args=(theirs, barriers, environment))
        self._foreman.start()
        for end in theirs:
            end.close()
        try:
            self._ask(0, "migrate")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        self._foreman.join(_STOP_SECONDS)
        try:
            os.killpg(self._foreman.pid or 0, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of them ended by themselves
        self._foreman.join()
        self._foreman.close()

    def run(self, race: "Race", times: int, *, together: bool = True) -> Report:
        """Race so often, with a process for each of the operations; without ``together`` they take turns."""
        report = Report()
        parties = len(race.operations)
        while times > 0:
            states = self._ask(0, "prepare", race.name, min(times, race.batch))
            times -= len(states)
            for index in range(parties):
                self._send(index, "race", race.name, states, together)
            returned = [self._receive(index) for index in range(parties)]
            violations, histories = self._ask(0, "look", race.name, states, list(zip(*returned, strict=True)))
            report.violations += violations
            report.histories.update(histories)
        return report

    def _ask(self, index: int, command: str, *arguments: Any) -> Any:
        self._send(index, command, *arguments)
        return self._receive(index)

    def _send(self, index: int, command: str, *arguments: Any) -> None:
        self._pipes[index].send((command, arguments))

    def _receive(self, index: int) -> Any:
        done, value = self._pipes[index].recv()
        if not done:
            raise RuntimeError(f"process {index} of the hammer failed:\n{value}")
        return value


def _lead(pipes: list[Connection], barriers: dict[int, Barrier], environment: dict[str, str]) -> None:
    """The life of the foreman: do the slow imports once, fork the others before any connection is open, wait."""
    os.setpgid(0, 0)
    os.environ.update(environment)
    import django
    from django.db.backends.signals import connection_created

    from tests.support.speed import hurry

    django.setup()
    connection_created.connect(lambda *, connection, **_: hurry(connection), weak=False)
    hands = [_Process(index, barriers) for index in range(len(pipes))]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_serve, args=(pipes, hand)) for hand in hands]
    for process in processes:
        process.start()
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join()


def _serve(pipes: list[Connection], process: "_Process") -> None:
    """The life of one process: commands in, results out, until the other end is closed."""
    pipe = pipes.pop(process.index)
    for other in pipes:
        other.close()
    while True:
        try:
            command, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(process, command)(*arguments))
        except Exception:
            answer = (False, traceback.format_exc())
        pipe.send(answer)


def _told(operation: Any, state: Any) -> Any:
    """What the caller of an operation is told; an exception is in no list of histories, and so is reported."""
    from .histories import Raised

    try:
        return operation(state)
    except Exception as raised:
        return Raised(f"{type(raised).__name__}: {raised}".strip())


class _Process:
    """What a process of the hammer can be asked for."""

    def __init__(self, index: int, barriers: dict[int, Barrier]) -> None:
        from mcp_tasks.store import effects

        from .janitor_races import JANITOR_RACES, NAIVE
        from .races import RACES

        self._races = {**RACES, **JANITOR_RACES, NAIVE.name: NAIVE}
        self.index = index
        self._barriers = barriers
        self._random = random.Random(index)
        self._rung: Counter[Any] = Counter()
        effects.enqueue_hooks.append(lambda ref: self._rung.update([ref]))

    def migrate(self) -> None:
        from django.core.management import call_command

        call_command("migrate", "mcp_tasks", verbosity=0)

    def prepare(self, race: str, times: int) -> list[Any]:
        """Tasks for the next races, in an empty table."""
        from mcp_tasks.models import OwnerGate, Task, TaskEvent, TaskInput, TaskStep

        for model in (TaskEvent, TaskInput, TaskStep, Task, OwnerGate):
            model.objects.all()._raw_delete("default")
        made = []
        for _ in range(times):
            state = self._races[race].prepare()
            made.append({**state, "seen": self._events(state["ref"])})
        return made

    def race(self, name: str, states: list[Any], together: bool) -> list[tuple[Any, int]]:
        """This process's operation on each of the tasks: what it returned, and how often the doorbell rang."""
        race = self._races[name]
        operation, arm, parties = race.operations[self.index], race.arm, len(race.operations)
        barrier = self._barriers[parties]
        returned = []
        for number, state in enumerate(states):
            self._rung.clear()
            if arm is not None and self.index == 0:
                arm(state)
            barrier.wait(_BARRIER_SECONDS)
            if together:
                if number % 2:
                    time.sleep(self._random.uniform(0, _SPREAD_SECONDS))
                value = _told(operation, state)
            else:
                for turn in range(parties):
                    if turn == self.index:
                        value = _told(operation, state)
                    barrier.wait(_BARRIER_SECONDS)
            # Nobody may still be busy with this task when the next one is made due.
            barrier.wait(_BARRIER_SECONDS)
            returned.append((value, self._rung[state["ref"]]))
        return returned

    def look(
        self, race: str, states: list[Any], returned: list[tuple[tuple[Any, int], ...]]
    ) -> tuple[list[str], Counter[Any]]:
        """What is wrong with these tasks after their races, and which histories they had."""
        from mcp_tasks.models import Task, TaskInput

        from .histories import Found

        violations: list[str] = []
        histories: Counter[Any] = Counter()
        for state, told in zip(states, returned, strict=True):
            ref = state["ref"]
            inputs = TaskInput.objects.filter(task_id=ref).values_list("key", "state", "answer_json")
            found = Found(
                state=state,
                returned=tuple(value for value, _ in told),
                rung=sum(rung for _, rung in told),
                row=Task.objects.filter(pk=ref).values().first(),
                events=tuple(itertools.islice(self._events(ref), len(state["seen"]), None)),
                inputs={key: (kind, answer) for key, kind, answer in inputs},
            )
            violations += self._races[race].violations(found)
            histories[self._races[race].history(found)] += 1
        return violations, histories

    def _events(self, ref: Any) -> list[str]:
        from mcp_tasks.models import TaskEvent

        # Of a write that was refused there is a note, and no transition.
        transitions = TaskEvent.objects.filter(task_id=ref).exclude(kind="late_result")
        return list(transitions.order_by("id").values_list("kind", flat=True))
