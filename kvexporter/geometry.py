"""How one server's KV cache is cut: the start-up lines of every build, merged with the other sources."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvexporter.llama import events as ev
from kvexporter.llama.geometry import geometry_from_api, geometry_from_launch
from kvexporter.llama.launch import LaunchOptions
from kvexporter.pool_geometry import Geometry

_STARTUP = frozenset(
    {
        ev.ProcessStarting,
        ev.ModelLoading,
        ev.AutoParallel,
        ev.PoolSized,
        ev.TrainingContext,
        ev.CappedToTraining,
        ev.CappedToPerSlot,
        ev.PoolInitialized,
        ev.SlotsInitializing,
        ev.SlotContext,
        ev.ContextSize,
        ev.KvUnified,
        ev.SlidingWindowCache,
        ev.KvCacheSize,
        ev.KvSelfSize,
        ev.RecurrentCacheSize,
    }
)
"""Events about the geometry; the others are many more."""


@dataclass(slots=True)
class StartupLog:
    """What the start-up lines of the server's current life told.

    A model reload (after sleep) starts anew, but for what is told once per process: the automatic number of slots and
    the pool sized from `--kv-unified-per-slot`.
    """

    auto_slots: int | None = None
    auto_unified: bool | None = None
    sized_pool: int | None = None
    slots: int | None = None
    slot_context: int | None = None
    unified: bool | None = None
    context: int | None = None
    training_context: int | None = None
    capped_pool: int | None = None
    cells: int | None = None
    streams: int | None = None
    single_buffer: bool = False
    cache_bytes: int | None = None
    pool_bytes: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    """Of the pool's own cache, as its size line names them."""
    drops_idle_caches: bool = False
    """The build prints the one start-up line: such builds drop idle slots' caches unasked when a task starts."""
    _early: bool = False
    """The once-per-process lines were read, and nothing of a model since."""
    _sliding: bool = False
    _contexts: int = 0

    def observe(self, event: ev.Event) -> bool:
        """Take one event; True if it was about the geometry."""
        if type(event) not in _STARTUP:
            return False
        match event:
            case ev.ProcessStarting():
                self._forget_model()
                if not self._early:
                    # Some builds print these before the line that is otherwise a process's first.
                    self.auto_slots = self.auto_unified = self.sized_pool = None
            case ev.ModelLoading():
                self._forget_model()
                self._early = False
            case ev.AutoParallel(slots, unified):
                self.auto_slots, self.auto_unified, self._early = slots, unified, True
            case ev.PoolSized(_, _, tokens):
                self.sized_pool, self._early = tokens, True
            case ev.TrainingContext(tokens):
                if self.training_context is None:
                    self.training_context = tokens
            case ev.CappedToTraining(tokens, _) | ev.CappedToPerSlot(tokens, _):
                # The first cap's line names the whole buffer, a second one what the first left of it.
                if self.capped_pool is None:
                    self.capped_pool = tokens
            case ev.PoolInitialized(slots, slot_context, unified):
                self.slots, self.slot_context, self.unified = slots, slot_context, unified
                self.drops_idle_caches = True
            case ev.SlotsInitializing(slots):
                self.slots = slots
            case ev.SlotContext(_, tokens):
                self.slot_context = tokens if self.slot_context is None else min(self.slot_context, tokens)
            case ev.ContextSize(tokens):
                self._contexts += 1
                if self._contexts == 1:
                    self.context = tokens
            case ev.KvUnified(unified):
                if self._of_main_model() and self.unified is None:
                    self.unified = unified
            case ev.SlidingWindowCache(sliding, _):
                self._sliding = sliding
            case ev.KvCacheSize():
                self._cache(event)
            case ev.KvSelfSize(total_bytes):
                if self._of_main_model():
                    self.single_buffer = True
                    self._add_bytes(total_bytes)
                    self.pool_bytes = self.pool_bytes or total_bytes
                    self.cache_type_k, self.cache_type_v = event.k_type, event.v_type
            case ev.RecurrentCacheSize(total_bytes):
                if self._of_main_model():
                    self._add_bytes(total_bytes)
            case _:
                pass
        return True

    def geometry(self) -> Geometry:
        """What the log alone tells; fields it does not tell are None."""
        slots = self.slots if self.slots is not None else self.auto_slots
        unified = self._is_unified()
        capacity = self._capacity(slots, unified)
        if capacity is None and slots == 1:
            capacity = self.slot_context
        shared = None if slots is None else False if slots == 1 else unified
        return Geometry(slots, self.slot_context, capacity, shared, "journal")

    def bytes_per_token(self) -> float | None:
        """Bytes of the pool's own cache by its cells; None where the size line is hidden."""
        cells = self.cells * (self.streams or 1) if self.cells is not None else self.context
        return self.pool_bytes / cells if self.pool_bytes is not None and cells else None

    def _is_unified(self) -> bool | None:
        if self.unified is not None:
            return self.unified
        if self.streams is not None:
            return self.streams == 1
        if self.single_buffer:
            return True
        return self.auto_unified

    def _capacity(self, slots: int | None, unified: bool | None) -> int | None:
        if self.cells is not None:
            return self.cells * (self.streams or 1)
        if self.context is not None:
            return self.context
        if self.capped_pool is not None and unified is not None:
            # When split, each slot has a buffer of its own, and the line names one of them.
            return self.capped_pool if unified else None if slots is None else self.capped_pool * slots
        if self.sized_pool is not None:
            return self.sized_pool
        if unified is None or self.slot_context is None:
            return None
        if unified:
            return self.slot_context
        return None if slots is None else self.slot_context * slots

    def _cache(self, event: ev.KvCacheSize) -> None:
        if not self._of_main_model():
            return
        self._add_bytes(event.total_bytes)
        # The second cache of a sliding-window model, and all further ones, are not the pool.
        if self.cells is None and not self._sliding:
            self.cells, self.streams = event.cells, event.streams
            self.single_buffer = event.streams is None
            self.pool_bytes = event.total_bytes
            self.cache_type_k, self.cache_type_v = event.k_type, event.v_type

    def _add_bytes(self, size: int) -> None:
        self.cache_bytes = (self.cache_bytes or 0) + size

    def _of_main_model(self) -> bool:
        """A draft model's context comes second; its lines describe another cache."""
        return self._contexts <= 1

    def _forget_model(self) -> None:
        kept = {name: getattr(self, name) for name in ("auto_slots", "auto_unified", "sized_pool", "_early")}
        fresh = StartupLog()
        for name in StartupLog.__slots__:
            setattr(self, name, kept.get(name, getattr(fresh, name)))


