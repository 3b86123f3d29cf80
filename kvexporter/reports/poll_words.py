"""Why an endpoint gave no usable answer, and what to do about it, in words. Pure."""

from __future__ import annotations

from kvexporter.facts import PollReason

REASONS: dict[PollReason, tuple[str, str]] = {
    "unauthorized": (
        "demands an API key",
        "give the path of a file with the key as api_key_file of this server in the configuration",
    ),
    "not_found": ("has no such path", "check the url's port and its base path (--api-prefix of the server)"),
    "unsupported": ("has this endpoint turned off", ""),
    "loading": ("is loading its model", ""),
    "http_error": ("answers with an error", "look at the server's own log"),
    "redirect": ("redirects, which is not followed", "give the address that it redirects to as url"),
    "timeout": ("did not answer in time", "is it hung? Older builds answer only between two batches"),
    "refused": ("is not listening", "start the server, or correct its url"),
    "connection": ("could not be reached", "check the url and the network between"),
    "too_large": ("answers with more than 4 MiB", "is it a llama-server?"),
    "malformed": ("does not answer like a llama-server", "check the url: something else may be listening there"),
    "tls": ("could not be reached over TLS", "give its certificate authority as tls.ca_file"),
    "key_file": ("demands an API key that cannot be read", "let kvexporter's user read the api_key_file"),
}
"""Reason → what the endpoint does, to be put after its name, and the remedy."""
