"""
A real browser before the real demo site.

Playwright drives Debian's Chromium, best the one without windows of its own (``chromium-headless-shell``): the pages
are the same at a third of the work. Its synchronous API keeps an event loop in the thread of the test, which Django
takes for asynchronous code, so the browser ends with this package.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .console import Console
from .demo import Demo

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or "/usr/bin/chromium"
ARGUMENTS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Three browsers: more would only wait for each other, and each has sites of its own."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(f"browser {_about(item.path.stem)}"))


def _about(module: str) -> str:
    if module.startswith("test_admin_"):
        return "operators"
    return "cuts" if module in ("test_reconnecting", "test_odd_servers", "test_appearance") else "console"


@pytest.fixture(scope="package")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Chromium, or a skip that says what is missing; a failure where everything is required."""
    if request.config.getoption("loadgroup", False):
        ours = [item.nodeid for item in request.session.items if Path(__file__).parent in item.path.parents]
        assert all("@browser " in name for name in ours), "each worker would start browsers and sites of its own"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the package playwright is not installed")
    if shutil.which(CHROMIUM) is None:
        _missing(f"there is no Chromium at {CHROMIUM} (the environment variable CHROMIUM may name another)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


def _missing(what: str) -> None:
    sentence = f"The page cannot be tested in a browser: {what}."
    if os.environ.get("MCP_TASKS_REQUIRE_ALL"):
        pytest.fail(sentence)
    pytest.skip(sentence)


@pytest.fixture(scope="package")
def demo(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A demo site for all tests that do not stop it: what each started, it sees alone."""
    site = Demo(tmp_path_factory.mktemp("demo"))
    site.start()
    yield site
    site.stop()


@pytest.fixture(scope="package")
def _other_demo(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    site = Demo(tmp_path_factory.mktemp("other"))
    yield site
    site.stop()


@pytest.fixture
def other_demo(_other_demo: Demo) -> Demo:
    """A demo site that runs now; a test may stop it, or lock its users out."""
    _other_demo.start()
    return _other_demo


@pytest.fixture
def open_console(browser: Any) -> Iterator[Callable[..., Console]]:
    """
    Opens the page of a site in a fresh profile, or only the profile; options are those of a Playwright context.

    At the end of the test each page must have been quiet: no error in its console, none in its scripts, no report of
    its Content-Security-Policy, no request to another host.
    """
    consoles = []

    def visit(site: Demo, *, visits: bool = True, **options: Any) -> Console:
        console = Console(browser.new_context(**options), site)
        consoles.append(console)
        if visits:
            console.visit()
        return console

    yield visit
    for console in consoles:
        console.close()
    for console in consoles:
        assert console.complaints == []


@pytest.fixture
def console(open_console: Callable[..., Console], demo: Demo) -> Console:
    """The page, nobody signed in."""
    return open_console(demo)


@pytest.fixture
def alice(console: Console) -> Console:
    """The page, with alice signed in."""
    console.sign_in_as("alice")
    return console
