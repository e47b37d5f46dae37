"""A caller of the REST addresses, through Django's whole handler."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.test import Client

from mcp_tasks.protocol.codec import dumps, loads
from mcp_tasks.protocol.tasks import timestamp


class Answer:
    """A response, read by the codec of the project."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.headers = {name.lower(): value for name, value in response.items()}
        self.body: bytes = response.content
        assert self.headers["cache-control"] == "no-store"
        assert self.headers["x-content-type-options"] == "nosniff"
        if self.status >= 400:
            assert self.headers["content-type"] == "application/problem+json"
            assert (self.json["status"], self.json["type"]) == (self.status, "about:blank")
            assert set(self.json) >= {"type", "title", "status", "code", "detail", "errors"}

    @property
    def json(self) -> Any:
        return loads(self.body)

    @property
    def code(self) -> str | None:
        found: str | None = self.json["code"] if self.status >= 400 else None
        return found

    @property
    def fields(self) -> list[str]:
        """What the errors are about."""
        return [error["field"] for error in self.json["errors"]]

    @property
    def said(self) -> tuple[int, str | None]:
        return self.status, self.code


class Api:
    """Requests with one credential; ``path`` is what follows ``/api/``."""

    def __init__(self, authorization: str | None = None, *, client: Client | None = None) -> None:
        self.client = client or Client()
        self._headers = {} if authorization is None else {"Authorization": authorization}

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        content_type: str = "application/json",
        **query: Any,
    ) -> Answer:
        text = body if isinstance(body, bytes) else b"" if body is None else dumps(body).encode()
        address = f"/api/{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        return Answer(
            self.client.generic(
                method,
                address,
                text,
                content_type=content_type if text else "",
                headers={**self._headers, **(headers or {})},
            )
        )

    def get(self, path: str, **query: Any) -> Answer:
        return self.send("GET", path, **query)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.send("POST", path, body, **more)

    def do(self, verb: str, ref: UUID, **order: Any) -> Answer:
        """A verb on a task, with a reason unless the order says otherwise."""
        order = {"reason": "for a test", **order}
        if verb == "delete":
            return self.send("DELETE", f"operator/tasks/{ref}/", **order)
        return self.post(f"operator/tasks/{ref}/{verb}/", order)


def at(moment: Any) -> str:
    """A time as requests and answers have it."""
    return timestamp(moment)
