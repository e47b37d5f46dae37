"""docs/how-to/run-workers.md: its options are those of the command, with the same defaults."""

import re

from mcp_tasks.conf import Settings
from mcp_tasks.management.commands.run_task_worker import Command
from tests.store.statements import IDLE_PASS

from .pages import ROOT, blocks, code, table

PAGE = ROOT / "docs/how-to/run-workers.md"
PARSER = Command().create_parser("manage.py", "run_task_worker")


def test_the_options_of_the_page_are_those_of_the_command() -> None:
    rows = {code(row[0]).split()[0]: row for row in table(PAGE, "# Run workers")}
    own = {action.option_strings[0]: action for action in PARSER._actions if action.dest in _own()}
    assert sorted(rows) == sorted(own)
    for name, action in own.items():
        if action.metavar is not None:
            assert code(rows[name][0]) == f"{name} {action.metavar}"
        if isinstance(action.default, int) and not isinstance(action.default, bool):
            assert rows[name][1] == str(action.default), name


def _own() -> set[str]:
    return {"slots", "tools", "once", "max_tasks", "max_memory", "drain_seconds", "database"}


def test_every_command_line_of_the_page_is_understood() -> None:
    lines = [line for block in blocks(PAGE) for line in block.text.splitlines()]
    used = [re.split(r"run_task_worker", line)[1].split() for line in lines if "manage.py run_task_worker" in line]
    words = [re.findall(r'"([^"]+)"', line) for line in lines if line.startswith("CMD")]
    used += [given[given.index("run_task_worker") + 1 :] for given in words]
    assert len(used) >= 5
    for arguments in used:
        PARSER.parse_args(arguments)


def test_an_idle_worker_costs_what_the_page_says() -> None:
    load = dict(table(PAGE, "## Connections and load"))
    a_minute = 60 // Settings().SWEEP_SECONDS * IDLE_PASS
    assert f" {a_minute} of " in load["statements of an idle worker, a minute"]
