"""
Multi round-trip requests: questions of a synchronous call and the state between its rounds (basic/patterns/mrtr).

A client sends only its newest answers, so those of earlier rounds travel in ``requestState``: signed, for ten
minutes, and bound to the caller and to the very call. It protects from changing, not from reading.
"""

from django.core import signing

from ..protocol.capabilities import SERVER_INFO_KEY
from ..protocol.codec import Json, digest, dumps
from ..protocol.errors import invalid_params
from .requests import Reply, Request, result, server_info

MAX_AGE_SECONDS = 600
_SALT = "mcp_tasks.rpc.mrtr"
#: Members of params that change from round to round, or that no call is recognised by.
_NOT_SALIENT = ("_meta", "inputResponses", "requestState", "task")


def answers_of(request: Request) -> dict[str, Json]:
    """
    Every answer so far: those in the verified state, and the newest over them.

    Raises -32602 for a wrong shape, and for a state that was altered, is too old, or belongs to another call.
    """
    given: dict[str, Json] = {}
    if "requestState" in request.params:
        given.update(_open(request, request.params["requestState"]))
    if "inputResponses" in request.params:
        newest = request.params["inputResponses"]
        if not isinstance(newest, dict) or not all(isinstance(answer, dict) for answer in newest.values()):
            raise invalid_params("inputResponses must be an object of objects")
        given.update(newest)
    return given


def input_required(request: Request, questions: dict[str, dict[str, Json]], given: dict[str, Json]) -> Reply:
    """Ask: the questions, and the state that the client sends back with its answers."""
    state = signing.dumps({"call": _call(request), "answers": given}, salt=_SALT, compress=True)
    members = {
        "resultType": "input_required",
        "inputRequests": questions,
        "requestState": state,
        "_meta": {SERVER_INFO_KEY: server_info()},
    }
    return result(request, dumps(members))


def _open(request: Request, state: Json) -> dict[str, Json]:
    if not isinstance(state, str):
        raise invalid_params("requestState must be a string")
    try:
        # Signed with any of SECRET_KEY_FALLBACKS is fine too.
        opened = signing.loads(state, salt=_SALT, max_age=MAX_AGE_SECONDS)
    except (signing.BadSignature, ValueError, UnicodeError):
        raise invalid_params("Invalid or expired requestState; call again without it") from None
    if opened["call"] != _call(request):
        raise invalid_params("requestState belongs to another call; call again without it")
    answers: dict[str, Json] = opened["answers"]
    return answers


def _call(request: Request) -> str:
    """What a state is bound to: the principal, the method, and the params that make the call this call."""
    owner = request.caller.owner
    salient = {name: value for name, value in request.params.items() if name not in _NOT_SALIENT}
    return digest([None if owner is None else owner.key, request.method, salient])
