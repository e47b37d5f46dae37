"""Every example is valid, none is left untested, and the pages about testing have tests that pass."""

from pathlib import Path

import pytest

from .pages import DOCS, PAGES, ROOT, blocks, name_of
from .projects import run, write

#: Pages that bring tests of their own; they make one project together, in which these are run.
WITH_TESTS = (
    DOCS / "how-to" / "test-your-tools.md",
    DOCS / "how-to" / "react-to-changes.md",
    DOCS / "reference" / "store.md",
)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_example_is_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            compile("\n" * block.line + block.text, block.where, "exec")


def test_every_page_with_files_is_built_by_some_test() -> None:
    sources = "\n".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for page in {*PAGES} - {*WITH_TESTS, DOCS / "tutorial.md"}:
        if any(block.target for block in blocks(page)):
            assert f'\nPAGE = "{page.relative_to(ROOT).as_posix()}"\n' in sources, name_of(page)


def test_every_python_example_of_more_than_a_line_names_its_file() -> None:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                assert block.target or block.text.count("\n") == 1, block.where


@pytest.mark.xdist_group("pages-with-tests")
def test_the_tests_that_the_pages_show_pass(tmp_path: Path) -> None:
    run(tmp_path, "django-admin", "startproject", "mysite", ".")
    settings = tmp_path / "mysite" / "settings.py"
    apps = ["rest_framework", "rest_framework.authtoken", "mcp_tasks", "shop"]
    settings.write_text(f"{settings.read_text()}\n\nINSTALLED_APPS += {apps}\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for page in WITH_TESTS:
        for block in blocks(page):
            if block.target:
                write(tmp_path, block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = mysite.test_settings\npythonpath = .\n")
    # The contract itself is run elsewhere: here it matters that what the page shows finds it.
    chosen = "test_mcp_tools or test_notifiers or discard"
    plugins = [f"-pno:{name}" for name in ("cacheprovider", "randomly", "xdist", "hypothesispytest")]
    printed = run(tmp_path, "python", "-m", "pytest", "-q", *plugins, "-k", chosen, "shop")
    assert " passed" in printed
