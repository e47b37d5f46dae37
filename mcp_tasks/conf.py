"""
The setting ``MCP_TASKS``: one dict, read as a frozen model, cached until a test changes it.

A wrong value is a system check error (E001) and stops what serves; ``manage.py`` itself still starts, so
that ``check`` can say what is wrong.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from . import __version__

Milliseconds = StrictInt
Path = StrictStr


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(_Frozen):
    """What ``server/discover`` says of this server."""

    NAME: StrictStr = "django-mcp-tasks"
    VERSION: StrictStr = __version__
    TITLE: StrictStr | None = None
    INSTRUCTIONS: StrictStr | None = None


class Runner(_Frozen):
    """Who runs the legs of tasks: a class and its keyword arguments."""

    BACKEND: Path = "mcp_tasks.runners.embedded.EmbeddedRunner"
    OPTIONS: dict[str, Any] = Field(default_factory=dict)


class Limits(_Frozen):
    """Bounds of what one caller may store; ``None`` lifts a bound."""

    REQUEST_BYTES: StrictInt | None = Field(default=4 * 1024 * 1024, ge=1024)
    PAYLOAD_BYTES: StrictInt | None = Field(default=4 * 1024 * 1024, ge=1024)
    LIVE_TASKS_PER_OWNER: StrictInt | None = Field(default=1000, ge=1)
    LIVE_TASKS_ANONYMOUS: StrictInt | None = Field(default=1000, ge=1)
    INPUT_KEYS: StrictInt | None = Field(default=64, ge=1)
    STREAMS_PER_OWNER: StrictInt | None = Field(default=32, ge=1)


class Operator(_Frozen):
    """What operators may do beyond their permissions, and what they never see."""

    POLICY: Path | None = None
    DISMISS_INPUT: StrictBool = False
    SENSITIVE_KEYS: tuple[StrictStr, ...] = ()


class Settings(_Frozen):
    """All keys of ``MCP_TASKS`` with their defaults; the reference documentation explains each."""

    ENABLED: StrictBool = True
    STORE: Path = "mcp_tasks.store.DatabaseTaskStore"
    RUNNER: Runner = Runner()
    SERVER: Server = Server()
    AUTHENTICATION_CLASSES: tuple[Path, ...] = (
        "mcp_tasks.access.authentication.BearerTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    )
    ALLOW_ANONYMOUS: StrictBool = False
    OWNER: Path = "mcp_tasks.access.owners.default_owner"
    ALLOWED_ORIGINS: tuple[StrictStr, ...] = ()
    STRICT_HEADERS: StrictBool = False
    THROTTLE_CLASSES: tuple[Path, ...] = ()
    DEFAULT_TTL_MS: Milliseconds | None = Field(default=3_600_000, gt=0)
    MAX_TTL_MS: Milliseconds | None = Field(default=604_800_000, gt=0)
    POLL_INTERVAL_MS: Milliseconds = Field(default=1_000, gt=0)
    RETENTION_SECONDS: StrictInt = Field(default=86_400, ge=0)
    TOMBSTONE_SECONDS: StrictInt = Field(default=86_400, ge=0)
    LEASE_SECONDS: StrictInt = Field(default=60, gt=0)
    HEARTBEAT_SECONDS: StrictInt = Field(default=15, gt=0)
    SWEEP_SECONDS: StrictInt = Field(default=10, ge=0)
    LIMITS: Limits = Limits()
    CHANNEL_LAYER: StrictStr | None = "default"
    NOTIFIERS: tuple[Path, ...] = ()
    LEGACY_ERA: StrictBool = True
    OPERATOR: Operator = Operator()

    @property
    def effective_ttl_ms(self) -> int | None:
        """The ttl of a task whose tool names none: never beyond ``MAX_TTL_MS``."""
        if self.MAX_TTL_MS is None:
            return self.DEFAULT_TTL_MS
        return min(self.DEFAULT_TTL_MS or self.MAX_TTL_MS, self.MAX_TTL_MS)


def lease_problem() -> str | None:
    """Why the heartbeat cannot keep a lease, as a sentence; None when it can."""
    settings = get_settings()
    if settings.HEARTBEAT_SECONDS * 3 <= settings.LEASE_SECONDS:
        return None
    return "A busy worker would lose its lease: LEASE_SECONDS must be at least three times HEARTBEAT_SECONDS."


def problems() -> list[str]:
    """What is wrong with ``MCP_TASKS``, one sentence per key; empty when it is right."""
    raw = getattr(django_settings, "MCP_TASKS", {})
    if not isinstance(raw, dict):
        return ["MCP_TASKS must be a dict."]
    try:
        Settings.model_validate(raw)
    except ValidationError as invalid:
        return [_sentence(error) for error in invalid.errors(include_url=False, include_context=False)]
    return []


def _sentence(error: Any) -> str:
    key = "".join(f"[{part!r}]" for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"MCP_TASKS{key} is not a setting of this version."
    return f"MCP_TASKS{key}: {error['msg']}."


@lru_cache(maxsize=1)
def _load() -> Settings:
    wrong = problems()
    if wrong:
        raise ImproperlyConfigured(" ".join(wrong) + " `manage.py check` lists all of it.")
    return Settings.model_validate(getattr(django_settings, "MCP_TASKS", {}))


def get_settings() -> Settings:
    """The settings as a frozen model; raises ImproperlyConfigured naming each wrong key."""
    return _load()


@lru_cache(maxsize=64)
def load(path: str) -> Any:
    """Import what a dotted path names; raises ImproperlyConfigured with the path."""
    try:
        return import_string(path)
    except (ImportError, TypeError, ValueError) as problem:  # the latter two for a path that begins with a dot
        raise ImproperlyConfigured(f"MCP_TASKS names {path}, which cannot be imported: {problem}") from problem


_resets: list[Callable[[], None]] = [_load.cache_clear, load.cache_clear]


def on_reset(reset: Callable[[], None]) -> None:
    """Register what else must be forgotten when a test changes ``MCP_TASKS``."""
    _resets.append(reset)


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("MCP_TASKS", "SECRET_KEY", "DATABASES", "CHANNEL_LAYERS"):
        for reset in _resets:
            reset()


setting_changed.connect(_reset, dispatch_uid="mcp_tasks.conf")

TaskMode = Literal["optional", "required", "never"]
