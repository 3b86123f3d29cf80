"""Whether one server is ready, loading, sleeping or down: the log, the polls and the process together."""

from __future__ import annotations

from kvexporter.facts import Endpoint, PollReason
from kvexporter.llama import events as ev
from kvexporter.snapshot import ServerState

_SOMETHING_ELSE: frozenset[PollReason] = frozenset(
    ("not_found", "unsupported", "http_error", "redirect", "too_large", "malformed")
)
"""What `/health` of a llama-server never answers: another program listens there, or the address is wrong."""

_TIMEOUTS_OF_A_DEAD_SERVER = 3

_TELLING = frozenset(
    {
        ev.ProcessStarting,
        ev.ModelLoading,
        ev.ModelLoaded,
        ev.TaskLaunched,
        ev.PromptStarted,
        ev.PoolInitialized,
        ev.SlotsInitializing,
        ev.Listening,
        ev.Sleeping,
        ev.Waking,
        ev.Stopping,
    }
)
"""Events that tell the state; the others are many more."""

_OF_A_TASK = frozenset({ev.PromptProgress, ev.PromptDone, ev.GenerationTick, ev.Released})
"""Events that only a working server logs."""


class Availability:
    """The state of one server. None: nothing is known yet."""

    def __init__(self) -> None:
        self.state: ServerState | None = None
        self.up: bool | None = None
        self._waking = False
        self._timeouts = 0
        self._process: bool | None = None
        self._told = False
        """The log told the state of the process that runs now."""

    def log(self, event: ev.Event) -> None:
        """Take one event of the log."""
        if type(event) not in _TELLING:
            if self._timeouts and self.state == "down" and type(event) in _OF_A_TASK:
                self._is("ready")  # it answered nothing, and yet it works
            return
        match event:
            case ev.ProcessStarting() | ev.ModelLoading():
                self._is("loading")
            case ev.ModelLoaded() | ev.TaskLaunched() | ev.PromptStarted():
                self._is("ready")
            case ev.PoolInitialized() | ev.SlotsInitializing():
                # At a first start the model is not loaded yet; after sleep no further line comes.
                self._is("ready" if self._waking or self.state is None else "loading")
            case ev.Listening(_, _, True):
                self._is("ready")
            case ev.Sleeping():
                self._is("sleeping")
            case ev.Waking():
                self._waking = True
                self.state = "loading"
            case ev.Stopping():
                self.stopped()

    def started(self) -> None:
        """Systemd started the unit."""
        if self.state in (None, "down"):
            self.state = "loading"

    def stopped(self) -> None:
        """The process is gone."""
        self.state, self.up, self._waking, self._process, self._told = "down", False, False, None, False

    def process(self, alive: bool) -> None:
        """/proc was looked at."""
        if not alive:
            self.stopped()
            return
        if self._process is not True and self.state == "down":
            self.state = None  # a new process, of which nothing else is known yet
        self._process = True

    def answered(self, *, loading: bool = False, sleeping: bool | None = None) -> None:
        """An endpoint answered; `sleeping` where it tells that."""
        self.up, self._timeouts = True, 0
        if loading:
            self.state = "loading"
        elif sleeping is True:
            self.state = "sleeping"
        elif sleeping is False or self.state in (None, "down", "loading"):
            self.state, self._waking = "ready", False

    def failed(self, reason: PollReason, endpoint: Endpoint = "health") -> None:
        """An endpoint did not answer as it should."""
        if reason == "loading":
            self.answered(loading=True)
        elif reason == "unauthorized":
            self.up, self._timeouts = True, 0  # it has a key
            if self.state in (None, "down"):
                self.state = "ready"
        elif reason in _SOMETHING_ELSE:
            self._foreign(endpoint)
        elif reason == "refused":
            if self._process is not True:
                self.stopped()
            else:
                # The process lives and does not listen there: it starts or stops, or the address is wrong.
                self.up = False
                self.state = self.state or "loading"
        elif reason in ("timeout", "connection", "tls"):
            # Older builds answer nothing but /health while they decode, and some not even that: silence alone does not
            # mean that a living process is down.
            self._timeouts += endpoint == "health"
            if self._process is not True and self._timeouts >= _TIMEOUTS_OF_A_DEAD_SERVER:
                self.stopped()

    def _foreign(self, endpoint: Endpoint) -> None:
        """Something answered that is no llama-server; an endpoint other than `/health` may be missing or off."""
        if endpoint != "health":
            return
        self.up, self._timeouts = False, 0
        if not self._told and self._process is not True:
            self.state = None

    def _is(self, state: ServerState) -> None:
        self.state, self.up, self._told = state, True, True
        if state == "ready":
            self._waking = False
