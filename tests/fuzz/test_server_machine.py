"""Every fact in every order, with times that go back: the model stays sane and only adds."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvexporter import facts
from kvexporter.intake import take_answer
from kvexporter.llama import events as ev
from kvexporter.llama.launch import parse_launch
from kvexporter.llama.log import parse_line
from kvexporter.pool_geometry import Geometry
from kvexporter.server import Server
from tests.fuzz import corpus
from tests.fuzz.budget import fuzz_settings
from tests.fuzz.invariants import assert_bounded, assert_only_grew, assert_renderable, assert_sane, counts
from tests.fuzz.mutations import mutated_bytes, mutated_json, mutated_lines

SLOTS = st.sampled_from((0, 1, 2, 3, 3, 255, 1023, 1024, 9999))
TASKS = st.none() | st.integers(0, 12) | st.just(10**12 - 1)
TOKENS = st.integers(0, 9000) | st.sampled_from((0, 1, 2**20, 10**12 - 1))
PARTS = st.sampled_from((0.0, 0.001, 0.1, 0.62, 1.0))
WORDS = st.sampled_from(("KILL", "127", "oom-kill", "a" * 256, "\ud800", "", "\n"))

EVENTS: st.SearchStrategy[ev.Event] = st.one_of(
    st.builds(ev.TaskLaunched, SLOTS, TASKS, st.booleans()),
    st.builds(ev.SlotChosen, SLOTS, PARTS, PARTS, st.sampled_from((0.001, 1.0))),
    st.builds(ev.PromptStarted, SLOTS, TASKS, TOKENS, TOKENS),
    st.builds(ev.PromptReused, SLOTS, TASKS, TOKENS),
    st.builds(ev.PromptProgress, SLOTS, TASKS, TOKENS, st.sampled_from((0.0, 0.01, 0.62, 1.0, 999.0)), st.just(0.01)),
    st.builds(ev.PromptDone, SLOTS, TASKS, TOKENS),
    st.builds(ev.GenerationTick, SLOTS, TASKS, TOKENS, st.none() | st.just(5.0)),
    st.builds(ev.Released, SLOTS, TASKS, TOKENS, st.booleans()),
    st.builds(ev.ContextShifted, SLOTS, TASKS, TOKENS),
    st.builds(ev.SlotPurged, SLOTS, TOKENS),
    st.builds(ev.SlotCleared, SLOTS, TOKENS),
    st.builds(ev.BatchUnplaced, st.none() | TOKENS),
    st.builds(ev.BatchRetried, st.none() | st.integers(-5, 600), TOKENS),
    st.builds(ev.ContextExceeded, st.none() | st.integers(-5, 600), st.booleans()),
    st.builds(ev.RequestFailed, TASKS, st.sampled_from(("pool", "slot", "other")), st.none() | TOKENS),
    st.builds(ev.PoolInitialized, SLOTS, TOKENS, st.booleans()),
    st.builds(ev.TaskCancelled, TASKS),
    st.sampled_from(
        (ev.DecodeFailed(), ev.AllSlotsIdle(), ev.Sleeping(), ev.Waking(), ev.Stopping(), ev.ModelLoading("m"),
         ev.ModelLoaded(), ev.ProcessStarting("b1"), ev.Listening("127.0.0.1", 8080, False), ev.Verbosity(0),
         ev.SlotsInitializing(4), ev.SlotContext(0, 4096), ev.KvUnified(True), ev.ContextSize(4096))
    ),
)  # fmt: skip

UNIT_EVENTS: st.SearchStrategy[facts.UnitEvent] = st.one_of(
    st.builds(facts.UnitExited, WORDS, WORDS),
    st.builds(facts.UnitFailed, WORDS),
    st.builds(facts.UnitRestartScheduled, st.none() | st.integers(0, 10**18)),
    st.builds(facts.LinesSuppressed, st.integers(0, 2**40)),
    st.sampled_from(
        (facts.UnitStarted(), facts.UnitStopping(), facts.UnitStopped(), facts.UnitNotStarted(), facts.UnitStarting())
    ),
    st.just(facts.UnitOutOfMemory()),
)

SAMPLES = st.none() | st.builds(
    facts.ProcessSample, st.integers(1, 3), st.sampled_from((1.0, 2.0)), st.just(1.0), st.just(1)
)

GEOMETRIES = st.none() | st.builds(
    Geometry, st.none() | st.just(4), st.none() | st.just(4096), st.none() | st.just(4096), st.none() | st.booleans(),
    st.just("config"),
)  # fmt: skip


class ServerMachine(RuleBasedStateMachine):
    """One server, told anything."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server("s", unit="s.service")
        self.at = 1.7e9
        self.before: dict[Any, float] = {}
        self.facts = 0

    @precondition(lambda self: self.facts == 0)
    @rule(geometry=GEOMETRIES)
    def configured(self, geometry: Geometry | None) -> None:
        self.server = Server("s", unit="s.service", configured=geometry)

    @rule(delay=st.sampled_from((0.0, 0.01, 1.0, 2.5, 61.0, 1e6, -0.5, -10.0, -1e6, -1e10, 1e10)))
    def time_passes(self, delay: float) -> None:
        self.at += delay

    @rule(event=EVENTS, mentions=st.booleans())
    def event(self, event: ev.Event, mentions: bool) -> None:
        self.server.line(ev.LogLine(event, mentions), self.at)

    @rule(lines=st.lists(mutated_lines(1), min_size=1, max_size=5))
    def lines(self, lines: list[bytes]) -> None:
        for line in lines:
            parsed = parse_line(line)
            if parsed is not None:
                self.server.line(parsed, self.at)

    @rule(event=UNIT_EVENTS)
    def unit_event(self, event: facts.UnitEvent) -> None:
        self.server.unit_event(event, self.at)

    @rule(endpoint=st.sampled_from(("slots", "props")), data=st.data())
    def answer(self, endpoint: Any, data: st.DataObject) -> None:
        take_answer(self.server, endpoint, data.draw(mutated_json(corpus.bodies(endpoint))), self.at)

    @rule(body=mutated_bytes(corpus.bodies("metrics")))
    def metrics(self, body: bytes) -> None:
        take_answer(self.server, "metrics", body, self.at)

    @rule(sleeping=st.none() | st.booleans())
    def health(self, sleeping: bool | None) -> None:
        self.server.health_polled(self.at, sleeping=sleeping)

    @rule(endpoint=st.sampled_from(get_args(facts.Endpoint)), reason=st.sampled_from(get_args(facts.PollReason)))
    def failure(self, endpoint: facts.Endpoint, reason: facts.PollReason) -> None:
        self.server.poll_failed(endpoint, reason, self.at)

    @rule(sample=SAMPLES)
    def process(self, sample: facts.ProcessSample | None) -> None:
        self.server.process_seen(sample, self.at)

    @rule(arguments=st.sampled_from(corpus.commands()))
    def launched(self, arguments: tuple[str, ...]) -> None:
        self.server.launched_with(parse_launch(arguments, {}))

    @rule(quiet=st.sampled_from((0.0, 3.0)))
    def tick(self, quiet: float) -> None:
        self.server.tick(self.at, quiet=quiet)

    @rule()
    def conclude(self) -> None:
        self.server.conclude()

    @invariant()
    def sane_and_growing(self) -> None:
        self.facts += 1
        for at in (self.at, 0.0, self.at + 30.0):
            assert_sane(self.server.snapshot(at))
        now = counts(self.server.snapshot(self.at))
        assert_only_grew(self.before, now)
        self.before = now

    def teardown(self) -> None:
        assert_bounded(self.server)
        assert_renderable([self.server.snapshot(self.at)], self.at)


TestServer = ServerMachine.TestCase
TestServer.settings = fuzz_settings(1)
