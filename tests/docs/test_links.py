"""Links lead somewhere."""

from pathlib import Path

import pytest

from .pages import DOCS, PAGES, ROOT, anchors, links, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{link} leaves the project"
        assert target.is_file(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: {name_of(target)} has no such heading"


def test_every_page_can_be_reached_from_the_readme_and_from_the_index() -> None:
    for start in (ROOT / "README.md", DOCS / "index.md"):
        reached, waiting = set(), [start]
        while waiting:
            page = waiting.pop()
            if page not in reached and page.suffix == ".md":
                reached.add(page)
                waiting += [
                    (page.parent / link.partition("#")[0]).resolve() for link in links(page) if "//" not in link
                ]
        assert reached >= set(DOCS.rglob("*.md")) - {DOCS / "index.md"}, f"from {name_of(start)}"
