"""What axe finds in a page: the rules of WCAG 2.2, A and AA, that a program can judge."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe

_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_axe = Axe()


def faults(page: Any) -> list[str]:
    """Every part of the page that breaks a rule, Django's frame included."""
    found = _axe.run(page, options={"runOnly": _TAGS, "resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']}: {', '.join(node['target'])} {node['html'][:150]}" for rule in found for node in rule["nodes"]
    ]
