"""The demo site's application, with two paths for tests beside it: ``/numbers`` and ``/act``."""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from project.asgi import application as site  # loads the apps that the others need

# isort: split
from mcp_tasks.notifications import subscription
from mcp_tasks.notifications.hub import hub
from mcp_tasks.notifications.places import places
from tests.support.push_site.acts import act

_actors = ThreadPoolExecutor(1, thread_name_prefix="push-act")


def numbers(*, collect: bool) -> dict[str, Any]:
    """What this process holds."""
    if collect:
        gc.collect()
    files = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            files.append(str(link.readlink()))
        except OSError:
            pass  # that of the listing itself
    return {
        "watched": hub.count(),
        "subscriptions": sum(map(len, list(subscription._open.values()))),
        "places": places.count(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "fds": len(files),
        "sockets": sum(name.startswith("socket:") for name in files),
        "database_files": sum(name.endswith(".sqlite3") for name in files),
        "rss_kb": int(Path("/proc/self/statm").read_text().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024),
        "gc_objects": len(gc.get_objects()) if collect else 0,
        "asyncio_tasks": len(asyncio.all_tasks()),
        "cpu_seconds": time.process_time(),
        "loop": type(asyncio.get_running_loop()).__module__,
        "python": sys.version.split()[0],
    }


async def application(scope: Any, receive: Any, send: Any) -> None:
    """ASGI."""
    if scope["type"] == "http" and scope["path"] == "/numbers":
        await _answer(send, numbers(collect=scope["query_string"] == b"collect"))
    elif scope["type"] == "http" and scope["path"] == "/act":
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        work = asyncio.get_running_loop().run_in_executor(_actors, act, json.loads(body))
        await _answer(send, await work)
    else:
        await site(scope, receive, send)


async def _answer(send: Any, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})
