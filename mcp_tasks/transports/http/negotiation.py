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
    ranges = []
    for place, entry in enumerate(header.split(",")):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        ranges.append((media_type, _quality(parameters), -place))
    json, stream = _preference(JSON, ranges), _preference(EVENT_STREAM, ranges)
    prefers = stream is not None and (json is None or stream > json)
    return Accepted(json is not None, stream is not None, prefers)


def _preference(offered: str, ranges: list[tuple[str, float, int]]) -> tuple[float, int] | None:
    """How much a form is wanted, None where it is not: the most specific range that names it decides (RFC 9110)."""
    for media_range in (offered, offered.split("/")[0] + "/*", "*/*"):
        named = [(quality, place) for name, quality, place in ranges if name == media_range]
        if named:
            return max(named) if max(named)[0] > 0 else None
    return None


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
