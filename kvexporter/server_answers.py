"""What one answer of a server's HTTP API, or the want of one, changes in its model."""

from __future__ import annotations

from collections.abc import Iterable

from kvexporter.facts import Endpoint, PollReason
from kvexporter.llama.exposition import UpstreamMetrics
from kvexporter.llama.props import Props
from kvexporter.llama.slots import SlotSample
from kvexporter.server_parts import ServerParts


def take_slots(parts: ServerParts, samples: Iterable[SlotSample], at: float, asked: float | None) -> None:
    """An answer of `/slots` that came at `at` and was asked for at `asked`."""
    samples = tuple(samples)
    _answered(parts, "slots", at)
    if samples:
        contexts = [sample.context for sample in samples if sample.context]
        parts.shape.api(len(samples), min(contexts) if contexts else None)
        parts.reshape()
    parts.pool.sample(samples, at if asked is None else asked, log_leads=parts.log_tells_tasks, until=at)


def take_props(parts: ServerParts, props: Props, at: float) -> None:
    """An answer of `/props`."""
    parts.props = props
    _answered(parts, "props", at, sleeping=props.sleeping)
    parts.model = props.model or parts.model
    parts.build = props.build or parts.build
    parts.shape.api(props.total_slots, props.slot_context)
    parts.reshape()


def take_metrics(parts: ServerParts, metrics: UpstreamMetrics, at: float) -> None:
    """An answer of upstream's `/metrics`."""
    if not parts.polls.fresh("metrics", at):
        parts.spells.deferred(None, at)  # whether they waited all the time, nobody knows
    _answered(parts, "metrics", at)
    parts.upstream = metrics
    parts.spells.deferred(metrics.requests_deferred, at)


def take_health(parts: ServerParts, at: float, sleeping: bool | None) -> None:
    """`/health` said that the server is well; `sleeping` where it tells that too."""
    # A sleeping server is well too: only the word for it says more.
    keeps = parts.availability.state if sleeping is None else None
    _answered(parts, "health", at, sleeping=True if keeps == "sleeping" else sleeping)


def take_failure(parts: ServerParts, endpoint: Endpoint, reason: PollReason) -> None:
    """An endpoint did not give what it should."""
    parts.polls.failed(endpoint, reason)
    parts.availability.failed(reason, endpoint)
    if parts.availability.state == "down":
        parts.gone()


def _answered(parts: ServerParts, endpoint: Endpoint, at: float, *, sleeping: bool | None = None) -> None:
    was = parts.availability.state
    parts.polls.answered(endpoint, at)
    if endpoint != "metrics":  # which any exporter has
        parts.availability.answered(sleeping=sleeping)
        parts.unit_life.works(at)
    if parts.availability.state == "sleeping" and was != "sleeping":
        parts.pool.restart()
