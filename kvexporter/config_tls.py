"""The configuration's TLS section: of a llama-server, an Alertmanager or a webhook's receiver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from kvexporter.config_kinds import BOOLEAN, FILE
from kvexporter.config_reading import Key, Place, Section


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How the server's certificate is checked, and which one is shown to it. Files are read anew when they change."""

    ca_file: Annotated[Path | None, Key(FILE, "Certificates (PEM) to trust instead of the system's.")] = None
    cert_file: Annotated[Path | None, Key(FILE, "Certificate (PEM) to show to the server.")] = None
    key_file: Annotated[Path | None, Key(FILE, "Private key of `cert_file`.", "it is in `cert_file`")] = None
    insecure_skip_verify: Annotated[
        bool,
        Key(BOOLEAN, "Accept any certificate. Anyone on the way can then read the API key or password.", "`false`"),
    ] = False


def _check_tls(place: Place, tls: TlsConfig) -> TlsConfig:
    if tls.key_file is not None and tls.cert_file is None:
        raise place.refuse("expected cert_file beside key_file, found only key_file")
    if tls.insecure_skip_verify and tls.ca_file is not None:
        raise place.refuse("expected ca_file or insecure_skip_verify, found both")
    return tls


TLS = Section(TlsConfig, _check_tls)
