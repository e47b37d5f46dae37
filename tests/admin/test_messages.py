"""What a tool says of its work, wherever operators see it: odd numbers, secrets in words, texts of errors."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from mcp_tasks.models import Task
from mcp_tasks.protocol.errors import McpError
from mcp_tasks.store import get_store

from .rows import add
from .test_detail import create, run

pytestmark = pytest.mark.django_db

LIST = "/admin/mcp_tasks/task/"
HIDDEN = "You may not read the text of its error."
LEAK = "upstream said Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl"


def everywhere(client: Client, ref: UUID) -> dict[str, str]:
    """The task in the list, in its live refresh and on its page."""
    since = datetime.now(UTC).isoformat()
    answers: dict[str, Any] = {
        "list": client.get(LIST),
        "live": client.get(f"{LIST}live.json", {"refs": str(ref), "since": since}),
        "page": client.get(f"{LIST}{ref}/"),
    }
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 200)
    return {name: answer.content.decode() for name, answer in answers.items()}


def failed(message: str) -> UUID:
    ref = create()
    assert get_store().fail_task(ref, McpError(-32000, message), leg=run(ref))
    return ref


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [(1.0, 5e-324, "100 %"), (1e308, 1e308, "100 %"), (5e307, 1e308, "50 %"), (-1e308, 5e-324, "0 %")],
)
def test_every_number_that_a_tool_may_report_has_its_percent(
    superuser: Client, done: float, total: float, shown: str
) -> None:
    ref = create()
    assert get_store().set_status(ref, "x", done=done, total=total, leg=run(ref))
    assert all(shown in text for text in everywhere(superuser, ref).values())
    for page in ("support/", "cancel/", "extend/"):
        assert superuser.get(f"{LIST}{ref}/{page}").status_code == 200


def test_the_text_of_an_error_is_a_payload(operator: Callable[..., Client]) -> None:
    ref = failed("no such region")
    for text in everywhere(operator("view_task"), ref).values():
        assert "no such region" not in text
        assert HIDDEN in text
    for text in everywhere(operator("view_task", "view_task_payload", name="reader"), ref).values():
        assert "no such region" in text
        assert HIDDEN not in text


def test_a_message_that_looks_secret_is_masked_for_everybody(
    superuser: Client, operator: Callable[..., Client]
) -> None:
    broken, running = failed(LEAK), create()
    assert get_store().set_status(running, LEAK, leg=run(running))
    for ref, client in ((broken, superuser), (running, superuser), (running, operator("view_task"))):
        for text in everywhere(client, ref).values():
            assert "upstream said" not in text
            assert "eyJ" not in text
            assert "masked" in text


def test_words_of_the_settings_hide_a_message_too(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"SENSITIVE_KEYS": ["card_number"]})
    ref = add("running", status_message='sent {"cardNumber": "4111"}')
    assert not any("4111" in text for text in everywhere(superuser, ref).values())


def test_a_message_is_over_with_its_task_swept_or_not(superuser: Client) -> None:
    ref = add("running", status_message="Reading rows", expires_at=-1)
    assert Task.objects.get(pk=ref).status_message
    assert not any("Reading rows" in text for text in everywhere(superuser, ref).values())