class PoolShape:
    """All that is known of one server's geometry, by source."""

    def __init__(self, configured: Geometry | None) -> None:
        self.startup = StartupLog()
        self.options: LaunchOptions | None = None
        self._configured = configured
        self._api_slots: int | None = None
        self._api_slot_context: int | None = None

    def api(self, slots: int | None, slot_context: int | None) -> None:
        """What the HTTP API shows."""
        self._api_slots = slots or self._api_slots
        self._api_slot_context = slot_context or self._api_slot_context

    def forget_api(self) -> None:
        """The process that the API was asked of is gone."""
        self._api_slots = self._api_slot_context = None

    def geometry(self) -> Geometry:
        """What the sources together tell."""
        log = self.startup.geometry()
        launch = None
        if self.options is not None:
            launch = geometry_from_launch(
                self.options,
                slots=log.slots if log.slots is not None else self._api_slots,
                slot_context=log.slot_context if log.slot_context is not None else self._api_slot_context,
                training_context=self.startup.training_context,
            )
        return merge(self._configured, log, launch, geometry_from_api(self._api_slots, self._api_slot_context))


def merge(*sources: Geometry | None) -> Geometry:
    """The sources' knowledge together, field by field, earlier ones first.

    `source` names the one that gave the capacity; while that is unknown, the first that told anything.
    """
    slots = slot_context = capacity = shared = source = None
    for geometry in sources:
        if geometry is None:
            continue
        gives_capacity = capacity is None and geometry.capacity is not None
        tells = geometry.slots is not None or geometry.slot_context is not None or geometry.shared is not None
        if gives_capacity or (source is None and tells):
            source = geometry.source
        slots = geometry.slots if slots is None else slots
        slot_context = geometry.slot_context if slot_context is None else slot_context
        capacity = geometry.capacity if capacity is None else capacity
        shared = geometry.shared if shared is None else shared
    return _complete(Geometry(slots, slot_context, capacity, shared, source))


def _complete(geometry: Geometry) -> Geometry:
    """Fill in what follows from fields that came from different sources."""
    if geometry.capacity is None and geometry.slot_context is not None and geometry.slots is not None:
        if geometry.slots == 1:
            return replace(geometry, capacity=geometry.slot_context, shared=False)
        if geometry.shared is False:
            return replace(geometry, capacity=geometry.slot_context * geometry.slots)
    return geometry
