"""The tutorial, done as it is written: its files, its commands, its answers."""

import time
from pathlib import Path

import pytest

from .pages import DOCS, Block, blocks
from .projects import Terminal, difference, free_port, write

PORT = "8000"  # what the tutorial says


@pytest.mark.xdist_group("tutorial")
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    port = free_port()
    step, printed, compared = "", "", 0
    with Terminal(tmp_path) as terminal:
        for block in blocks(DOCS / "tutorial.md"):
            text = block.text.replace(PORT, str(port))
            match block.mark:
                case "module" | "append":
                    write(tmp_path, block)
                case "run":
                    step, printed = text, terminal.run(text)
                case "run in the background" | "restart the server":
                    terminal.serve(text.strip(), port)
                case "prints":
                    _compare(terminal, step, printed, block)
                    compared += 1
    assert compared == 11


def _compare(terminal: Terminal, step: str, printed: str, expected: Block) -> None:
    """What a step printed is what the page says; a step that only reads may be repeated until it is."""
    deadline = time.monotonic() + (15 if "tasks/get" in step or step.startswith("sed") else 0)
    while (problem := difference(printed, expected)) is not None:
        assert time.monotonic() < deadline, f"{expected.where}: {problem}\nprinted: {printed}"
        time.sleep(0.1)
        printed = terminal.run(step)
