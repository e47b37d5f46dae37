"""The reference names exactly what there is: settings, checks, options, methods, with the same defaults."""

import ast
import inspect
import re
from typing import Any

import pytest
from django.dispatch import Signal
from pydantic import BaseModel

import mcp_tasks
from mcp_tasks import conf, signals, tasks
from mcp_tasks.protocol import errors
from mcp_tasks.protocol.subscriptions import MAX_ID_LENGTH
from mcp_tasks.store import TaskStore, TaskStoreError
from mcp_tasks.store import __all__ as store_names
from mcp_tasks.store.verbs import OperatorVerbs
from mcp_tasks.tools.cancellation import CancellationToken
from mcp_tasks.tools.context import TaskContext
from mcp_tasks.tools.definition import build
from mcp_tasks.tools.results import DeferredTask
from mcp_tasks.transports.websocket import consumers, conversation

from .pages import DOCS, ROOT, code, table

REFERENCE = DOCS / "reference"
SETTINGS, CHECKS, CONTEXT, STORE = (
    REFERENCE / f"{name}.md" for name in ("settings", "checks", "task-context", "store")
)

#: Of the token, for those who raise it.
MACHINERY = {"raise_", "is_raised", "observed", "watched", "child", "fence"}

#: How the tables of the store's methods begin.
TABLES_OF_THE_STORE = ("creating", "reading", "many at once", "asking", "moving", "legs", "operators", "janitor")

#: Defaults that the table explains instead of writing down.
IN_WORDS = {"RUNNER", "SERVER", "LIMITS", "OPERATOR", "VERSION"}


@pytest.mark.parametrize(
    ("heading", "model", "default_column"),
    [
        ("# Settings", conf.Settings, 2),
        ("## RUNNER", conf.Runner, 2),
        ("## SERVER", conf.Server, 2),
        ("## LIMITS", conf.Limits, 2),
    ],
)
def test_the_settings_have_the_keys_and_defaults_of_the_reference(
    heading: str, model: type[BaseModel], default_column: int
) -> None:
    rows = {code(row[0]): row for row in table(SETTINGS, heading)}
    assert list(rows) == list(model.model_fields)
    for name, field in model.model_fields.items():
        if name not in IN_WORDS:
            assert ast.literal_eval(code(rows[name][default_column])) == field.get_default(call_default_factory=True), (
                name
            )


def test_the_settings_that_may_be_none_say_so() -> None:
    for row in table(SETTINGS, "# Settings"):
        field = conf.Settings.model_fields[code(row[0])]
        assert ("None`" in row[1]) == (type(None) in getattr(field.annotation, "__args__", ())), row[0]


def test_the_checks_of_the_reference_are_those_of_the_code() -> None:
    source = (ROOT / "mcp_tasks" / "checks.py").read_text() + (ROOT / "mcp_tasks" / "tools" / "registry.py").read_text()
    raised = {f"mcp_tasks.{number}" for number in re.findall(r'"(?:mcp_tasks\.)?([EW]\d{3})"', source)}
    documented = [code(row[0]) for heading in ("# System checks", "With `--deploy`:") for row in table(CHECKS, heading)]
    assert sorted(documented) == sorted(raised)


def test_the_settings_name_only_checks_that_exist() -> None:
    documented = {code(row[0]) for heading in ("# System checks", "With `--deploy`:") for row in table(CHECKS, heading)}
    for row in table(SETTINGS, "# Settings"):
        assert {f"mcp_tasks.{number}" for number in row[-1].split(", ")} <= documented, row[0]


