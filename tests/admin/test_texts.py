"""Everything that pages say goes through Django's translations, in templates as in Python."""

import ast
import re
from html import unescape
from pathlib import Path

import pytest
from django.template.base import Lexer, TokenType

import mcp_tasks

#: Modules beside those of the admin whose sentences stand on its pages.
SPEAKING = ("acting", "policy", "states", "vitals", "why")
PACKAGE = Path(mcp_tasks.__file__).parent
TEMPLATES = sorted((PACKAGE / "templates/admin/mcp_tasks").glob("*.html"))
MODULES = [*sorted((PACKAGE / "admin").glob("*.py")), *(PACKAGE / f"operators/{name}.py" for name in SPEAKING)]
#: Written alike in every language.
NAMES = {"manage.py run_task_worker"}
#: Attributes that are read out or shown.
READ_OUT = re.compile(r'\b(?:aria-label|title|placeholder|alt|label)="([^"]*)"')
#: What is put in the place of parts that are no text of a page.
GAP = "\x00"
#: How sentences of system checks begin, which are English as Django's are.
OF_CHECKS = "The operator policy "
TRANSLATING = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext"}


def untranslated(source: str) -> list[str]:
    """The texts of a template that are as they are in every language."""
    kept, inside = [], ""
    for token in Lexer(source).tokenize():
        if token.token_type is TokenType.BLOCK:
            name = token.contents.split()[0]
            if name in ("blocktranslate", "comment"):
                inside = name
            elif name == f"end{inside}":
                inside = ""
        elif token.token_type is TokenType.TEXT and not inside:
            kept.append(token.contents)
    text = GAP.join(kept)
    shown = [*re.sub(r"<[^>]*>", GAP, text).split(GAP), *GAP.join(READ_OUT.findall(text)).split(GAP)]
    words = [unescape(part).strip() for part in shown]
    return [part for part in words if re.search(r"[^\W\d_]", part) and part not in NAMES]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_words_of_its_own(template: Path) -> None:
    assert untranslated(template.read_text(encoding="utf-8")) == []


def test_words_of_a_template_are_noticed() -> None:
    assert untranslated('<p title="Old {{ a }}">{% translate "x" %} Words {{ b }}</p>') == ["Words", "Old"]
    assert untranslated("{% blocktranslate %}Words{% endblocktranslate %}<b>&nbsp;</b>{# no #}") == []


def sentences(source: str) -> list[str]:
    """The sentences in a module that nobody translates; its docstrings are none of them."""
    tree = ast.parse(source)
    known = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in TRANSLATING:
            known |= {id(node) for node in ast.walk(call)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in known
        if re.match(r"[A-Z][a-z]+ [a-z]", node.value) and not node.value.startswith(OF_CHECKS)
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_page_says_a_sentence_that_is_not_translated(module: Path) -> None:
    assert sentences(module.read_text(encoding="utf-8")) == []


def test_a_sentence_of_a_module_is_noticed() -> None:
    assert sentences('"""A doc string."""\nsay("Old words"); say(_("New words"))') == ["Old words"]
