"""docs/how-to/push-notifications.md: its commands, done where the tutorial has come to a task, and their messages."""

import json
import time
from pathlib import Path

import pytest

from .pages import DOCS, ROOT, Block, blocks
from .projects import Terminal, difference, free_port, write

PAGE = "docs/how-to/push-notifications.md"
PORT = "8000"  # what the tutorial says
#: What a reader does with Ctrl-C.
STOPPED = 'curl() { command curl --max-time 2 "$@" || [ $? = 28 ]; }'


@pytest.mark.xdist_group("push")
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    port = free_port()
    with Terminal(tmp_path) as terminal:
        for block in _as_far_as_a_task():
            _follow(terminal, tmp_path, block, port)
        deadline = time.monotonic() + 15
        while "input_required" not in terminal.run("task tasks/get"):
            assert time.monotonic() < deadline
        printed = ""
        for block in blocks(ROOT / PAGE):
            if block.mark == "prints":
                first, _, printed = printed.partition("\n\n") if block.language == "json" else (printed, "", "")
                assert difference(first.rpartition("data: ")[2], block) is None, f"{block.where}\n{first}"
            elif block.mark == "run" and "curl" in block.text:
                terminal.run(STOPPED)
                printed = terminal.run(block.text)
                terminal.run("unset -f curl")
            else:
                printed = _follow(terminal, tmp_path, block, port)


def _as_far_as_a_task() -> list[Block]:
    page = DOCS / "tutorial.md"
    end = page.read_text().splitlines().index("## 6. The task asks")
    return [block for block in blocks(page) if block.line < end]


def _follow(terminal: Terminal, folder: Path, block: Block, port: int) -> str:
    text = block.text.replace(PORT, str(port))
    match block.mark:
        case "module" | "append":
            write(folder, block)
        case "run":
            return terminal.run(text)
        case "run in the background":
            terminal.serve(text.strip(), port)
    return ""


def test_the_shown_frame_that_ends_a_subscription_is_json() -> None:
    text = (ROOT / PAGE).read_text()
    start = text.index('{"jsonrpc": "2.0", "method": "notifications/cancelled"')
    message, _ = json.JSONDecoder().raw_decode(text[start:])
    assert message["params"] == {"requestId": "watch"}
