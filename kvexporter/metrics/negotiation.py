"""Which of the two text formats a scraper gets."""

from __future__ import annotations

from typing import Literal

Format = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}


def choose_format(accept: str | None) -> Format:
    """Give OpenMetrics to whoever asks for its version 1.0.0 at least as much as for text, and text to all others."""
    best: dict[str, float] = {}
    for part in (accept or "").split(",")[:30]:
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        quality = _quality(values.get("q", "1"))
        if media == "application/openmetrics-text" and values.get("version", "1.0.0") == "1.0.0":
            best["openmetrics"] = max(best.get("openmetrics", 0), quality)
        elif media in ("text/plain", "text/*", "*/*"):
            best["text"] = max(best.get("text", 0), quality)
    wanted = best.get("openmetrics", 0)
    return "openmetrics" if wanted > 0 and wanted >= best.get("text", 0) else "text"


def _quality(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether a client takes gzip."""
    for part in (accept_encoding or "").split(",")[:30]:
        coding, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if coding in ("gzip", "*"):
            values = dict(parameter.partition("=")[::2] for parameter in parameters)
            return _quality(values.get("q", "1")) > 0
    return False
