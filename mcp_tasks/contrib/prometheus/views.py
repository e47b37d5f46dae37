"""Views to mount for a Prometheus server; none is mounted by default."""

import os

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from mcp_tasks.access.authentication import Refusal, authenticate
from mcp_tasks.connections import outside_transactions

from .collector import Everything


@require_safe
@login_not_required
@outside_transactions
def metrics(request: HttpRequest) -> HttpResponse:
    """
    Everything, for staff and who may view tasks.

    A Prometheus server shows the token of such a user: ``authorization: {credentials: …}`` in its configuration.
    """
    try:
        user = authenticate(request).user
    except Refusal as refusal:
        challenge = {} if refusal.challenge is None else {"WWW-Authenticate": refusal.challenge}
        return HttpResponse(status=refusal.status, headers=challenge)
    if user is None or not (user.is_staff or user.has_perm("mcp_tasks.view_task")):
        return HttpResponse(status=403)
    return _exposition(request)


@require_safe
@login_not_required
@outside_transactions
def open_metrics(request: HttpRequest) -> HttpResponse:
    """The same for everybody: only for an address that nobody but monitoring can reach."""
    return _exposition(request)


def _exposition(request: HttpRequest) -> HttpResponse:
    source = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        source = CollectorRegistry()
        MultiProcessCollector(source)  # type: ignore[no-untyped-call]
    made = CollectorRegistry()
    made.register(Everything(source))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(made), content_type=content_type, headers={"Cache-Control": "no-store"})
