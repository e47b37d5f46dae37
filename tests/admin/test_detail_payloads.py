"""What of payloads is shown and downloaded: masked, escaped, exact; and what is noted about it."""

import json
import logging
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.test import AsyncClient, Client

from mcp_tasks.models import Task
from mcp_tasks.operators.policy import Policy
from mcp_tasks.signals import operator_acted
from mcp_tasks.store import get_store

from .rows import add
from .test_detail import create, page, run

pytestmark = pytest.mark.django_db

ROOT = "/admin/mcp_tasks/task/"
SECRETS = {
    "a plain key": {"password": "hunter2-secret"},
    "an escaped key": '{"pass\\u0077ord": "hunter2-secret"}',
    "a nested container": {"deep": [{"credentials": {"a": ["hunter2-secret"]}}]},
    "a header pair": {"headers": [{"name": "Authorization", "value": "hunter2-secret"}]},
    "a bearer value": {"note": "Bearer hunter2-secret0123456789"},
    "an address": {"url": "https://user:hunter2-secret@example.com/"},
    "json in a string": {"body": '{"api_key": "hunter2-secret"}'},
}


def stored(text: str, column: str = "arguments_json", state: str = "running") -> UUID:
    """A task with this text as it stands."""
    return add(state, **{column: text})


def download(client: Client, ref: UUID, what: str = "arguments", query: str = "") -> Any:
    """The whole of a file."""
    answer = client.get(f"{ROOT}{ref}/download/{what}/{query}")
    assert answer.status_code == 200
    return answer


# -- masking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "state", "what"),
    [
        ("arguments_json", "running", "arguments"),
        ("result_json", "completed", "result"),
        ("error_json", "failed", "error"),
    ],
)
@pytest.mark.parametrize("payload", SECRETS.values(), ids=SECRETS)
def test_secrets_are_neither_on_the_page_nor_in_the_download(
    superuser: Client, payload: Any, column: str, state: str, what: str
) -> None:
    ref = stored(payload if isinstance(payload, str) else json.dumps(payload), column, state)
    body, file = page(superuser, ref), download(superuser, ref, what).getvalue().decode()
    assert "hunter2" not in body
    assert "hunter2" not in file
    assert "••• masked •••" in body
    assert "1 value masked" in body
    assert "masked" in file
    json.loads(file)


def test_a_question_and_its_answer_are_masked_too(superuser: Client) -> None:
    ref = create()
    schema = {"type": "object", "properties": {"door": {"type": "string", "format": "password"}}}
    question = {
        "method": "elicitation/create",
        "params": {"message": "The code?", "requestedSchema": schema, "secret": "hunter2-asked"},
    }
    get_store().require_input(ref, {"k": question}, leg=run(ref))
    get_store().apply_input_responses(ref, {"k": {"action": "accept", "content": {"door": "hunter2-told"}}})
    for text in (page(superuser, ref), download(superuser, ref, "inputs").getvalue().decode()):
        assert "hunter2" not in text
        assert "The code?" in text
    file = json.loads(download(superuser, ref, "inputs").getvalue())
    assert file["k"]["state"] == "answered"
    assert file["k"]["answer"]["content"] == {"door": "••• masked •••"}


def test_what_only_looks_like_a_secret_stays_readable(superuser: Client) -> None:
    body = page(superuser, stored('{"spin": 3, "max_tokens": 42, "token_count": 7}'))
    assert "&quot;max_tokens&quot;: 42" in body
    assert "masked" not in body.split("Timeline")[0].split("Arguments")[1].replace("unmasked", "")


def test_words_of_the_settings_are_masked(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"SENSITIVE_KEYS": ["card_number"]})
    ref = stored('{"cardNumber": "4111"}')
    assert "4111" not in page(superuser, ref)
    assert b"4111" not in download(superuser, ref).getvalue()


class Hiding(Policy):
    """Hides one path, shows one key; ``seen`` is what it was asked."""

    seen: list[tuple[str, str]] = []

    def mask(self, request: Any, task: Task, path: str, key: str) -> bool | None:
        self.seen.append((path, key))
        return {"$.rows[1].name": True, "$.token": False}.get(path)


def test_the_policy_of_the_project_hides_and_shows_single_values(
    superuser: Client, configure: Callable[..., None]
) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.Hiding"})
    ref = stored('{"rows": [{"name": "open"}, {"name": "buried"}], "token": "shown"}')
    for text in (page(superuser, ref), download(superuser, ref).getvalue().decode()):
        assert "open" in text
        assert "buried" not in text
        assert "shown" in text
    assert ("$.rows[1].name", "name") in Hiding.seen


class Asking(Policy):
    """Looks into the database for each key."""

    def mask(self, request: Any, task: Task, path: str, key: str) -> bool | None:
        return Task.objects.filter(tool=key).exists()


# -- text of strangers ------------------------------------------------------------------------------------------------


def test_hostile_text_is_shown_and_does_nothing(superuser: Client) -> None:
    text = json.dumps({"a": "<script>alert(1)</script></pre>{{ 7|add:7 }}{% now 'Y' %}\u202egnp.exe\u200b\0"})
    ref = add("running", arguments_json=text, tool="<i>tool</i>", owner_label="<u>\u202eowner", lease_holder="<s>w:1")
    for path in ("", "support/", "cancel/"):
        body = superuser.get(f"{ROOT}{ref}/{path}").content.decode()
        for tag in ("<script>alert", "<i>tool", "<u>", "<s>w"):
            assert tag not in body
        assert "\u202e" not in body
        assert "\u200b" not in body
        assert "\0" not in body
    shown = unescape(re.findall(r"<pre[^>]*>(.*?)</pre>", page(superuser, ref), re.DOTALL)[0])
    assert "<script>alert(1)</script></pre>{{ 7|add:7 }}{% now 'Y' %}\\u202egnp.exe\\u200b\\u0000" in shown


