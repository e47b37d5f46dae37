"""
OpenAPI of the REST addresses, by drf-spectacular (extra ``openapi``): import this module where the schema is served.

Nothing is described twice: operations are those of the views, bodies and answers their serializers.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, Literal, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiViewExtension
from drf_spectacular.plumbing import build_bearer_security_scheme_object
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from ..transports.rest.base import JSON, Operation, Parameter, RestView
from ..transports.rest.filters import PARAMETERS as FILTERS
from ..transports.rest.problems import PROBLEM_JSON, STATUSES
from ..transports.rest.serializers import ProblemShape

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: dict[type, OpenApiTypes] = {str: OpenApiTypes.STR, int: OpenApiTypes.INT}
_TIMES = {"created_after", "created_before", "expires_before"}
_NOT_MODIFIED = 304


class BearerTokens(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Our tokens, whose keyword is not that of DRF's."""

    target_class = "mcp_tasks.access.authentication.BearerTokenAuthentication"
    name = "bearerAuth"
    priority = 1

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        found: dict[str, Any] = build_bearer_security_scheme_object(
            header_name="Authorization", token_prefix=self.target.keyword
        )
        return found


class RestViews(OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """Every view of ours, by its table of operations."""

    target_class = "mcp_tasks.transports.rest.base.RestView"
    match_subclasses = True

    def view_replacement(self) -> type[RestView]:
        view: type[RestView] = self.target
        described = {
            method.lower(): _described(operation, has_ref="ref" in signature(getattr(view, method.lower())).parameters)(
                _handler(view, method)
            )
            for method, operation in view.operations.items()
        }
        return type(view.__name__, (view,), described)


def _handler(view: type[RestView], method: str) -> Callable[..., Any]:
    """A function of its own for each view: a description sticks to the function, and views inherit theirs."""
    original: Callable[..., Any] = getattr(view, method.lower())

    def handler(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, request, *args, **kwargs)

    return handler


def _described(operation: Operation, *, has_ref: bool) -> Callable[[F], F]:
    decorated: Callable[[F], F] = extend_schema(
        operation_id=operation.id,
        tags=[operation.tag],
        summary=operation.summary,
        description=f"{operation.summary}.",
        parameters=[
            *([OpenApiParameter("ref", OpenApiTypes.UUID, "path")] if has_ref else []),
            *(_parameter(it, "query") for it in operation.query),
            *(_parameter(it, "header") for it in operation.headers),
        ],
        request=operation.body,
        responses=_responses(operation),
        filters=False,
    )
    return decorated


def _parameter(parameter: Parameter, place: Literal["query", "header"]) -> OpenApiParameter:
    is_time = parameter.name in _TIMES and parameter in FILTERS
    return OpenApiParameter(
        parameter.name,
        OpenApiTypes.DATETIME if is_time else _KINDS[parameter.kind],
        place,
        description=parameter.about,
        required=parameter.required,
        many=parameter.many,
        enum=parameter.choices or None,
    )


def _responses(operation: Operation) -> dict[Any, Any]:
    answer = OpenApiTypes.OBJECT if operation.answer is dict else operation.answer
    found: dict[Any, Any] = {(operation.status, JSON): answer}
    if answer is None:
        found = {operation.status: OpenApiResponse(description="Done.")}
    if any(header.name == "If-None-Match" for header in operation.headers):
        found[_NOT_MODIFIED] = OpenApiResponse(description="The ETag is still right.")
    for status in operation.problems:
        codes = ", ".join(f"`{code}`" for code, of_code in STATUSES.items() if of_code == status)
        found[status, PROBLEM_JSON] = OpenApiResponse(ProblemShape, description=codes)
    return found
