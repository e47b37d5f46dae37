"""``Accept`` and ``Content-Type`` (streamable-http, "Sending Messages"): what the client can read, what it prefers."""

from dataclasses import dataclass

JSON, EVENT_STREAM = "application/json", "text/event-stream"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Which of our two forms a client reads; ``prefers_stream`` when it named the stream first."""

    json: bool
    stream: bool
    prefers_stream: bool


def accepted(header: str | None) -> Accepted:
    """Read an Accept header: quality first, then order. An absent one accepts everything."""
    if header is None or not header.strip():
        return Accepted(True, True, False)
    best: dict[str, tuple[float, int]] = {}
    for place, entry in enumerate(header.split(",")):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        quality = _quality(parameters)
        for offered in (JSON, EVENT_STREAM):
            if media_type in (offered, offered.split("/")[0] + "/*", "*/*") and quality > 0:
                best[offered] = max(best.get(offered, (0.0, 0)), (quality, -place))
    json, stream = best.get(JSON), best.get(EVENT_STREAM)
    prefers = stream is not None and (json is None or stream > json)
    return Accepted(json is not None, stream is not None, prefers)


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def is_json(content_type: str | None) -> bool:
    """Whether a body is declared as JSON; also what keeps cross-site forms out, which cannot say so."""
    return (content_type or "").split(";")[0].strip().lower() == JSON
