"""docs/how-to/operate.md: its commands, units and tables say what there is."""

import ast
import re
import shlex
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class

from mcp_tasks import conf
from mcp_tasks.models import Task
from mcp_tasks.operators import states, why
from mcp_tasks.operators.policy import VERBS
from mcp_tasks.store.rollups import KEPT_DAYS
from mcp_tasks.store.sweep import STEPS

from .pages import DOCS, blocks, table

PAGE = DOCS / "how-to" / "operate.md"
TEXT = PAGE.read_text()
EXPIRE = load_command_class("mcp_tasks", "expire_tasks").create_parser("manage.py", "expire_tasks")


def commands() -> list[str]:
    """Every call of manage.py on the page, in blocks and in sentences."""
    found = re.findall(r"manage\.py ([a-z_]+[^`\n]*)", TEXT)
    return [call.strip() for call in found]


@pytest.mark.parametrize("call", commands())
def test_each_command_is_one_and_takes_what_it_is_given(call: str) -> None:
    name, *arguments = shlex.split(call)
    app: Any = get_commands()[name]
    parser = load_command_class(app, name).create_parser("manage.py", name)
    parser.parse_args(arguments)  # ends the process where it does not


def test_the_line_for_cron_has_its_fields() -> None:
    [line] = [block.text for block in blocks(PAGE) if block.language == "text"]
    *when, user, command = re.split(r"\s+", line.strip(), maxsplit=6)
    assert when == ["*"] * 5
    assert user.isidentifier()
    assert command.startswith("cd /srv/site && ")


def test_the_units_of_systemd_are_a_timer_what_it_starts_and_a_service() -> None:
    units = []
    for block in blocks(PAGE):
        if block.language == "ini":
            units.append(ConfigParser())
            units[-1].read_string(block.text)
    timer, once, ever = units
    assert timer["Timer"]["OnCalendar"] == "minutely"
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert once["Service"]["Type"] == "oneshot"
    assert ever["Service"]["Restart"] == "always"
    assert "--loop" not in once["Service"]["ExecStart"]
    assert "--loop" in ever["Service"]["ExecStart"]
    for unit in (once, ever):
        program, _, call = unit["Service"]["ExecStart"].partition(" manage.py ")
        assert program.startswith(unit["Service"]["WorkingDirectory"])
        assert call in commands()


def test_the_options_of_the_janitor_are_those_of_its_command() -> None:
    rows = table(PAGE, "| option | does |")
    named = {option for row in rows for option in re.findall(r"`(--[a-z-]+)", row[0])}
    own = {option for action in EXPIRE._actions for option in action.option_strings}
    assert named <= own
    assert {"--dry-run", "--only", "--max-seconds", "--fail-if-behind"} <= named
    [steps] = [row[1] for row in rows if "--only" in row[0]]
    assert re.findall(r"`(\w+)`", steps) == list(STEPS)
    assert f"`--max-seconds` ({EXPIRE.get_default('max_seconds')})" in TEXT


def test_every_state_has_its_row() -> None:
    told = " ".join(row[0] for row in table(PAGE, "## States"))
    for state in vars(states).values():
        if isinstance(state, states.State):
            assert f"{state.glyph} {state.word}" in told
    assert "handed over" in told


def test_every_verb_has_its_row_and_its_permission() -> None:
    rows = {row[0].partition(",")[0]: row[1] for row in table(PAGE, "## What you may do")}
    for verb in VERBS.values():
        assert f"`{verb.permission}`" in rows[str(verb.label)]
    named = set(re.findall(r"`(\w+)`", " ".join(rows.values())))
    assert named == {"view_task", "delete_task", *(name for name, _words in Task._meta.permissions)}


def test_every_sentence_has_its_row() -> None:
    """By their beginnings: what stands between is filled in."""
    told = " ".join(row[0] for row in table(PAGE, "## Why is it in this state?"))
    plain = re.sub(r"\W+", " ", told)
    tree = ast.parse(Path(why.__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    given = [argument for call in calls if call.func.id in ("_", "ngettext") for argument in call.args]
    texts = [argument.value for argument in given if isinstance(argument, ast.Constant)]
    sentences = [text for text in texts if re.match(r"(\{\w+\}|[A-Z]\w*) .*[.:]", text)]
    assert len(sentences) > 12
    for sentence in sentences:
        if sentence.startswith(("It expires", "95 %", "The janitor, which", "About", "{busy} process is")):
            continue  # follows another one, or is one of a pair
        parts = [re.sub(r"\W+", " ", part).strip() for part in re.split(r"\{\w+\}|[.:,]", sentence)]
        assert next(part for part in parts if len(part) > 7)[:24] in plain, sentence


def test_what_is_kept_is_kept_as_long_as_the_page_says() -> None:
    settings = conf.get_settings()
    kept = {row[0]: row[1] for row in table(PAGE, "## What is kept how long")}
    assert settings.DEFAULT_TTL_MS == 3_600_000
    assert settings.MAX_TTL_MS == 7 * 86_400_000
    assert settings.TOMBSTONE_SECONDS == 86_400
    assert kept["hourly counts by tool, without owner"] == f"{KEPT_DAYS} days"


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) >= 5
    for picture in pictures:
        assert (PAGE.parent / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
