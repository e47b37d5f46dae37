"""What holds for the repository as a whole: who may be imported without what, how long modules are, who writes."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mcp_tasks

PACKAGE = Path(mcp_tasks.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)
NAMES = [path.relative_to(PACKAGE.parent).as_posix() for path in MODULES]


NO_SETTINGS = "import json, os, sys; os.environ.pop('DJANGO_SETTINGS_MODULE', None)"


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after this code, without any settings."""
    script = f"{NO_SETTINGS}\n{code}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


# -- imports --------------------------------------------------------------------------------------------------------


def test_the_package_loads_nothing_before_a_name_is_used() -> None:
    loaded = loaded_by("import mcp_tasks\nassert mcp_tasks.__version__")
    assert not {name for name in loaded if name.startswith("mcp_tasks.")}
    assert "django" not in loaded


def test_the_public_names_need_no_settings_and_load_no_models() -> None:
    loaded = loaded_by(
        "import mcp_tasks\n"
        "for name in mcp_tasks.__all__:\n"
        "    assert getattr(mcp_tasks, name) is not None, name\n"
        "from mcp_tasks import *\n"
        "from django.conf import settings\n"
        "assert not settings.configured"
    )
    assert "mcp_tasks.models" not in loaded
    assert not {name for name in loaded if name.startswith(("mcp_tasks.store", "mcp_tasks.rpc", "rest_framework"))}
    assert not {name for name in loaded if name.endswith(".models") and name != "django.db.models"}


def test_a_tool_may_be_written_before_django_is_set_up() -> None:
    code = "from mcp_tasks import TaskContext, tool\n@tool\ndef add(a: int, ctx: TaskContext) -> int:\n    return a\n"
    assert "mcp_tasks.models" not in loaded_by(code)


def test_the_wire_and_the_table_of_states_need_no_django() -> None:
    wire = [f"mcp_tasks.protocol.{path.stem}" for path in (PACKAGE / "protocol").glob("[a-z]*.py")]
    loaded = loaded_by(f"import {', '.join(['mcp_tasks.lifecycle', *wire])}")
    assert {"mcp_tasks.lifecycle", *wire} <= loaded
    assert not loaded & {"django", "rest_framework", "channels", "asgiref"}


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(mcp_tasks, "no_such_name")  # noqa: B009 - the way that type checkers do not mind
    assert set(mcp_tasks._HOMES) == set(mcp_tasks.__all__) - {"__version__"}


def test_the_pytest_plugin_loads_nothing_of_django() -> None:
    assert "django" not in loaded_by("import mcp_tasks.testing.plugin")


def test_every_module_can_be_imported() -> None:
    for name in NAMES:
        importlib.import_module(name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))


