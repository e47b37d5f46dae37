"""How the page looks: light, dark, narrow; readable in each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .console import Console
from .demo import Demo

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 320, "height": 640}

#: The texts on the page that stand out less from what is behind them than WCAG 2.2 (AA) asks for.
TOO_FAINT = """
() => {
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = (rgb) => {
        const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const [r, g, b, alpha = 1] = parse(getComputedStyle(at).backgroundColor);
            if (alpha > 0) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
        const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('');
        if (!text.trim() || !element.checkVisibility()) continue;
        const front = luminance(parse(getComputedStyle(element).color).slice(0, 3));
        const back = luminance(behind(element));
        const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
        if (contrast < 4.5) faint.push(`${text.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
    }
    return faint;
}
"""


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {"viewport": WIDE, "color_scheme": "light"}),
        ("dark", {"viewport": WIDE, "color_scheme": "dark"}),
        ("narrow", {"viewport": NARROW, "color_scheme": "light", "has_touch": True}),
        ("narrow-dark", {"viewport": NARROW, "color_scheme": "dark", "reduced_motion": "reduce"}),
    ],
)
def test_everything_can_be_read(
    open_console: Callable[..., Console], demo: Demo, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    console = open_console(demo, **options)
    console.page.screenshot(path=tmp_path / f"{name}-signed-out.png", full_page=True)
    assert console.overflow == 0
    assert console.page.evaluate(TOO_FAINT) == []
    console.sign_in_as("bob")
    for tool, values, state in (
        ("add", {"a": "2", "b": "40"}, "Completed"),
        ("failing_job", {"message": "no-space-" * 30}, "Completed with an error"),
        ("crashing_job", {}, "Failed"),
        ("needs_approval", {"service": "web"}, "Waiting for your answer"),
        ("two_questions", {}, "Waiting for your answer"),
        ("countdown", {"n": "300"}, "Working"),
    ):
        console.wait_for_state(console.start(tool, **values), state)
    console.card("countdown").locator("progress").wait_for()
    console.card("needs_approval").get_by_role("button", name="Accept").click()
    console.page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
    assert console.overflow == 0
    assert console.page.evaluate(TOO_FAINT) == []
    background = console.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(int(part) for part in background[4:-1].split(",")) < 64) == ("dark" in name)
    for tool in ("needs_approval", "two_questions", "countdown"):
        console.card(tool).get_by_role("button", name="Cancel task").click()
        console.wait_for_state(console.card(tool), "Cancelled")


def test_columns_stand_side_by_side_only_where_there_is_room(open_console: Callable[..., Console], demo: Demo) -> None:
    for viewport, beside in ((WIDE, True), (NARROW, False)):
        console = open_console(demo, viewport=viewport)
        console.sign_in_as("alice")
        start, watch = (console.page.locator(part).bounding_box() for part in (".start", ".watch"))
        assert (watch["x"] >= start["x"] + start["width"]) == beside
