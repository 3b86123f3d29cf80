"""The types of single values in a web configuration. Their names and spellings are the format's, so Go's.

Nothing here repeats a value that may be a secret: keys, hashes, and whatever stands where one of them belongs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kvexporter.config_reading import Place, Scalar, read_mapping

MAX_USERS = 100
MAX_BCRYPT_COST = 16
"""About 5 seconds for one check. Each step takes twice as long, and a request ends after 20 seconds."""

_NULL = "tag:yaml.org,2002:null"
_STRING = "tag:yaml.org,2002:str"
_HASH = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_GO_DURATION_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|ms|s|m|h)")
_GO_DURATION = re.compile(rf"(?:{_GO_DURATION_PART.pattern}){{1,6}}")
_GO_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

TLS12, TLS13 = "TLS12", "TLS13"

CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""OpenSSL's name of each TLS 1.2 suite that Go's crypto/tls calls secure."""
TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Always on with TLS 1.3, in Go as in OpenSSL; a list may name them all the same."""
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
"""OpenSSL's name of each curve."""

NO_CLIENT_CERT, VERIFY_IF_GIVEN, REQUIRE_AND_VERIFY = (
    "NoClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
)
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""The headers that may be set, and the values of those that have a fixed choice."""


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key: a file that is read when used, or the text itself."""

    where: str = field(compare=False)
    """File, line and key, for errors that are only found later."""
    path: Path | None = None
    text: str = field(default="", repr=False)


def _file(place: Place) -> Pem | None:
    text = _text(place, "the path of a file")
    # As in the format, an empty path is none.
    return Pem(place.problem("").text, place.reading.file.parent.absolute() / text) if text else None


def _inline(place: Place) -> Pem | None:
    text = _text(place, "text in PEM format")
    return Pem(place.problem("").text, text=text) if text else None


def _text(place: Place, words: str) -> str:
    node = place.node
    if not isinstance(node, yaml.ScalarNode) or node.tag not in (_STRING, _NULL):
        raise place.refuse(f"expected {words}")
    text = "" if node.tag == _NULL else str(node.value)
    if "\0" in text:
        raise place.refuse(f"expected {words}, found control characters")
    return text


PEM_FILE = Scalar("path of a file (relative ones start at this file's folder)", _file)
PEM_TEXT = Scalar("text in PEM format", _inline)


def _choice(place: Place, what: str, known: tuple[str, ...]) -> str:
    node = place.node
    if isinstance(node, yaml.ScalarNode) and node.value in known:
        return str(node.value)
    raise place.expected(f"{what}: one of {', '.join(known)}")


def _min_version(place: Place) -> str:
    text = _choice(place, "a TLS version", ("TLS10", "TLS11", TLS12, TLS13))
    if text in (TLS12, TLS13):
        return text
    place.warn("TLS 1.0 and 1.1 are broken and not offered: TLS12 is the lowest here")
    return TLS12


def _max_version(place: Place) -> str:
    return _choice(place, "a TLS version", (TLS12, TLS13))


MIN_VERSION = Scalar("TLS12 or TLS13 (TLS10 and TLS11 are read as TLS12)", _min_version)
MAX_VERSION = Scalar("TLS12 or TLS13", _max_version)


def _client_auth(place: Place) -> str:
    node = place.node
    text = node.value if isinstance(node, yaml.ScalarNode) else None
    if text in ("RequireAnyClientCert", "RequireClientCert"):
        raise place.refuse(
            f"expected {REQUIRE_AND_VERIFY} or another type: {text} lets in whoever makes a certificate, "
            "and is not supported"
        )
    if text == "RequestClientCert":
        place.warn("RequestClientCert looks at no certificate, so none is asked for: the same as NoClientCert")
        return NO_CLIENT_CERT
    if isinstance(node, yaml.ScalarNode) and (text == "" or node.tag == _NULL):
        return NO_CLIENT_CERT
    return _choice(place, "a client_auth_type", (NO_CLIENT_CERT, VERIFY_IF_GIVEN, REQUIRE_AND_VERIFY))


CLIENT_AUTH = Scalar(f"{NO_CLIENT_CERT}, {VERIFY_IF_GIVEN} or {REQUIRE_AND_VERIFY}", _client_auth)
CIPHER = Scalar("cipher suite by Go's name", lambda place: _choice(place, "a suite", (*CIPHERS, *TLS13_CIPHERS)))
CURVE = Scalar("curve by Go's name", lambda place: _choice(place, "a curve", tuple(CURVES)))


def _san(place: Place) -> str:
    text = _text(place, "a subject alternative name")
    if not text:
        raise place.refuse("expected a subject alternative name, found an empty text")
    return text


SAN = Scalar("DNS name, IP address, e-mail address or URI", _san)


def _headers(place: Place) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, (key_node, node) in read_mapping(place).items():
        if name not in _HEADERS:
            raise place.inner(key_node, name).refuse(f"this header cannot be set; known here: {', '.join(_HEADERS)}")
        inner = place.inner(node, name)
        if not isinstance(node, yaml.ScalarNode):
            raise inner.expected("a header's value")
        value = "" if node.tag == _NULL else str(node.value)
        if _HEADERS[name] and value not in _HEADERS[name]:
            raise inner.expected(" or ".join(_HEADERS[name]))
        if not value.isascii() or (value and not value.isprintable()):
            raise inner.refuse("expected a header's value in one line of ASCII characters")
        if value.strip():
            headers[name] = value.strip()
    return headers


HEADERS = Scalar("group of header: value", _headers)


@dataclass(frozen=True, slots=True)
class Users:
    """Who may come in: bcrypt hash by name, both as bytes. Empty: everybody."""

    hashes: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.hashes)


def _users(place: Place) -> Users:
    hashes: dict[bytes, bytes] = {}
    found = read_mapping(place)
    if len(found) > MAX_USERS:
        raise place.refuse(f"expected at most {MAX_USERS} users, found {len(found)}")
    for name, (key_node, node) in found.items():
        if not name or ":" in name or not name.isprintable():
            raise place.inner(key_node, name).refuse("expected a user name without : and control characters")
        inner = place.inner(node, name)
        match = _HASH.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
        if match is None:
            raise inner.refuse(
                "expected a bcrypt hash, which begins with $2y$, $2b$ or $2a$ and has 60 characters; "
                "found something else (htpasswd -nBC 10 '' makes one)"
            )
        if not 4 <= int(match["cost"]) <= MAX_BCRYPT_COST:
            raise inner.refuse(f"expected a bcrypt hash of cost 4 to {MAX_BCRYPT_COST}, found cost {match['cost']}")
        hashes[name.encode()] = node.value.encode()
    return Users(hashes)


USERS = Scalar("group of user name: bcrypt hash", _users)


def _go_duration(place: Place) -> float:
    node = place.node
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if text == "0":
        return 0.0
    if not _GO_DURATION.fullmatch(text):
        raise place.expected("a duration such as 100ms, 1s or 1m30s, or 0")
    seconds = sum(float(number) * _GO_UNIT_SECONDS[unit] for number, unit in _GO_DURATION_PART.findall(text))
    if seconds > 24 * 3600:
        raise place.expected("a duration of at most 24h")
    return seconds


GO_DURATION = Scalar("duration as Go writes it (100ms, 1.5s), or 0", _go_duration)