# -- size and style -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_module_has_more_than_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", [path for path in MODULES if path.stat().st_size], ids=lambda path: path.stem)
def test_every_module_says_what_it_is_about(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# -- who writes -----------------------------------------------------------------------------------------------------

#: Time travel moves the instants of a row, and only those; compat is the store's own tool.
EXEMPT = {"mcp_tasks/testing/timetravel.py", "mcp_tasks/compat.py"}
READERS = [
    (name, path)
    for name, path in zip(NAMES, MODULES, strict=True)
    if not name.startswith("mcp_tasks/store/") and name not in EXEMPT
]
WRITES = {
    "save",
    "asave",
    "bulk_create",
    "abulk_create",
    "bulk_update",
    "abulk_update",
    "get_or_create",
    "update_or_create",
}


def writes_of(tree: ast.AST) -> Iterator[str]:
    """What looks like a write to a row: ``save``, an ``update`` with keywords as querysets have it, ``status = …``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in WRITES or (name in ("update", "aupdate") and node.keywords):
                yield f"line {node.lineno}: .{name}("
        if isinstance(node, ast.Attribute) and node.attr == "status" and isinstance(node.ctx, ast.Store):
            yield f"line {node.lineno}: .status ="


@pytest.mark.parametrize(("name", "path"), READERS, ids=[name for name, _ in READERS])
def test_nothing_but_the_store_writes_tasks(name: str, path: Path) -> None:
    assert list(writes_of(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "task.save()",
        "Task.objects.filter(pk=1).update(status='working')",
        "Task.objects.update(**values)",
        "await task.asave()",
        "task.status = 'completed'",
        "self.task.status: str = 'completed'",
        "a, task.status = 1, 2",
        "Task.objects.bulk_update(tasks, ['status'])",
    ],
)
def test_a_write_would_be_seen(code: str) -> None:
    assert len(list(writes_of(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code", ["names.update(other)", "task.status == 'x'", "status = task.status", "seen.update({1})"]
)
def test_what_is_no_write_is_not_seen(code: str) -> None:
    assert list(writes_of(ast.parse(code))) == []


def test_only_one_module_knows_a_database_driver() -> None:
    vendors = re.compile(r"\b(sqlite3|psycopg2?|MySQLdb)\b")
    importing = [
        name
        for name, path in zip(NAMES, MODULES, strict=True)
        if any(vendors.search(line) for line in path.read_text(encoding="utf-8").splitlines() if "import" in line)
    ]
    assert importing == ["mcp_tasks/compat.py"]


# -- public names ---------------------------------------------------------------------------------------------------

TWINS = ["astatus", "acancelled", "aprogress", "acomplete", "afail", "arequire_input", "aset_ttl"]
PUBLIC: dict[str, list[str]] = {
    "mcp_tasks": ["tool", "TaskContext", "ToolError", "McpError", "InputRequired", "DeferredTask", "CancellationToken"],
    "mcp_tasks.tasks": [
        "status",
        "cancelled",
        "progress",
        "complete",
        "fail",
        "require_input",
        "set_ttl",
        "wait",
        *TWINS,
    ],
    "mcp_tasks.store": [
        "get_store",
        "TaskStore",
        "DatabaseTaskStore",
        "MemoryTaskStore",
        "ForwardingTaskStore",
        "CreatedTask",
        "TaskView",
        "TaskSnapshot",
        "Present",
        "Expired",
        "Missing",
        "AppliedResponses",
        "ResumeContext",
        "Outcome",
        "TaskStoreError",
        "InvalidTransition",
        "RetentionLimitExceeded",
        "TaskLimitReached",
        "IdempotencyConflict",
        "Unsupported",
    ],
    "mcp_tasks.asgi": ["mount"],
    "mcp_tasks.rpc": ["method", "capability"],
    "mcp_tasks.runners.base": ["Runner"],
    "mcp_tasks.runners.embedded": ["EmbeddedRunner"],
    "mcp_tasks.access.authentication": ["BearerTokenAuthentication"],
    "mcp_tasks.access.owners": ["Owner", "default_owner"],
    "mcp_tasks.models": ["Task"],
    "mcp_tasks.testing": ["TaskStoreContract", "McpClient", "run_until_idle", "rewind"],
}
PAIRS = [(module, name) for module, names in PUBLIC.items() for name in names]


@pytest.mark.parametrize(("module", "name"), PAIRS, ids=[f"{module}.{name}" for module, name in PAIRS])
def test_every_public_name_exists_and_is_documented(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(value)
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert own, "inherited documentation does not count"
    assert not own.startswith(f"{name}("), "what dataclasses make up does not count"


def members_of(module: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes that a module defines or hands on from this package."""
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", None) or [name for name in vars(loaded) if not name.startswith("_")]:
        value = getattr(loaded, name)
        if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith("mcp_tasks"):
            yield name, value


@pytest.mark.parametrize("module", PUBLIC)
def test_everything_public_in_a_public_module_is_documented(module: str) -> None:
    bare = [name for name, value in members_of(module) if not value.__dict__.get("__doc__") and not value.__doc__]
    assert bare == []


@pytest.mark.parametrize(
    ("module", "name"),
    [pair for pair in PAIRS if pair[1] in ("TaskContext", "CancellationToken", "TaskStore", "Runner")],
)
def test_every_public_method_of_what_projects_call_or_write_is_documented(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    bare = [
        member
        for member, each in vars(value).items()
        if not member.startswith("_") and (callable(each) or isinstance(each, property)) and not inspect.getdoc(each)
    ]
    assert bare == []


def test_stores_raise_one_family_of_errors() -> None:
    from mcp_tasks import store

    for name in (
        "InvalidTransition",
        "RetentionLimitExceeded",
        "TaskLimitReached",
        "IdempotencyConflict",
        "Unsupported",
    ):
        assert issubclass(getattr(store, name), store.TaskStoreError)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one process")
@pytest.mark.xdist_group("together")
def test_the_tests_of_a_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """They share servers and databases. By this suffix xdist tells groups apart."""
    assert request.node.nodeid.endswith("@together")
