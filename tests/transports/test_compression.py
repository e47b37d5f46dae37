"""Middleware that compresses leaves streams alone: each event would become a compressed stream of its own."""

from typing import Any

import pytest

from mcp_tasks.notifications import list_changed

from .listens import Listening, listen_draft, listening, streaming

__all__ = ["listening", "streaming"]


@pytest.mark.django_db(transaction=True)
def test_a_stream_is_readable_for_a_client_that_reads_gzip(listening: Listening, settings: Any, token: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware"]
    request = listen_draft({"toolsListChanged": True}, token=token("alice"))
    request.headers["Accept-Encoding"] = "gzip"
    stream = listening.send(request)
    assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
    list_changed("tools")
    assert stream.next()["method"] == "notifications/tools/list_changed"
