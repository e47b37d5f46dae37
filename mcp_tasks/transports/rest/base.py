"""
What all REST views stand on: JSON only, one form of error, nothing cached, nothing ignored, no transaction around.

Each view says in ``operations`` what its methods take and answer. The same table refuses unknown query parameters,
names the rate that counts a request, and is what ``mcp_tasks.contrib.spectacular`` makes OpenAPI of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from ...connections import outside_transactions
from ...protocol.codec import Json, JsonError, loads
from ..http.checks import COMMON_HEADERS, body_limit
from .problems import INVALID_FILTER, Problem, handler

JSON = "application/json"
TASKS, OPERATOR = "tasks", "operator"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header. ``kind`` is the Python type of its value; ``many``: it may be given repeatedly."""

    name: str
    about: str
    kind: type = str
    many: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method on one path. ``answer``: a serializer class, ``dict`` for a JSON text as stored, None for no body."""

    id: str
    tag: str
    scope: str
    summary: str
    answer: Any
    status: int = 200
    body: type[BaseSerializer[Any]] | None = None
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()


class ExactParser(BaseParser):
    """JSON by the codec of the project: no NaN, bounded in depth and size."""

    media_type = JSON

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Json:
        limit = body_limit()
        text = stream.read() if limit is None else stream.read(limit + 1)
        if limit is not None and len(text) > limit:
            raise Problem("too_large", f"The body is larger than {limit} bytes.")
        try:
            return loads(text)
        except JsonError as problem:
            raise ParseError(f"The body is not JSON: {problem}") from None


class OnlyJson(DefaultContentNegotiation):
    """By ``Accept`` alone: no query parameter chooses a format."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        return super().select_renderer(request, renderers, "json")


class RestView(APIView):
    """One path."""

    operations: ClassVar[dict[str, Operation]] = {}

    renderer_classes = [JSONRenderer]
    parser_classes = [ExactParser]
    content_negotiation_class = OnlyJson
    permission_classes = []
    metadata_class = None
    versioning_class = None

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:  # type: ignore[override]
        """Outside of every ``ATOMIC_REQUESTS``: what was acknowledged must not be rolled back behind it."""
        return outside_transactions(super().as_view(**initkwargs))

    def get_exception_handler(self) -> Any:
        return handler

    def operation_of(self, method: str | None) -> Operation | None:
        return self.operations.get("GET" if method == "HEAD" else str(method))

    @property
    def throttle_scope(self) -> str | None:
        """What DRF's scoped throttles look for."""
        found = self.operation_of(self.request.method)
        return None if found is None else found.scope

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        operation = self.operation_of(request.method)
        if operation is not None:
            refuse_unknown(request, operation)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in COMMON_HEADERS.items():
            response.headers.setdefault(name, value)
        patch_vary_headers(response, ["Authorization", "Cookie"])
        return response


def refuse_unknown(request: Request, operation: Operation) -> None:
    """A mistyped parameter that is ignored would widen what somebody asks for."""
    known = {parameter.name: parameter for parameter in operation.query}
    wrong = [(name, "There is no such parameter.") for name in request.query_params if name not in known]
    wrong += [
        (name, "This can be given once.")
        for name, values in request.query_params.lists()
        if name in known and not known[name].many and len(values) > 1
    ]
    if wrong:
        raise Problem(INVALID_FILTER, "The query of this address is not valid.", errors=wrong)


def json_text(text: str, *, headers: dict[str, str] | None = None) -> HttpResponse:
    """An answer that is stored JSON text, unparsed."""
    return HttpResponse(text, content_type=JSON, headers=headers)
