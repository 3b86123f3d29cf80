"""From a cascade that ended in a context error, or a request beyond its own slot, to the incident that it was."""

from __future__ import annotations

from collections.abc import Mapping

from kvexporter.cascade import Cascade, Running
from kvexporter.llama import events as ev
from kvexporter.pool_geometry import Geometry
from kvexporter.snapshot import Cause, Incident, IncidentSlot


def pool_incident(cascade: Cascade, geometry: Geometry, build: str | None, parents: Mapping[int, int]) -> Incident:
    """The incident that a confirmed cascade was.

    The failed requests are the slots released around the error; where releases are not logged, the failed requests' own
    lines, but for those of tasks known not to run (some builds print one for every slot, idle ones too). A request with
    several answers is one; `parents` tells which tasks are further answers of which.
    """
    tasks = {task: slot for slot, (task, _) in cascade.running.items() if task is not None}
    errors = cascade.errors & tasks.keys() if tasks else cascade.errors
    held: dict[int, tuple[int | None, int | None]] = dict(cascade.releases)
    for task in errors:
        if task in tasks:
            held.setdefault(tasks[task], cascade.running[tasks[task]])
    if not held and not errors:
        held = dict(cascade.running)
    capacity = geometry.capacity
    total = _held_together(held, parents, cascade.prompts)
    excess = total - capacity if total is not None and capacity is not None else None
    unplaced = cascade.unplaced_batch
    cause: Cause = "slot" if geometry.shared is False else "pool"
    above_since = cascade.demand_above_since if cause == "pool" else None
    sized = {slot: tokens for slot, (_, tokens) in held.items() if tokens is not None}
    return Incident(
        cause=cause,
        started=cascade.started,
        ended=cascade.last,
        slots=tuple(
            IncidentSlot(slot, task, tokens, tokens / capacity if tokens is not None and capacity else None)
            for slot, (task, tokens) in sorted(held.items())
        ),
        requests_failed=max(_requests(held, parents), len({parents.get(task, task) for task in errors}), 1),
        capacity=capacity,
        sum_tokens=total,
        excess_tokens=excess,
        unplaced_batch_tokens=unplaced,
        adds_up=excess == unplaced if excess is not None and unplaced is not None else None,
        biggest_slot=max(sized, key=lambda slot: sized[slot]) if sized else None,
        build=build,
        demand_above_seconds=max(0.0, cascade.started - above_since) if above_since is not None else None,
    )


def _requests(held: Running, parents: Mapping[int, int]) -> int:
    """Requests that these slots worked on, those with several answers counted once."""
    known = {parents.get(task, task) for task, _ in held.values() if task is not None}
    return len(known) + sum(task is None for task, _ in held.values())


def _held_together(held: Running, parents: Mapping[int, int], prompts: Mapping[int, int]) -> int | None:
    """Cells that the slots held, prompts shared by several answers counted once; None where a size is unknown."""
    total = 0
    families: set[int] = set()
    for task, tokens in held.values():
        if tokens is None:
            return None
        total += tokens
        family = None if task is None else parents.get(task, task)
        if family is None or family not in families:
            families.update(() if family is None else (family,))
        elif family in prompts:
            total -= prompts[family]
        else:
            return None
    return total if held else None


def slot_incident(
    event: ev.RequestFailed, at: float, slot: int | None, geometry: Geometry, build: str | None
) -> Incident:
    """The incident of one request that is larger than its own slot."""
    context = event.slot_context if event.slot_context is not None else geometry.slot_context
    size = event.prompt_tokens
    share = size / geometry.capacity if size is not None and geometry.capacity else None
    return Incident(
        cause="slot",
        started=at,
        ended=at,
        slots=(IncidentSlot(slot, event.task, size, share),) if slot is not None else (),
        requests_failed=1,
        capacity=geometry.capacity,
        sum_tokens=size,
        excess_tokens=size - context if size is not None and context is not None else None,
        unplaced_batch_tokens=None,
        adds_up=None,
        biggest_slot=slot,
        request_tokens=size,
        build=build,
    )