def test_numbers_and_repeated_keys_are_shown_as_they_were_sent(superuser: Client) -> None:
    text = '{"b":1e400,"a":-0.0,"b":0.1000000000000000000000001}'
    ref = stored(text)
    body = unescape(page(superuser, ref))
    for part in ('"b": 1e400', '"a": -0.0', '"b": 0.1000000000000000000000001'):
        assert part in body
    assert download(superuser, ref).getvalue() == text.encode()


def test_what_is_no_json_is_not_shown_at_all(superuser: Client) -> None:
    ref = stored('{"a": "hunter2-secret"')
    body = page(superuser, ref)
    assert "hunter2" not in body
    assert "This is no valid JSON, so nothing of it is shown." in body
    assert download(superuser, ref).getvalue() == b"null"


def test_a_large_payload_is_cut_on_the_page_and_whole_in_the_download(superuser: Client) -> None:
    text = json.dumps({"rows": ["x" * 100] * 20_000})
    ref = stored(text)
    body = page(superuser, ref)
    assert len(body) < 200_000
    assert "only the beginning is shown" in body
    answer = download(superuser, ref)
    assert len(list(answer)) > 10
    assert download(superuser, ref).getvalue() == text.encode()


# -- downloads --------------------------------------------------------------------------------------------------------


def test_a_download_is_a_file_and_nothing_a_browser_would_run(superuser: Client) -> None:
    ref = add("running", tool='re"port\r\nX: <y>/../é', arguments_json='{"a":"<script>"}')
    answer = download(superuser, ref)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Disposition"].startswith("attachment; filename")
    assert "\n" not in answer.headers["Content-Disposition"]
    assert answer.streaming


def test_what_is_not_there_is_not_found(superuser: Client) -> None:
    ref = add("running")
    for what in ("result", "error", "inputs", "context", "traceback", "asks", "arguments_json"):
        assert superuser.get(f"{ROOT}{ref}/download/{what}/").status_code == 404


def test_each_download_is_noted_and_an_unmasked_one_as_such(
    superuser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    ref = stored('{"password":"hunter2-secret"}')
    with caplog.at_level(logging.INFO, logger="mcp_tasks.operator"):
        assert download(superuser, ref, query="?unmasked=1").getvalue() == b'{"password":"hunter2-secret"}'
        assert b"hunter2" not in download(superuser, ref, query="?unmasked=0").getvalue()
    noted = [(record.event, record.ref, record.what) for record in caplog.records]  # type: ignore[attr-defined]
    assert noted == [
        ("operator_download_unmasked", str(ref), "arguments"),
        ("operator_download", str(ref), "arguments"),
    ]
    assert "hunter2" not in "".join(repr(vars(record)) for record in caplog.records)


def test_the_project_hears_who_read_secrets(superuser: Client, django_user_model: Any) -> None:
    heard: list[tuple[str, Any]] = []

    def listen(**told: Any) -> None:
        heard.append((told["action"], told["user"]))

    ref = stored('{"password":"hunter2-secret"}')
    operator_acted.connect(listen)
    try:
        download(superuser, ref, query="?unmasked=1")
    finally:
        operator_acted.disconnect(listen)
    assert heard == [("download_unmasked", django_user_model.objects.get())]


def test_an_unmasked_download_of_questions_is_what_was_stored(superuser: Client) -> None:
    ref = create()
    question = {"method": "elicitation/create", "params": {"message": "PIN?", "token": "hunter2-asked"}}
    get_store().require_input(ref, {'k"e': question}, leg=run(ref))
    file = json.loads(download(superuser, ref, "inputs", "?unmasked=1").getvalue())
    assert file == {'k"e': {"state": "outstanding", "question": question}}


def test_links_to_unmasked_files_are_there_only_for_who_may_follow_them(operator: Callable[..., Client]) -> None:
    ref = add("running")
    assert "unmasked" not in page(operator("view_task", "view_task_payload", name="one"), ref)
    assert "unmasked" in page(operator("view_task", "view_task_payload", "view_task_secrets", name="two"), ref)


def downloaded_by_an_event_loop(client: Client, ref: UUID, what: str = "arguments") -> bytes:
    """The whole of a file, from an asynchronous server."""

    async def read() -> bytes:
        asking = AsyncClient()
        asking.cookies[django_settings.SESSION_COOKIE_NAME] = client.cookies["sessionid"].value
        answer = await asking.get(f"{ROOT}{ref}/download/{what}/")
        assert answer.status_code == 200
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(read)()


def test_an_asynchronous_server_streams_it_too(superuser: Client) -> None:
    ref = stored(json.dumps({"rows": ["x" * 100] * 5_000}))
    assert len(downloaded_by_an_event_loop(superuser, ref)) > 500_000


def test_a_policy_may_query_whatever_server_it_is(superuser: Client, configure: Callable[..., None]) -> None:
    configure(OPERATOR={"POLICY": f"{__name__}.Asking"})
    ref = create()
    question = {"method": "elicitation/create", "params": {"message": "PIN?"}}
    get_store().require_input(ref, {"k": question}, leg=run(ref))
    for what in ("arguments", "inputs"):
        assert b"masked" not in downloaded_by_an_event_loop(superuser, ref, what)
    Task.objects.update(tool="message")
    assert b"PIN" not in downloaded_by_an_event_loop(superuser, ref, "inputs")
