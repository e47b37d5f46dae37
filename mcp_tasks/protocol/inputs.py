"""
Questions to a client and their answers: kinds, shapes, checks (basic/patterns/mrtr; Tasks extension).

An answer carries no discriminator, so it is checked against the request that was asked under its key.
Checks only look: the payload that is stored and sent is the one that came in, never one rebuilt from a model.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

import mcp_types
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from .codec import Json, JsonError, canonical, dumps, loads
from .schemas import InvalidSchema, compile_schema

#: What stands for the answer to a question whose deadline is over. A client can give it to an elicitation only.
NOBODY_ANSWERED: dict[str, Json] = {"action": "cancel"}

_KEY = re.compile(r"[!-~]{1,128}")
#: A hundred years: what is longer would not be a date any more.
_LONGEST_SECONDS = 100 * 365 * 24 * 3600
#: What a schema can say against members that it does not list.
_CLOSING = ("additionalProperties", "unevaluatedProperties", "propertyNames", "maxProperties")


class InvalidInputRequest(ValueError):
    """A question that no client could take: a wrong key, kind or shape. A mistake of the tool."""


class InvalidAnswer(ValueError):
    """An answer that does not fit its question. The message names the key and what was wrong, not the value."""


def check_requests(requests: Json) -> dict[str, dict[str, Json]]:
    """
    Check a map in the wire's ``inputRequests`` shape and return it as plain JSON.

    Raises InvalidInputRequest: an empty map, a key outside ``[!-~]{1,128}``, an unknown method, wrong params.
    """
    if not isinstance(requests, Mapping) or not requests:
        raise InvalidInputRequest("input requests are a map with at least one entry")
    checked = {}
    for key, request in requests.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InvalidInputRequest(f"{key!r} is no key: 1 to 128 visible ASCII characters")
        checked[key] = _check_request(key, request)
    return checked


def check_deadline(seconds: float | None) -> None:
    """Raise InvalidInputRequest for what is no positive number of seconds; None is no deadline."""
    if seconds is None:
        return
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds <= _LONGEST_SECONDS:
        raise InvalidInputRequest("deadline_seconds must be a positive, finite number of seconds")


def nobody_answered(request: Mapping[str, Json], answer: Json) -> bool:
    """Whether a stored answer says that none came in time, where no client can say so itself."""
    return request["method"] != "elicitation/create" and bool(answer == NOBODY_ANSWERED)


def _check_request(key: str, request: Json) -> dict[str, Json]:
    if isinstance(request, BaseModel):
        request = request.model_dump(by_alias=True, exclude_none=True, mode="json")
    if not isinstance(request, Mapping):
        raise InvalidInputRequest(f"{key}: an input request is an object with method and params")
    method, params = request.get("method"), request.get("params", {})
    if not isinstance(params, Mapping):
        raise InvalidInputRequest(f"{key}: params must be an object")
    model: type[BaseModel] | None
    match method:
        case "elicitation/create" if params.get("mode") == "url":
            model = mcp_types.ElicitRequestURLParams
        case "elicitation/create":
            model = mcp_types.ElicitRequestFormParams
        case "sampling/createMessage":
            model = mcp_types.CreateMessageRequestParams
        case "roots/list":
            model = None
        case _:
            raise InvalidInputRequest(f"{key}: {method!r} is no kind of input request")
    try:
        plain = loads(dumps(dict(params)))
        if model is not None:
            _validate(model, plain, strict=True)
    except (JsonError, ValidationError) as problem:
        raise InvalidInputRequest(f"{key}: {_first(problem)}") from None
    if model is mcp_types.ElicitRequestFormParams:
        _check_form(key, plain["requestedSchema"])
    result: dict[str, Json] = {"method": method}
    if plain or method != "roots/list":
        result["params"] = plain
    return result


def _check_form(key: str, schema: Json) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidInputRequest(f'{key}: requestedSchema must have "type": "object"')
    if not isinstance(schema.get("properties", {}), Mapping):
        raise InvalidInputRequest(f"{key}: requestedSchema.properties must be an object")
    try:
        compile_schema(schema)
    except InvalidSchema as problem:
        raise InvalidInputRequest(f"{key}: requestedSchema: {problem}") from None


def check_answer(key: str, request: Mapping[str, Json], answer: Json, *, strict: bool = True) -> None:
    """
    Check an answer against the question asked under its key; raises InvalidAnswer.

    The structure of the kind is always demanded. With ``strict`` an accepted form must also satisfy the
    requested schema; members beyond it are always allowed.
    """
    if not isinstance(answer, Mapping):
        raise InvalidAnswer(f"The answer to {key!r} must be an object")
    params = request.get("params") or {}
    match request["method"]:
        case "elicitation/create":
            _check_elicitation(key, params, answer, strict=strict)
        case "sampling/createMessage":
            _check_model(key, mcp_types.CreateMessageResultWithTools, answer)
        case _:
            _check_model(key, mcp_types.ListRootsResult, answer)


def _check_elicitation(key: str, params: Mapping[str, Json], answer: Mapping[str, Json], *, strict: bool) -> None:
    if answer.get("action") not in ("accept", "decline", "cancel"):
        raise InvalidAnswer(f'The answer to {key!r} needs an action: "accept", "decline" or "cancel"')
    content = answer.get("content")
    if content is not None and not isinstance(content, Mapping):
        raise InvalidAnswer(f"The content of the answer to {key!r} must be an object")
    for name, value in (content or {}).items():
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise InvalidAnswer(f"{name!r} in the answer to {key!r} must be an array of strings")
        if isinstance(value, dict):
            raise InvalidAnswer(f"{name!r} in the answer to {key!r} must not be an object")
    if answer["action"] != "accept" or params.get("mode") == "url":
        return
    if content is None and strict:
        raise InvalidAnswer(f"The accepted answer to {key!r} needs content")
    if strict:
        problem = next(_form_validator(canonical(params["requestedSchema"])).iter_errors(content), None)
        if problem is not None:
            where = f" at {'/'.join(map(str, problem.path))!r}" if problem.path else ""
            # The validator's message may quote the value, and this text may reach a log.
            raise InvalidAnswer(f"The content of the answer to {key!r} violates {problem.validator!r}{where}")


@lru_cache(maxsize=256)
def _form_validator(schema: str) -> Draft202012Validator:
    """A form admits members beyond its schema, whatever the schema says of them."""
    form = {name: value for name, value in loads(schema).items() if name not in _CLOSING}
    return compile_schema(form, formats=True)


def _check_model(key: str, model: type[BaseModel], answer: Mapping[str, Json]) -> None:
    try:
        _validate(model, dict(answer), strict=False)
    except (JsonError, ValidationError) as problem:
        raise InvalidAnswer(f"The answer to {key!r} has a wrong shape: {_first(problem)}") from None


def _validate(model: type[BaseModel], value: Json, *, strict: bool) -> None:
    """By the names of the wire. Without surrogates, which pydantic refuses: shape is all we ask."""
    text = canonical(value).replace("\\ud", "\\u0")
    model.model_validate_json(text, strict=strict, by_alias=True, by_name=False)


def _first(problem: Exception) -> str:
    if isinstance(problem, ValidationError):
        first = problem.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}"
    return str(problem)
