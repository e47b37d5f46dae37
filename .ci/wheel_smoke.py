"""The wheel alone: settings with the app in INSTALLED_APPS, migrations, checks, one task from call to result."""

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="smoke-" + "x" * 50,
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF="smoke_urls",
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "rest_framework",
        "rest_framework.authtoken",
        "mcp_tasks",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    MCP_TASKS={"ALLOW_ANONYMOUS": True, "SWEEP_SECONDS": 0},
    SILENCED_SYSTEM_CHECKS=["mcp_tasks.W001", "mcp_tasks.W008"],
    USE_TZ=True,
)
django.setup()

import sys  # noqa: E402
import types  # noqa: E402
from importlib.resources import files  # noqa: E402

from django.core.management import call_command  # noqa: E402
from django.urls import include, path  # noqa: E402

from mcp_tasks import TaskContext, tool  # noqa: E402
from mcp_tasks.testing import McpClient, run_until_idle  # noqa: E402


@tool
def greet(name: str, ctx: TaskContext) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


urls = types.ModuleType("smoke_urls")
urls.urlpatterns = [path("mcp", include("mcp_tasks.urls"))]  # type: ignore[attr-defined]
sys.modules["smoke_urls"] = urls

call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING")
from mcp_tasks.runners.embedded import EmbeddedRunner  # noqa: E402

EmbeddedRunner.ensure_started = lambda self: None  # type: ignore[method-assign]  # :memory: belongs to one thread
client = McpClient.django()
created = client.call_tool("greet", {"name": "Ada"})
run_until_idle()
task = client.get_task(created["taskId"])
if task["result"]["content"][0]["text"] != "Hello, Ada!":
    sys.exit(f"the wheel does not work: {task}")
missing = [
    name
    for name in (
        "py.typed",
        "templates/admin/mcp_tasks/task.html",
        "static/mcp_tasks/live.js",
        "static/mcp_tasks/admin.css",
    )
    if not files("mcp_tasks").joinpath(name).is_file()
]
if missing:
    sys.exit(f"the wheel lacks {', '.join(missing)}")
print("the wheel works")
