"""Targets for Prometheus' HTTP service discovery. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

import kvexporter
from kvexporter.snapshot import ExporterSnapshot, ServerSnapshot
from kvexporter.web.amounts import clean

TargetGroup = dict[str, object]


def exporter_target(
    snapshot: ExporterSnapshot, address: tuple[str, int], scheme: str, telemetry_path: str
) -> list[TargetGroup]:
    """Give the exporter itself, at the address by which it was asked."""
    names = ",".join(clean(server.name) or "" for server in snapshot.servers)
    labels = {
        "__scheme__": scheme,
        "__metrics_path__": telemetry_path,
        "__meta_kvexporter_version": kvexporter.__version__,
        # In commas all round, as Prometheus' own discoveries do it, so that `.*,NAME,.*` finds one.
        "__meta_kvexporter_servers": f",{names}," if names else "",
    }
    return [{"targets": [_joined(*address)], "labels": labels}]


def server_targets(snapshot: ExporterSnapshot) -> list[TargetGroup]:
    """Give the llama-servers whose address is known, with what is known of them as meta labels."""
    groups = (_server(server) for server in snapshot.servers)
    return [group for group in groups if group is not None]


def _server(server: ServerSnapshot) -> TargetGroup | None:
    url = urlsplit(server.url or "")
    if url.scheme not in ("http", "https") or not url.hostname:
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    labels = {
        "__scheme__": url.scheme,
        "__metrics_path__": f"{url.path.rstrip('/')}/metrics",
        "__meta_kvexporter_server": clean(server.name) or "",
        "__meta_kvexporter_unit": clean(server.unit) or "",
        "__meta_kvexporter_model": clean(server.model) or "",
        "__meta_kvexporter_build": clean(server.build) or "",
        "__meta_kvexporter_state": server.state or "",
        "__meta_kvexporter_metrics": "true" if "metrics" in server.last_poll else "",
    }
    return {"targets": [_joined(url.hostname, port)], "labels": labels}


def _joined(host: str, port: int) -> str:
    """Host and port as Prometheus writes them; an IPv4 address that came in over an IPv6 socket as what it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"{host}:{port}"
    if isinstance(address, IPv6Address):
        return f"{address.ipv4_mapped}:{port}" if address.ipv4_mapped else f"[{address}]:{port}"
    return f"{address}:{port}"
