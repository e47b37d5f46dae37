"""Settings of the test suite: SQLite in a file by default, another database by DATABASE_URL."""

import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

SECRET_KEY = "tests-only-" + "x" * 40
DEBUG = False
USE_TZ = True
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
ROOT_URLCONF = "tests.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "rest_framework",
    "rest_framework.authtoken",
    "mcp_tasks",
    "tests.app",
]
MIDDLEWARE: list[str] = []
# Only the tests of the admin serve it, with middleware and templates of their own.
SILENCED_SYSTEM_CHECKS = ["admin.E403", "admin.E408", "admin.E409", "admin.E410"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def database(url: str) -> dict[str, object]:
    """A Django database from a URL: ``postgresql://user:password@host:port/name`` or ``mysql://…``."""
    parts = urlsplit(url)
    engines = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
    return {
        "ENGINE": f"django.db.backends.{engines[parts.scheme]}",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


def sqlite(name: str) -> dict[str, Any]:
    """SQLite as the documentation recommends it."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;",
        },
    }


if os.environ.get("DATABASE_URL"):
    DATABASES = {"default": database(os.environ["DATABASE_URL"])}
else:
    # A file: threads share it, which an in-memory database does badly.
    _folder = Path(tempfile.gettempdir()) / f"mcp-tasks-tests-{os.getuid()}-{os.getpid()}"
    _folder.mkdir(exist_ok=True)
    DATABASES = {"default": sqlite(str(_folder / "db.sqlite3"))}
    # No test pulls the plug, so none needs to wait for the disk.
    DATABASES["default"]["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"
    DATABASES["default"]["TEST"] = {"NAME": str(_folder / "test.sqlite3")}

MCP_TASKS = {
    "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"},
    "SWEEP_SECONDS": 0,
}
