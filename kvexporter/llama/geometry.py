"""How the KV cache is cut, as far as the command line and the API tell.

The rules were tried on b11434. `n_ctx` is rounded up to 256 cells. A unified buffer is promised whole to each slot; a
split one is divided, and each part rounded up to 256 again. Then the slot context is capped by `--kv-unified-per-slot`
and by the model's training context, which changes nothing of the buffer.
"""

from __future__ import annotations

from kvexporter.llama.launch import LaunchOptions
from kvexporter.pool_geometry import Geometry

_CELLS = 256
_OLD_DEFAULT_CONTEXT = 4096
"""`-c` of builds that did not take the training context by default (until the end of 2025)."""


def geometry_from_launch(
    options: LaunchOptions, *, slots: int | None, slot_context: int | None, training_context: int | None
) -> Geometry:
    """The geometry of a server started with these options; what cannot be known is None.

    `slots` and `slot_context` (tokens) are what was observed over the API or in the log, and win over what would follow
    from the options. While the training context (tokens) is unknown and no slot context was observed, it is taken to be
    no limit.
    """
    count = slots or options.parallel
    observed = slot_context or None
    training = training_context or None
    if options.router and slots is None:
        return Geometry()
    if count is None:
        # One slot on older builds, four on newer ones, and the buffer is one whole either way.
        whole = _whole_buffer(options, None, training) if options.environment_known else None
        return _geometry(None, observed or _least(whole, options.per_slot, training), whole, None)
    if count == 1:
        whole = _whole_buffer(options, 1, training)
        if whole is None and observed is not None and observed != options.per_slot:
            whole = _padded(observed)
        return _geometry(1, observed or _least(whole, options.per_slot, training), whole, False)
    unified = _is_unified(options, count, observed)
    if unified is None or (options.context is None and not options.environment_known):
        return _geometry(count, observed, _either_way(options, count), unified)
    if unified:
        whole = _unified_capacity(options, count, observed, training)
        return _geometry(count, observed or _least(whole, options.per_slot, training), whole, True)
    part = _part(options, count, observed, training)
    capacity = None if part is None else part * count
    return _geometry(count, observed or _least(part, options.per_slot, training), capacity, False)


def geometry_from_api(slots: int | None, slot_context: int | None) -> Geometry:
    """What `/props` and `/slots` tell by themselves: of several slots not whether they share, nor the pool's size.

    One slot's capacity is its context; a model's training context that is no multiple of 256 has a few cells more.
    """
    alone = slots == 1
    return Geometry(slots, slot_context, slot_context if alone else None, False if alone else None, "api")


def _whole_buffer(options: LaunchOptions, slots: int | None, training: int | None) -> int | None:
    """Cells of an undivided buffer, from the options and the training context alone."""
    if options.context:
        return _padded(options.context)
    if options.context == 0:
        return None if training is None else _padded(training)
    if options.per_slot is not None and slots is not None:
        return _padded(slots * options.per_slot)
    # Without -c the context may have been shrunk to fit the device's memory, or have an older build's default.
    return None


def _unified_capacity(options: LaunchOptions, slots: int, observed: int | None, training: int | None) -> int | None:
    whole = _whole_buffer(options, slots, training)
    if whole is not None or observed is None or observed == options.per_slot:
        return whole
    if options.context is None and options.parallel is not None and slots * observed == _OLD_DEFAULT_CONTEXT:
        # Either the default of the builds whose unified slots got only a part each, or a model trained on so little.
        if training is None:
            return None
        return _padded(observed) if observed == training else _OLD_DEFAULT_CONTEXT
    return _padded(observed)


def _part(options: LaunchOptions, slots: int, observed: int | None, training: int | None) -> int | None:
    """Cells of each slot's own buffer."""
    total = options.context or (slots * options.per_slot if options.context is None and options.per_slot else None)
    if total is not None:
        return _part_of(total, slots)
    if observed is not None and observed != options.per_slot:
        return _padded(observed)
    # `-c 0` gives each slot the training context when split.
    return None if training is None or options.context is None else _padded(training)


def _is_unified(options: LaunchOptions, slots: int, observed: int | None) -> bool | None:
    """Whether several slots share one buffer; None if an unreadable environment may have decided it."""
    if options.context and observed is not None and observed > _part_of(options.context, slots):
        # Each has more than its part. Forks unify by themselves, and then the options mislead.
        return True
    if options.parallel is None:
        # More than one slot without -np means automatic, and that is unified whatever else was said.
        return True if options.environment_known else None
    if options.unified is None and not options.environment_known:
        return None
    return options.unified is True


def _either_way(options: LaunchOptions, slots: int) -> int | None:
    """Cells of all buffers if they are as many unified as split."""
    if not options.context:
        return None
    whole = _padded(options.context)
    return whole if _part_of(options.context, slots) * slots == whole else None


def _part_of(context: int, slots: int) -> int:
    """Cells of each slot's own buffer when `-c` is split."""
    return _padded(_padded(context) // slots)


def _geometry(slots: int | None, slot_context: int | None, capacity: int | None, shared: bool | None) -> Geometry:
    return Geometry(slots, slot_context, capacity, shared, "cmdline")


def _least(capacity: int | None, *caps: int | None) -> int | None:
    """The slot context that a buffer of this size gives under these caps; None if the size is unknown."""
    return None if capacity is None else min((capacity, *(cap for cap in caps if cap is not None)))


def _padded(tokens: int) -> int:
    return -(-tokens // _CELLS) * _CELLS