def test_the_options_of_tool_are_those_of_the_reference() -> None:
    rows = {code(row[0]): row for row in table(REFERENCE / "tool-decorator.md", "## Parameters of the decorator")}
    options = [p for p in inspect.signature(build).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert list(rows) == [option.name for option in options]
    for option in options:
        if isinstance(option.default, (bool, str)):
            assert ast.literal_eval(code(rows[option.name][2])) == option.default, option.name


def test_the_reference_of_the_context_names_every_member() -> None:
    text = CONTEXT.read_text()
    for name in _public(TaskContext):
        assert f"`{name}" in text, name
    for name in _public(CancellationToken) - MACHINERY:
        assert re.search(rf"`(await )?{name}\b", text), name


def test_the_reference_of_the_store_names_every_method_with_its_parameters() -> None:
    documented = {
        name: parameters
        for heading in TABLES_OF_THE_STORE
        for name, parameters in _signatures(f"| {heading} | promise |")
    }
    members = {**vars(OperatorVerbs), **vars(TaskStore)}
    methods = {name: value for name, value in members.items() if inspect.isfunction(value) and name[0] != "_"}
    assert set(documented) == set(methods)
    for name, method in methods.items():
        assert documented[name] == list(inspect.signature(method).parameters)[1:], name


def _signatures(head: str) -> list[tuple[str, list[str]]]:
    found = []
    for row in table(STORE, head):
        call = ast.parse(f"def {code(row[0]).replace('=…', '=None')}: ...").body[0]
        assert isinstance(call, ast.FunctionDef)
        arguments = [*call.args.args, *call.args.kwonlyargs]
        found.append((call.name, [argument.arg for argument in arguments]))
    return found


def test_the_reference_of_the_store_names_every_exception_and_class() -> None:
    text = STORE.read_text()
    assert {code(row[0]) for row in table(STORE, "## Exceptions")} == {
        kind.__name__ for kind in TaskStoreError.__subclasses__() if kind.__module__.startswith("mcp_tasks.")
    }
    classes = {name for name in store_names if name.endswith("Store")}
    assert classes <= {code(row[0]).partition("(")[0] for row in table(STORE, "| class | is |")}
    for name in ("CreatedTask", "TaskView", "TaskSnapshot", "Present", "Expired", "Missing", "Outcome"):
        assert f"`{name}`" in text, name


def test_the_worker_functions_are_those_of_the_how_to() -> None:
    page = DOCS / "how-to" / "write-a-replayable-handler.md"
    rows = {code(row[0]).partition("(")[0]: code(row[0]) for row in table(page, "| function | does | returns |")}
    text = page.read_text()
    functions = {name for name in tasks.__all__ if inspect.isfunction(getattr(tasks, name)) and name != "error_result"}
    assert set(rows) == functions
    for name, signature in rows.items():
        documented = re.findall(r"\w+", signature.partition("(")[2])
        assert documented == list(inspect.signature(getattr(tasks, name)).parameters), name
    for name in set(tasks.__all__) - functions - {"TaskStatus", "error_result"}:
        assert f"`{name}`" in text, name


def test_the_attributes_of_a_deferred_task_are_those_of_the_reference() -> None:
    rows = [code(row[0]) for row in table(REFERENCE / "results.md", "## `DeferredTask`")]
    DeferredTask(print, **{name: 1 if name.endswith("_ms") else "" for name in rows[1:4]}, meta={}).check()
    assert rows == ["start", "ttl_ms", "poll_interval_ms", "status_message", "meta"]


def test_the_error_codes_are_those_of_the_reference() -> None:
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    assert {int(row[0]) for row in table(REFERENCE / "http.md", "## Error codes")} == codes


def test_the_signals_are_those_of_the_reference() -> None:
    sent = [name for name, value in vars(signals).items() if isinstance(value, Signal)]
    assert [code(row[0]) for row in table(REFERENCE / "signals.md", "# Signals")] == sent


def test_the_close_codes_and_bounds_of_a_websocket_are_those_of_the_reference() -> None:
    rows = table(REFERENCE / "http.md", "| refused or closed with | when |")
    codes = {int(row[0].removeprefix("close ")) for row in rows if row[0].startswith("close ")}
    assert codes == {
        conversation.UNAUTHORIZED,
        consumers.FORBIDDEN,
        consumers.TOO_MANY,
        consumers.INTERNAL,
        conversation.UNAVAILABLE,
    }
    text = (REFERENCE / "http.md").read_text()
    assert f"in flight | {conversation.IN_FLIGHT} requests" in text
    assert f"up to {conversation.LISTENS:,} at once on one socket".replace(",", " ") in text
    assert f"with {conversation.HEARD_OF:,} tasks in all".replace(",", " ") in text
    assert f"more than {MAX_ID_LENGTH:,} characters".replace(",", " ") in text


def test_every_public_name_of_the_package_is_documented() -> None:
    text = "\n".join(page.read_text() for page in DOCS.rglob("*.md"))
    for name in set(mcp_tasks.__all__) - {"__version__"}:
        assert re.search(rf"`@?{name}\b", text), name


def test_the_changelog_has_a_section_for_this_version() -> None:
    assert f"{mcp_tasks.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_has_the_two_commands_one_line_each() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    begin = "python3 -m venv .venv && .venv/bin/pip install -e "
    assert f"{begin}. && .venv/bin/python manage.py demo" in lines
    assert f'{begin}".[test]" && .venv/bin/pytest' in lines


def _public(kind: Any) -> set[str]:
    fields = set(getattr(kind, "__dataclass_fields__", ()))
    instance = set() if fields else {name for name in vars(kind()) if isinstance(name, str)}
    return {name for name in {*vars(kind), *fields, *instance} if not name.startswith("_")}
