"""The demo site's page, as its ASGI application serves it."""

import subprocess
import sys
from pathlib import Path

from .pages import ROOT
from .projects import environment

SCRIPT = '''
import asyncio, re
from urllib.parse import urljoin
from django.conf import settings
settings.MCP_TASKS = {**settings.MCP_TASKS, "RUNNER": {"BACKEND": "mcp_tasks.testing.IdleRunner"}}
from project.asgi import application

ELSEWHERE = re.compile(r"""(?:https?|wss?):[/][/]|["'(][/][/]""")
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document[.]write|eval[(]|new Function|[.]cssText")

async def get(path):
    sent, messages = [], asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    async def send(message):
        sent.append(message)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost:8765")], "client": ("127.0.0.1", 1), "server": ("localhost", 8765),
    }
    await application(scope, messages.get, send)
    start = sent[0]
    return start["status"], dict(start["headers"]), b"".join(m.get("body", b"") for m in sent[1:]).decode()

async def main():
    status, headers, html = await get("/")
    assert status == 200, status
    policy = next(value for name, value in headers.items() if name.lower() == b"content-security-policy")
    assert policy.startswith(b"default-src 'self'"), policy
    assert html.count("http://localhost:8765/mcp") == 3, html
    assert "<style" not in html and "style=" not in html and not re.search(r"<[^>]* on[a-z]+=", html)
    assert html.count("<script") == len(re.findall(r'<script type="module" src="/static/[^"]*"></script>', html)) == 1
    for attribute in re.findall(r'(?:href|src)="([^"]*)"', html):
        assert attribute.startswith(("/", "#")), attribute
    from mcp_tasks.tools.registry import registry
    for tool in registry:
        assert f"<code>{tool.name}</code>" in html and f"mode-{tool.task}" in html, tool.name
    found = re.findall(r'(?:href|src)="(/static/[^"]*)"', html)
    for path in found:
        status, headers, text = await get(path)
        assert status == 200 and text, path
        assert not ELSEWHERE.search(text.replace("http://www.w3.org/2000/svg", "")), path
        if path.endswith(".js"):
            assert headers[b"Content-Type"].startswith((b"text/javascript", b"application/javascript")), headers
            assert not MARKUP.search(text), path
            imported = [urljoin(path, name) for name in re.findall(r'^import .* from "([^"]*)";$', text, re.M)]
            found += [name for name in imported if name not in found]
    scripts = {path.rpartition("/")[2] for path in found if path.endswith(".js")}
    assert scripts == {path.name for path in (settings.BASE_DIR / "project/static/project/console").iterdir()}
    status, headers, text = await get("/admin/login/")
    assert status == 200, status

asyncio.run(main())
'''


def test_the_page_names_its_tools_and_address_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    used = {**environment(tmp_path), "MCP_TASKS_DEMO_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    used["DJANGO_SETTINGS_MODULE"] = "project.settings"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=used, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
