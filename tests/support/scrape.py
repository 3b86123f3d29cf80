"""Reading an exporter's /metrics as a test wants it: one value by name and labels."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.paths import wait_for


class Scrape:
    """The samples of one text exposition."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            (sample.name, dict(sample.labels), float(sample.value))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of each series of that name that has these labels among its own."""
        return [
            (found, value)
            for sample, found, value in self.samples
            if sample == name and labels.items() <= found.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the only series of that name with these labels; None when there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels} is not one series: {found}"
        return found[0][1] if found else None

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Values of a name's series by one of its labels."""
        return {found[label]: value for found, value in self.all(name, **labels)}


def scrape(url: str) -> Scrape:
    """Scrape `url`/metrics now."""
    reply = httpx.get(f"{url}/metrics", timeout=10, trust_env=False)
    reply.raise_for_status()
    return Scrape(reply.text)


def wait_value(url: str, expected: float, name: str, deadline: float = 30.0, **labels: str) -> Scrape:
    """Scrape until a series has a value, and give that scrape; AssertionError with what it had last."""
    last: list[tuple[dict[str, str], float]] | str = "nothing"

    def probe() -> Scrape | None:
        nonlocal last
        try:
            now = scrape(url)
        except httpx.TransportError as error:
            last = repr(error)
            return None
        last = now.all(name, **labels)
        return now if len(last) == 1 and last[0][1] == expected else None

    try:
        return wait_for(f"{name}{labels} to be {expected:g}", probe, deadline, interval=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}; it has {last}") from None
