"""Who sent a request, as its line in the access log tells (builds that have one)."""

from __future__ import annotations

import re

from msgspec import Struct

# `… request: POST /v1/chat/completions 127.0.0.1 200`, or the fields of a structured line.
_PLAIN = re.compile(rb"(?:\A|\s)request: [A-Z]{3,16} [^\n]* (\S{1,64}) \d{3}\s*\Z")
_FIELD = re.compile(rb"\bremote_addr\"?[=:] ?\"([^\"\s]{1,64})\"")
_ADDRESS = re.compile(rb"[0-9A-Fa-f:.]{2,45}(?:%[\w.-]{1,16})?|unix|localhost")


class Asked(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A request that may have held tokens, as the access log tells it at its end."""

    address: str
    """Where it came from."""
    failed: bool
    child_port: int | None = None


def client_address(message: bytes) -> str | None:
    """Give the address in a line that was recognised as a request's; None where it tells none."""
    found = _PLAIN.search(message) or _FIELD.search(message)
    if found is None or not _ADDRESS.fullmatch(found[1]):
        return None
    return found[1].decode("ascii")
