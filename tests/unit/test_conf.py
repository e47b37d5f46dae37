"""The setting ``MCP_TASKS``: every wrong key is named, and a right one is read once until a test changes it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from pydantic import ValidationError

from mcp_tasks import conf
from mcp_tasks.runners.base import get_runner
from mcp_tasks.store import MemoryTaskStore, get_store
from mcp_tasks.testing import IdleRunner

INTEGERS = [
    "DEFAULT_TTL_MS",
    "MAX_TTL_MS",
    "POLL_INTERVAL_MS",
    "RETENTION_SECONDS",
    "TOMBSTONE_SECONDS",
    "LEASE_SECONDS",
    "HEARTBEAT_SECONDS",
    "SWEEP_SECONDS",
]
BOOLEANS = ["ENABLED", "ALLOW_ANONYMOUS", "STRICT_HEADERS", "LEGACY_ERA"]
PATHS = ["STORE", "OWNER"]
LIMITS = list(conf.Limits.model_fields)


def problems_of(**values: Any) -> list[str]:
    with override_settings(MCP_TASKS=values):
        found = conf.problems()
        if found:
            with pytest.raises(ImproperlyConfigured) as caught:
                conf.get_settings()
            assert all(problem in str(caught.value) for problem in found)
        return found


def settings_of(**values: Any) -> conf.Settings:
    with override_settings(MCP_TASKS=values):
        return conf.get_settings()


# -- defaults -------------------------------------------------------------------------------------------------------


def test_every_key_may_be_left_out(settings: Any) -> None:
    assert settings_of() == conf.Settings()
    del settings.MCP_TASKS
    assert conf.problems() == []
    assert conf.get_settings() == conf.Settings()


def test_the_defaults_are_right() -> None:
    assert conf.Settings().model_dump() == conf.Settings.model_validate({}).model_dump()
    default = conf.Settings()
    assert (default.ENABLED, default.ALLOW_ANONYMOUS, default.STRICT_HEADERS, default.LEGACY_ERA) == (
        True,
        False,
        False,
        True,
    )
    assert (default.DEFAULT_TTL_MS, default.MAX_TTL_MS, default.POLL_INTERVAL_MS) == (3_600_000, 604_800_000, 1000)
    assert default.HEARTBEAT_SECONDS * 3 <= default.LEASE_SECONDS
    assert conf.load(default.STORE)
    assert conf.load(default.RUNNER.BACKEND)
    assert conf.load(default.OWNER)
    assert [conf.load(path) for path in default.AUTHENTICATION_CLASSES]


def test_a_dict_inside_replaces_only_what_it_names() -> None:
    found = settings_of(LIMITS={"INPUT_KEYS": 5}, SERVER={"NAME": "shop"})
    limits = found.LIMITS
    assert (limits.INPUT_KEYS, limits.PAYLOAD_BYTES) == (5, conf.Limits().PAYLOAD_BYTES)
    assert (found.SERVER.NAME, found.SERVER.VERSION) == ("shop", conf.Server().VERSION)


# -- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, [], "STORE", 5, ("STORE",), [("ENABLED", True)]])
def test_the_setting_is_a_dict(value: Any) -> None:
    with override_settings(MCP_TASKS=value):
        assert conf.problems() == ["MCP_TASKS must be a dict."]
        with pytest.raises(ImproperlyConfigured, match="MCP_TASKS must be a dict"):
            conf.get_settings()


@pytest.mark.parametrize("key", ["TTL", "enabled", "", "ENABLED ", "MAX_TTL_MS_"])
def test_an_unknown_key_is_named(key: str) -> None:
    assert problems_of(**{key: 5}) == [f"MCP_TASKS[{key!r}] is not a setting of this version."]


@pytest.mark.parametrize("section", ["RUNNER", "SERVER", "LIMITS"])
def test_an_unknown_key_inside_is_named(section: str) -> None:
    assert problems_of(**{section: {"NO_SUCH": 5}}) == [
        f"MCP_TASKS[{section!r}]['NO_SUCH'] is not a setting of this version."
    ]


@pytest.mark.parametrize("section", ["RUNNER", "SERVER", "LIMITS"])
@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_a_dict_inside_is_a_dict(section: str, value: Any) -> None:
    [problem] = problems_of(**{section: value})
    assert problem.startswith(f"MCP_TASKS[{section!r}]: ")


def test_a_key_that_is_no_text_is_a_problem_and_no_exception() -> None:
    with override_settings(MCP_TASKS={5: 5}):
        assert len(conf.problems()) == 1


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize("value", [True, False, "5", 5.0, [5], {"a": 5}, -1])
def test_an_integer_is_an_integer(key: str, value: Any) -> None:
    [problem] = problems_of(**{key: value})
    assert problem.startswith(f"MCP_TASKS[{key!r}]: ")


@pytest.mark.parametrize("key", LIMITS)
@pytest.mark.parametrize("value", [True, False, "5000", 5000.0, [5000], 0, -1])
def test_a_limit_is_a_positive_integer(key: str, value: Any) -> None:
    [problem] = problems_of(LIMITS={key: value})
    assert problem.startswith(f"MCP_TASKS['LIMITS'][{key!r}]: ")


@pytest.mark.parametrize("key", BOOLEANS)
@pytest.mark.parametrize("value", [0, 1, "yes", "true", None, []])
def test_a_boolean_is_a_boolean(key: str, value: Any) -> None:
    [problem] = problems_of(**{key: value})
    assert problem.startswith(f"MCP_TASKS[{key!r}]: ")


@pytest.mark.parametrize("key", PATHS)
@pytest.mark.parametrize("value", [None, 5, MemoryTaskStore, ["a.b"], b"a.b"])
def test_a_path_is_a_text(key: str, value: Any) -> None:
    [problem] = problems_of(**{key: value})
    assert problem.startswith(f"MCP_TASKS[{key!r}]: ")


@pytest.mark.parametrize("key", ["AUTHENTICATION_CLASSES", "ALLOWED_ORIGINS"])
@pytest.mark.parametrize("value", ["a.b", None, 5, {"a": 1}])
def test_a_list_is_a_list(key: str, value: Any) -> None:
    [problem] = problems_of(**{key: value})
    assert problem.startswith(f"MCP_TASKS[{key!r}]: ")


@pytest.mark.parametrize("key", ["AUTHENTICATION_CLASSES", "ALLOWED_ORIGINS"])
def test_an_entry_of_a_list_is_named_by_its_place(key: str) -> None:
    [problem] = problems_of(**{key: ["fine", 5]})
    assert problem.startswith(f"MCP_TASKS[{key!r}][1]: ")


@pytest.mark.parametrize(("key", "value"), [("NAME", 5), ("VERSION", 1.0), ("TITLE", b"x"), ("INSTRUCTIONS", ["x"])])
def test_what_the_server_says_of_itself_is_text(key: str, value: Any) -> None:
    [problem] = problems_of(SERVER={key: value})
    assert problem.startswith(f"MCP_TASKS['SERVER'][{key!r}]: ")


def test_the_options_of_a_runner_are_a_dict() -> None:
    [problem] = problems_of(RUNNER={"OPTIONS": 5})
    assert problem.startswith("MCP_TASKS['RUNNER']['OPTIONS']: ")


def test_everything_that_is_wrong_is_named_at_once() -> None:
    found = problems_of(NO_SUCH=1, ENABLED="yes", LIMITS={"INPUT_KEYS": 0, "OTHER": 1})
    assert len(found) == 4
    assert all(problem.endswith(".") for problem in found)


@pytest.mark.parametrize("value", ["hunter2", ["hunter2"]])
def test_a_problem_does_not_quote_the_value(value: Any) -> None:
    for key in (*INTEGERS, *BOOLEANS):
        assert "hunter2" not in " ".join(problems_of(**{key: value}))


# -- what is right --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["DEFAULT_TTL_MS", "MAX_TTL_MS"])
def test_a_ttl_may_be_none(key: str) -> None:
    assert getattr(settings_of(**{key: None}), key) is None


@pytest.mark.parametrize("key", [key for key in INTEGERS if not key.endswith("TTL_MS")])
def test_nothing_else_may_be_none(key: str) -> None:
    assert len(problems_of(**{key: None})) == 1


@pytest.mark.parametrize("key", LIMITS)
def test_a_limit_may_be_lifted(key: str) -> None:
    assert getattr(settings_of(LIMITS={key: None}).LIMITS, key) is None


@pytest.mark.parametrize(
    ("key", "value", "fine"),
    [
        ("DEFAULT_TTL_MS", 0, False),
        ("MAX_TTL_MS", 0, False),
        ("POLL_INTERVAL_MS", 0, False),
        ("LEASE_SECONDS", 0, False),
        ("HEARTBEAT_SECONDS", 0, False),
        ("RETENTION_SECONDS", 0, True),
        ("TOMBSTONE_SECONDS", 0, True),
        ("SWEEP_SECONDS", 0, True),
        ("POLL_INTERVAL_MS", 1, True),
        ("MAX_TTL_MS", 10**15, True),
    ],
)
def test_zero_means_something_or_is_refused(key: str, value: int, fine: bool) -> None:
    assert (problems_of(**{key: value}) == []) is fine


@pytest.mark.parametrize("value", [["a", "b"], ("a", "b")])
def test_a_list_may_be_a_tuple(value: Any) -> None:
    assert settings_of(ALLOWED_ORIGINS=value).ALLOWED_ORIGINS == ("a", "b")


def test_settings_are_frozen() -> None:
    found = settings_of()
    with pytest.raises(ValidationError):
        found.ENABLED = False
    with pytest.raises(ValidationError):
        found.LIMITS.INPUT_KEYS = 1


@pytest.mark.parametrize(
    ("default", "limit", "effective"),
    [
        (1000, 2000, 1000),
        (2000, 2000, 2000),
        (3000, 2000, 2000),
        (None, 2000, 2000),
        (1000, None, 1000),
        (None, None, None),
    ],
)
def test_the_ttl_of_a_tool_that_names_none_is_never_beyond_the_limit(
    default: int | None, limit: int | None, effective: int | None
) -> None:
    assert settings_of(DEFAULT_TTL_MS=default, MAX_TTL_MS=limit).effective_ttl_ms == effective


# -- reading and forgetting -----------------------------------------------------------------------------------------


def test_settings_are_read_once() -> None:
    with override_settings(MCP_TASKS={"POLL_INTERVAL_MS": 5}):
        assert conf.get_settings() is conf.get_settings()


def test_a_test_that_changes_the_setting_sees_the_change_and_leaves_none() -> None:
    before = conf.get_settings()
    with override_settings(MCP_TASKS={"POLL_INTERVAL_MS": 5}):
        assert conf.get_settings().POLL_INTERVAL_MS == 5
        with override_settings(MCP_TASKS={"POLL_INTERVAL_MS": 6}):
            assert conf.get_settings().POLL_INTERVAL_MS == 6
        assert conf.get_settings().POLL_INTERVAL_MS == 5
    assert conf.get_settings() == before


def test_wrong_settings_are_forgotten_too() -> None:
    before = conf.get_settings()
    with override_settings(MCP_TASKS={"NO_SUCH": 1}), pytest.raises(ImproperlyConfigured):
        conf.get_settings()
    assert conf.get_settings() == before


def test_what_was_made_from_the_settings_is_made_anew() -> None:
    before = get_store(), get_runner()
    with override_settings(
        MCP_TASKS={
            "STORE": "mcp_tasks.store.MemoryTaskStore",
            "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"},
        }
    ):
        assert isinstance(get_store(), MemoryTaskStore)
        assert get_store() is get_store()
        assert isinstance(get_runner(), IdleRunner)
        assert get_runner() is not before[1]
    assert type(get_store()) is type(before[0])


def test_others_may_have_something_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(conf, "_resets", list(conf._resets))
    conf.on_reset(lambda: forgotten.append("mine"))
    with override_settings(MCP_TASKS={}):
        assert forgotten == ["mine"]
    assert forgotten == ["mine", "mine"]
    with override_settings(LANGUAGE_CODE="fr"):
        assert len(forgotten) == 2


# -- paths ----------------------------------------------------------------------------------------------------------


def test_a_path_is_imported() -> None:
    assert conf.load("mcp_tasks.store.MemoryTaskStore") is MemoryTaskStore


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nodots",
        "no.such.module.Name",
        "mcp_tasks.store.NoSuchName",
        ".store.MemoryTaskStore",
        ".MemoryTaskStore",
        "..",
        "mcp_tasks..store.MemoryTaskStore",
        "mcp_tasks.store.",
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        conf.load(path)
    assert f"MCP_TASKS names {path}, which cannot be imported" in str(caught.value)
    assert caught.value.__cause__ is not None


# -- manage.py ------------------------------------------------------------------------------------------------------

BROKEN = """
from tests.settings import *
MCP_TASKS = {"NO_SUCH": 1, "ENABLED": "yes", "LIMITS": {"INPUT_KEYS": True}}
"""


def test_manage_py_starts_with_wrong_settings_and_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "broken_settings.py").write_text(BROKEN)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "broken_settings", "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    done = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for key in ("MCP_TASKS['NO_SUCH']", "MCP_TASKS['ENABLED']", "MCP_TASKS['LIMITS']['INPUT_KEYS']"):
        assert key in done.stderr
    assert done.stderr.count("mcp_tasks.E001") == 3
