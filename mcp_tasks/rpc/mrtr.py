"""
Multi round-trip requests: questions of a synchronous call and the state between its rounds (basic/patterns/mrtr).

A client sends only its newest answers, so those of earlier rounds travel in ``requestState``, and with them the
open questions, so that their answers can be checked before the handler runs. The state is signed, good for ten
minutes, and bound to the caller and to the very call. It protects from changing, not from reading.
"""

from dataclasses import dataclass, field

from django.core import signing

from ..protocol.capabilities import SERVER_INFO_KEY
from ..protocol.codec import Json, digest, dumps
from ..protocol.errors import invalid_params
from ..protocol.inputs import InvalidAnswer, check_answer
from ..tools.context import RecordedAnswer, TaskContext
from .requests import Reply, Request, result, server_info

MAX_AGE_SECONDS = 600
_SALT = "mcp_tasks.rpc.mrtr"
#: Members of params that change from round to round, or that no call is recognised by.
_NOT_SALIENT = ("_meta", "inputResponses", "requestState", "task")
#: What a client of the older era counts as able to answer, so that a question to it ends in words for people.
EVERYTHING: dict[str, Json] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


@dataclass(frozen=True, slots=True)
class Answers:
    """What a call knows by now: ``recorded`` was checked against its questions, ``given`` was never asked for yet."""

    recorded: dict[str, RecordedAnswer] = field(default_factory=dict)
    given: dict[str, Json] = field(default_factory=dict)


def answers_of(request: Request, *, strict: bool = True) -> Answers:
    """
    Every answer so far: those in the verified state, and the newest, checked where the state names their question.

    Raises -32602 for a wrong shape or answer, and for a state that was altered, is too old, or belongs to another
    call.
    """
    state = _open(request, request.params["requestState"]) if "requestState" in request.params else {}
    recorded = {key: RecordedAnswer(*pair) for key, pair in state.get("recorded", {}).items()}
    given: dict[str, Json] = dict(state.get("given", {}))
    asked: dict[str, dict[str, Json]] = state.get("asked", {})
    if "inputResponses" in request.params:
        newest = request.params["inputResponses"]
        if not isinstance(newest, dict) or not all(isinstance(answer, dict) for answer in newest.values()):
            raise invalid_params("inputResponses must be an object of objects")
        for key, answer in newest.items():
            if key not in asked:
                given[key] = answer
                continue
            try:
                check_answer(key, asked[key], answer, strict=strict)
            except InvalidAnswer as problem:
                raise invalid_params(str(problem)) from None
            recorded[key] = RecordedAnswer(answer, digest(asked[key]))
    return Answers(recorded, given)


def input_required(request: Request, questions: dict[str, dict[str, Json]], context: TaskContext) -> Reply:
    """Ask: the questions, and the state that the client sends back with its answers."""
    state = {
        "call": _call(request),
        "asked": questions,
        "recorded": {key: [item.answer, item.request_hash] for key, item in context.recorded.items()},
        "given": context.given,
    }
    members = {
        "resultType": "input_required",
        "inputRequests": questions,
        "requestState": signing.dumps(state, salt=_SALT, compress=True),
        "_meta": {SERVER_INFO_KEY: server_info()},
    }
    return result(request, dumps(members))


def _open(request: Request, state: Json) -> dict[str, Json]:
    if not isinstance(state, str):
        raise invalid_params("requestState must be a string")
    try:
        # Signed with any of SECRET_KEY_FALLBACKS is fine too.
        opened: dict[str, Json] = signing.loads(state, salt=_SALT, max_age=MAX_AGE_SECONDS)
    except (signing.BadSignature, ValueError):
        raise invalid_params("Invalid or expired requestState; call again without it") from None
    if opened["call"] != _call(request):
        raise invalid_params("requestState belongs to another call; call again without it")
    return opened


def _call(request: Request) -> str:
    """What a state is bound to: the principal, the method, and the params that make the call this call."""
    owner = request.caller.owner
    salient = {name: value for name, value in request.params.items() if name not in _NOT_SALIENT}
    return digest([None if owner is None else owner.key, request.method, salient])
