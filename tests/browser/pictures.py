"""
The pictures of the documentation: ``python -m tests.browser.pictures`` takes them anew, into ``docs/images``.

Not a test. It shows a site with tasks in every state to the same browser that the tests use.
"""

import json
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.support.servers import ROOT, manage, serving

from .conftest import ARGUMENTS, CHROMIUM

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1400, 900

SEED = """
import json, random
from datetime import timedelta
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from mcp_tasks.models import TaskStat
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store
from mcp_tasks.store.processes import janitor_name, report
from mcp_tasks.store.types import Owner
from mcp_tasks.testing.timetravel import rewind

chance, store, now = random.Random(7), get_store(), timezone.now()
root = User.objects.create_superuser("admin", password="x")
session = SessionStore()
session.update({SESSION_KEY: str(root.pk), BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
                HASH_SESSION_KEY: root.get_session_auth_hash()})
session.save()
TOOLS = {"render_pdf": 8, "send_campaign": 70, "build_report": 25, "import_rows": 240, "train": 1500}
FORM = {"method": "elicitation/create", "params": {"message": "Send to 5 000 people?", "requestedSchema": {
    "type": "object", "properties": {"approve": {"type": "boolean"}}, "required": ["approve"]}}}
for hour in (now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=back) for back in range(1, 24)):
    TaskStat.objects.create(hour=hour, tool="", outcome="")
    for number, (tool, _seconds) in enumerate(TOOLS.items()):
        many = int((9 + 60 * abs(12 - hour.hour) ** 0.7) * chance.uniform(0.7, 1.3) / (1 + number))
        for outcome, count in (("completed", many), ("failed", many // 12), ("cancelled", many // 25)):
            TaskStat.objects.create(hour=hour, tool=tool, outcome=outcome, count=count, **{f"b{3 + number}": count})

def make(tool, who, ago, **options):
    made = store.create_task(tool, {"campaign": "spring", "list": "customers", "api_key": "sk-12345"},
                             owner=Owner((who,), who), max_attempts=3, **options)
    rewind(made.ref, ago)
    return made.ref

def run(*arguments, **options):
    ref = make(*arguments, **options)
    return ref, store.claim(ref, holder=f"web-{chance.randrange(1, 4)}:{chance.randrange(300, 900)}").leg

for number in range(9):
    make(chance.choice(list(TOOLS)), f"agent-{number % 4}@example.com", 40 + 130 * number)
for number in range(14):
    tool = chance.choice(list(TOOLS))
    ref, leg = run(tool, f"agent-{number % 5}@example.com", 30 + 45 * number)
    store.complete_task(ref, {"content": [], "isError": number % 5 == 0}, leg=leg)
for number in range(3):
    ref, leg = run("import_rows", "nightly@example.com", 300 + 200 * number)
    store.fail_task(ref, McpError(-32603, "The file has no rows"), leg=leg)
ref, leg = run("train", "lab@example.com", 900)
store.cancel(ref, actor=f"operator:{root.pk}", reason="A runaway job")
for number in range(4):
    ref, leg = run("build_report", f"agent-{number}@example.com", 25 + 9 * number)
    store.set_status(ref, f"Reading page {4 * number + 3} of 20", done=4 * number + 3, total=20, leg=leg)
ref, leg = run("send_campaign", "carol@example.com", 70)
store.require_input(ref, {"approval": FORM}, leg=leg)
ref, leg = run("send_campaign", "alice@example.com", 4)
store.require_input(ref, {"approval": FORM}, leg=leg)
store.apply_input_responses(ref, {"approval": {"action": "accept", "content": {"approve": True}}})
leg = store.claim(ref, holder="web-2:870").leg
store.set_status(ref, "Sending, 2 100 of 5 000", done=42, total=100, leg=leg)
store.note_refusal(ref, 2)
rewind(ref, 110)
report(janitor_name(), "janitor")
report("web-1:311", "web", slots=4, busy=4)
report("web-2:412", "web", slots=4, busy=1)
print(json.dumps({"session": session.session_key, "stalled": str(ref)}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-pictures-") as name:
        folder = Path(name)
        environment = {"DJANGO_SETTINGS_MODULE": "tests.admin.site", "MCP_TASKS_DEMO_DIR": name}
        manage(environment, "migrate", "-v", "0")
        made = json.loads(manage(environment, "shell", "-v", "0", "-c", SEED).splitlines()[-1])
        with serving(environment, folder) as server:
            take(f"http://127.0.0.1:{server.port}/", made["session"], made["stalled"])


def take(url: str, session: str, stalled: str) -> None:
    """A picture of each page that the documentation shows."""
    tasks = f"{url}admin/mcp_tasks/task/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        context.add_cookies([{"name": "sessionid", "value": session, "url": url}])
        page = context.new_page()
        for name, address, is_whole in (
            ("tasks", tasks, False),
            ("overview", f"{tasks}overview/", True),
            ("task", f"{tasks}{stalled}/", True),
            ("confirm", f"{tasks}{stalled}/requeue/", False),
            ("bulk", f"{tasks}bulk-cancel/?everything=1&tool=build_report", False),
        ):
            if name in ("confirm", "bulk"):
                page.set_viewport_size({"width": WIDTH, "height": 620})
            page.goto(address)
            page.wait_for_timeout(500)
            page.screenshot(path=IMAGES / f"{name}.png", full_page=is_whole)
        browser.close()


if __name__ == "__main__":
    main()
