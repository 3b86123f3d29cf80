"""What to ask a llama-server and when: the decision alone, without a clock and without I/O.

Polling is never free for the server. `/slots` (every build) and `/metrics` (builds before b10519) restart the timer of
`--sleep-idle-seconds` and wake a server that sleeps; until b10428 both wait for the running decode, and a request that
waits holds one of the server's few HTTP threads, on older builds even after the client has gone; older builds log every
request. So the log leads: it says when tasks run, and only then is the server asked for more than a sign of life. See
`mode` for the cases, `PollPolicy` for the times.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvexporter.facts import Endpoint, PollReason
from kvexporter.paces import until_next

Mode = Literal["active", "idle", "sleeping", "loading", "router"]

LOADING_INTERVAL = 5.0
"""Seconds between looks at a server that loads its model or has not told its properties yet."""

PROPS_SECONDS = 300.0
"""Between looks at `/props` of a server whose log leads, once it has told them: what they tell changes with a start,
which the log tells, and after which they are asked for at once."""

LAUNCH_SECONDS = 0.25
"""Nothing that waits in the server's queue is asked so soon after a launch or release that the log tells, though it may
be due: it would hold up the first token, of this task or of the one that follows."""

METRICS_EVERY = 5
"""Intervals between looks at `/metrics` while `/slots` tells who runs: its totals are of no hurry, and each question
waits in the server's queue."""

_REFUSED_FOR_GOOD = 600.0
_UNAUTHORIZED = 60.0
_WAITING_BOUND = 5.0
_TRANSPORT_BOUND = 30.0
_MISCONFIGURED_BOUND = 60.0

_QUEUED: frozenset[Endpoint] = frozenset(("slots", "metrics"))
"""Endpoints that the server answers from its task queue: they wait for the running decode and count as activity."""

_UNREACHED: frozenset[PollReason] = frozenset(
    ("unauthorized", "loading", "timeout", "refused", "connection", "tls", "key_file")
)
"""Failures of `/slots` that `/metrics` would share."""

_PATIENCE_STEP = 4.0
_PATIENCE_BOUND = 60.0


@dataclass(frozen=True, slots=True)
class Failures:
    """An endpoint's failures since it last answered."""

    reason: PollReason
    """Of the latest one."""
    count: int
    at: float
    """When the latest one was over."""


@dataclass(frozen=True, slots=True)
class ServerHints:
    """What is known of a server without asking it. None: unknown."""

    busy: bool | None = None
    """A task is running, as a log that shows launches and releases tells; None without such a log."""
    cpu_busy: bool | None = None
    """Its process uses more CPU time than answering polls can explain (more than 5 % of a core); None when it cannot be
    seen."""
    slots_idle: bool | None = None
    """The last answer of `/slots` showed no running task."""
    sleeping: bool | None = None
    sleep_enabled: bool | None = None
    """Whether it may go to sleep when idle (`--sleep-idle-seconds`). False also when `/props` has no `is_sleeping` (a
    build that cannot sleep) or the operator says so (`may_sleep: false`). None: its options cannot be seen."""
    loading: bool = False
    slots_supported: bool | None = None
    metrics_supported: bool | None = None
    router: bool = False
    needs_props: bool = False
    """Something that only `/props` tells is not known yet."""


@dataclass(frozen=True, slots=True)
class PollView:
    """All that a decision rests on. Times are seconds of one clock that never goes back."""

    now: float
    hints: ServerHints = field(default_factory=ServerHints)
    last_sent: Mapping[Endpoint, float] = field(default_factory=dict)
    in_flight: frozenset[Endpoint] = frozenset()
    failures: Mapping[Endpoint, Failures] = field(default_factory=dict)
    """Only endpoints whose last answer was a failure."""
    look_since: float | None = None
    """When the last task ended or the server was first seen: one look at its slots after that is wanted."""
    cpu_busy_since: float | None = None
    """When `cpu_busy` last turned True."""
    busy_since: float | None = None
    """When `busy` first turned True since `/slots` or `/metrics` was asked for last."""
    launched_at: float | None = None
    """When the latest task was launched, by the log."""


