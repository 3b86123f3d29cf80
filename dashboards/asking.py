"""Asks a Prometheus as Grafana does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, and its values by time."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]


def ask_range(url: str, query: str, start: float, end: float, step: float) -> list[Series]:
    """Ask for all values between two times. Raises RuntimeError if Prometheus refuses the query."""
    result = _ask(f"{url}/api/v1/query_range", {"query": query, "start": start, "end": end, "step": step})
    return [Series(one["metric"], tuple((at, float(value)) for at, value in one["values"])) for one in result]


def ask_at(url: str, query: str, at: float) -> list[Series]:
    """Ask for the values at one time; each series has one point. Raises RuntimeError if Prometheus refuses."""
    result = _ask(f"{url}/api/v1/query", {"query": query, "time": at})
    return [Series(one["metric"], ((float(one["value"][0]), float(one["value"][1])),)) for one in result]


def _ask(address: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    reply = httpx.get(address, params=parameters, timeout=60, trust_env=False).json()
    if reply["status"] != "success":
        raise RuntimeError(f"{parameters['query']}: {reply['error']}")
    result: list[dict[str, Any]] = reply["data"]["result"]
    return result