def last_asked(sent: Mapping[Endpoint, float]) -> float | None:
    """When the server was last asked for what waits in its queue; None if never."""
    return max((sent[endpoint] for endpoint in _QUEUED if endpoint in sent), default=None)


def mode(view: PollView) -> Mode:
    """How a server is treated.

    - router: `/health` and `/models` only; its models' processes are servers of their own.
    - loading: `/health` only, everything else answers 503.
    - sleeping: `/health` and `/props`, which do not wake it.
    - active: also `/slots`, every interval, and `/metrics`, every fifth.
    - idle: `/health` and `/props` now and then; if it never sleeps, also one look at `/slots` and `/metrics` after the
      last task.

    Active is a server whose log says that a task runs. Without such a log its CPU time decides. Without that too (a
    server on another host) it is always active, but only if it is known that it never sleeps: else it is idle for ever,
    and the operator must say `may_sleep: false`. A server that may sleep and whose CPU time alone speaks for work is
    asked once, and again only while `/slots` confirms the work or after the next rise: CPU time can have other reasons.
    """
    hints = view.hints
    if hints.router:
        return "router"
    if hints.loading:
        return "loading"
    if hints.sleeping:
        return "sleeping"
    return "active" if _works(view) else "idle"


def _works(view: PollView) -> bool:
    hints = view.hints
    if hints.busy is not None:
        return hints.busy
    never_sleeps = hints.sleep_enabled is False
    if hints.cpu_busy is None:
        return never_sleeps
    if never_sleeps or not hints.cpu_busy or hints.slots_idle is False:
        return hints.cpu_busy
    asked = last_asked(view.last_sent)
    return asked is None or (view.cpu_busy_since is not None and asked < view.cpu_busy_since)


def _known(*times: float | None) -> list[float]:
    return [time for time in times if time is not None]


class PollPolicy:
    """The times. `interval`: seconds between polls of an active server; `idle_interval`: of signs of life.

    `name` (the server's) spreads the retries of many servers, the same way in every run.
    """

    def __init__(self, interval: float = 1.0, idle_interval: float = 30.0, name: str = "") -> None:
        if not 0 < interval <= idle_interval:
            raise ValueError(
                f"poll intervals must be above 0 and the idle one not shorter: {interval}, {idle_interval}"
            )
        self.interval = interval
        self.idle_interval = idle_interval
        self._name = name

    def due(self, view: PollView) -> frozenset[Endpoint]:
        """The endpoints to be asked now; never one that has not answered the last request."""
        return self.decide(view)[0]

    def next_time(self, view: PollView) -> float:
        """When to decide again at the latest; earlier if an answer or a new hint comes."""
        return self.decide(view)[1]

    def decide(self, view: PollView) -> tuple[frozenset[Endpoint], float]:
        """Both: what is due, and when to decide again as long as none of it is asked."""
        times = self._times(view)
        due = frozenset(endpoint for endpoint, time in times.items() if time <= view.now)
        return due, min((*times.values(), view.now + self.idle_interval))

    def patience(self, view: PollView, endpoint: Endpoint) -> float:
        """By what to multiply the endpoint's deadline.

        An older build inside a long decode answers when the decode is over. Asking again and again would leave one of
        the server's HTTP threads waiting for every request that was given up: better to ask seldom and wait long.
        """
        failure = view.failures.get(endpoint)
        if failure is None or failure.reason != "timeout" or endpoint not in _QUEUED:
            return 1.0
        return min(_PATIENCE_BOUND, _PATIENCE_STEP ** min(failure.count, 10))

    def _times(self, view: PollView) -> dict[Endpoint, float]:
        """When each endpoint is to be asked, those left out that are not to be asked or are being asked."""
        how = mode(view)
        times: dict[Endpoint, float] = {}
        times["health"] = self._sign(view, "health", LOADING_INTERVAL if how == "loading" else self.idle_interval)
        if how == "router":
            times["models"] = self._sign(view, "models", self.idle_interval)
        elif how != "loading":
            times["props"] = self._sign(view, "props", self._props_period(view, how))
        for endpoint in self._askable(view):
            if how == "active" or (how == "idle" and self._look_wanted(view, endpoint)):
                seldom = how == "active" and endpoint == "metrics" and view.hints.slots_supported is not False
                due = self._after(view, endpoint, self.interval * (METRICS_EVERY if seldom else 1))
                times[endpoint] = self._let_begin(view, how, endpoint, due)
        look = how == "idle" and "slots" in times and "slots" not in view.failures
        if look or times.get("slots", view.now + 1) <= view.now:
            times.pop("metrics", None)  # first the answer of /slots
        return {endpoint: time for endpoint, time in times.items() if endpoint not in view.in_flight}

    @staticmethod
    def _let_begin(view: PollView, how: Mode, endpoint: Endpoint, due: float) -> float:
        """When to ask for what is due, so that a task that begins is not held up.

        `LAUNCH_SECONDS` late at most, however often tasks begin and end meanwhile.
        """
        if view.hints.busy is None or endpoint in view.failures:
            return due
        wanted = [due] if endpoint in view.last_sent else []
        since = max([*wanted, *_known(view.busy_since)], default=due)
        changed = _known(view.launched_at, view.look_since if how == "idle" else None)
        return max(due, min(max(changed, default=-math.inf), since) + LAUNCH_SECONDS)

    def _props_period(self, view: PollView, how: Mode) -> float:
        log_leads = view.hints.busy is not None
        # Without a log only /props tells that a sleeper has been woken, and asking for it wakes nobody.
        if view.hints.needs_props or (how == "sleeping" and not log_leads):
            return min(LOADING_INTERVAL, self.idle_interval)
        return max(PROPS_SECONDS, self.idle_interval) if log_leads else self.idle_interval

    def _askable(self, view: PollView) -> list[Endpoint]:
        """Those of `/slots` and `/metrics` that the server has, `/metrics` only once `/slots` has answered.

        Both wait in the same queue, so asked together the second would only hold another of the server's threads.
        """
        endpoints: list[Endpoint] = []
        if view.hints.slots_supported is not False:
            endpoints.append("slots")
            failure = view.failures.get("slots")
            if "slots" in view.in_flight or (failure is not None and failure.reason in _UNREACHED):
                return endpoints
        if view.hints.metrics_supported is not False:
            endpoints.append("metrics")
        return endpoints

    @staticmethod
    def _look_wanted(view: PollView, endpoint: Endpoint) -> bool:
        if view.hints.sleep_enabled is not False or view.look_since is None:
            return False
        sent = view.last_sent.get(endpoint)
        return sent is None or sent < view.look_since or endpoint in view.failures

    def _sign(self, view: PollView, endpoint: Endpoint, period: float) -> float:
        """When a sign of life is due: at the next multiple of its period, together with the daemon's other steps."""
        sent = view.last_sent.get(endpoint)
        return self._after(view, endpoint, period if sent is None else until_next(period, sent))

    def _after(self, view: PollView, endpoint: Endpoint, period: float) -> float:
        failure = view.failures.get(endpoint)
        if failure is not None:
            return failure.at + self._pause(endpoint, failure)
        sent = view.last_sent.get(endpoint)
        return view.now if sent is None else sent + period

    def _pause(self, endpoint: Endpoint, failure: Failures) -> float:
        """Seconds to leave an endpoint alone after it failed."""
        match failure.reason:
            case "unsupported" | "not_found":
                return _REFUSED_FOR_GOOD  # a restart of the server ends this at once
            case "unauthorized":
                return _UNAUTHORIZED  # the server logs a warning for each
            case "loading":
                return LOADING_INTERVAL
            case "timeout" if endpoint in _QUEUED:
                bound = _WAITING_BOUND  # most likely alive and decoding; see patience
            case "timeout" | "refused" | "connection":
                bound = _TRANSPORT_BOUND
            case _:
                bound = _MISCONFIGURED_BOUND
        pause = min(bound, self.interval * 2.0 ** min(failure.count - 1, 10))
        spread = zlib.crc32(f"{self._name}/{endpoint}/{failure.count}".encode()) / 2**32
        return max(self.interval, pause * (1 - 0.25 * spread))
