"""One server's polling: a task that asks what the policy says is due and hands every answer on."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from kvexporter.bell import Bell
from kvexporter.facts import Endpoint, PollReason
from kvexporter.polling import Failures, PollPolicy, PollView, ServerHints, last_asked
from kvexporter.sources.llama_api import DEADLINES, KEPT_SECONDS, ApiAnswer

logger = logging.getLogger("kvexporter.poll")

Deliver = Callable[[Endpoint, ApiAnswer], PollReason | None]
"""Takes every answer, failed ones too. Gives the reason if a body turned out not to be what it should (`malformed`)."""

_SHORTEST_SLEEP = 0.001
_AFTER_AN_ERROR = 5.0
_SAY_AGAIN = 600.0
"""Seconds before the same failure of the same endpoint is logged again after it had changed or gone away."""

_EXPECTED: frozenset[PollReason] = frozenset(("loading",))

_OF_THE_SERVER: frozenset[PollReason] = frozenset(("refused", "connection", "tls", "key_file"))
"""The same for all endpoints, and said of the first that fails so."""

_WHO = "is this a llama-server, and is url its base address?"

_REMEDIES: dict[tuple[Endpoint, PollReason], str] = {
    ("slots", "unsupported"): "start llama-server with --slots",
    ("metrics", "unsupported"): "start llama-server with --metrics",
    ("slots", "unauthorized"): "set api_key_file",
    ("metrics", "unauthorized"): "set api_key_file",
    ("props", "unauthorized"): "set api_key_file",
    ("slots", "malformed"): _WHO,
    ("health", "not_found"): _WHO,
    ("health", "redirect"): _WHO,
}


class Api(Protocol):
    """What the poller needs of `LlamaApi`."""

    async def get(self, endpoint: Endpoint, *, patience: float = 1.0) -> ApiAnswer: ...

    def rest(self) -> None: ...


class ServerPoller:
    """Polls one server until closed. Each has its own task and its own requests: none waits for another's server.

    `hints` is asked before every decision; whoever changes what it gives calls `wake`. `clock` must never go back.
    The api stays the caller's to close, after this.
    """

    def __init__(
        self,
        name: str,
        api: Api,
        policy: PollPolicy,
        hints: Callable[[], ServerHints],
        deliver: Deliver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._api = api
        self._policy = policy
        self._hints = hints
        self._deliver = deliver
        self._clock = clock
        self._woken = Bell()
        self._task: asyncio.Task[None] | None = None
        self._requests: dict[Endpoint, asyncio.Task[None]] = {}
        self._last_sent: dict[Endpoint, float] = {}
        self._failures: dict[Endpoint, Failures] = {}
        self._look_since = clock()
        self._last_hints = ServerHints()
        self._cpu_busy_since: float | None = None
        self._busy_since: float | None = None
        self._launched_at: float | None = None
        self._said: dict[tuple[str, str], float] = {}
        """When what was logged last: (endpoint, reason), or (what was done, error's type)."""
        self._complained: set[Endpoint] = set()

    def start(self) -> None:
        """Begin, on the running loop."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"poll {self._name}")

    def wake(self) -> None:
        """Decide again now: a hint has changed (a launch, sleep, the process's CPU time)."""
        self._woken.set()

    def launched(self, ago: float) -> None:
        """A task was launched so many seconds ago, as the log tells: its first token is not to be held up."""
        self._launched_at = self._clock() - max(0.0, ago)

    def look(self) -> None:
        """The last task ended: have one look at the slots, if that cannot keep the server awake."""
        self._look_since = self._clock()
        self._woken.set()

    def restarted(self) -> None:
        """The server is a new process: what failed or was switched off may work now, what is under way will not end."""
        self._failures.clear()
        self._last_sent.clear()
        for request in self._requests.values():
            request.cancel()
        self.look()

    async def aclose(self) -> None:
        """End at once; requests under way are broken off and not delivered."""
        tasks = [task for task in (self._task, *self._requests.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                pause = self._decide()
            except Exception as error:  # polling goes on whatever the hints did
                self._report_bug("polling", error)
                pause = _AFTER_AN_ERROR
            if pause > KEPT_SECONDS and not self._requests:
                self._api.rest()
            await self._woken.wait(max(pause, _SHORTEST_SLEEP))

    def _decide(self) -> float:
        """Send what is due. Gives the seconds until the next decision."""
        view = self._view()
        due, again = self._policy.decide(view)
        for endpoint in sorted(due):
            self._last_sent[endpoint] = view.now
            question = self._ask(endpoint, self._policy.patience(view, endpoint))
            request = asyncio.create_task(question, name=f"poll {self._name} /{endpoint}")
            request.add_done_callback(partial(self._ended, endpoint))
            self._requests[endpoint] = request
        if due:
            again = self._policy.next_time(replace(view, in_flight=frozenset(self._requests)))
        return again - view.now

    def _view(self) -> PollView:
        now = self._clock()
        hints = self._hints()
        before, self._last_hints = self._last_hints, hints
        if hints.cpu_busy and not before.cpu_busy:
            self._cpu_busy_since = now
        if hints.busy and not before.busy and not self._waits():
            self._busy_since = now
        if (before.busy and not hints.busy) or (before.cpu_busy and not hints.cpu_busy):
            self._look_since = now
        return PollView(
            now=now,
            hints=hints,
            last_sent=self._last_sent,
            in_flight=frozenset(self._requests),
            failures=self._failures,
            look_since=self._look_since,
            cpu_busy_since=self._cpu_busy_since,
            busy_since=self._busy_since,
            launched_at=self._launched_at,
        )

    def _waits(self) -> bool:
        """The server was not asked since it became busy."""
        asked = last_asked(self._last_sent)
        return self._busy_since is not None and (asked is None or asked < self._busy_since)

    async def _ask(self, endpoint: Endpoint, patience: float) -> None:
        reason: PollReason | None = "connection"
        detail = "an error of kvexporter's own"
        try:
            answer = await self._api.get(endpoint, patience=patience)
            reason, detail = answer.reason, answer.detail
            verdict = self._deliver(endpoint, answer)
            if reason is None and verdict is not None:
                reason, detail = verdict, "HTTP status 200, but not what this endpoint answers"
        except Exception as error:  # one bad answer must not end the polling
            self._report_bug(f"GET /{endpoint}", error)
            if reason is None:
                reason, detail = "malformed", "its answer could not be taken in"
        self._note(endpoint, reason, detail)

    def _ended(self, endpoint: Endpoint, request: asyncio.Task[None]) -> None:
        """A request's task is over, also one cancelled before its first step: only now may the next one be sent."""
        if self._requests.get(endpoint) is request:
            del self._requests[endpoint]
        self._woken.set()

    def _note(self, endpoint: Endpoint, reason: PollReason | None, detail: str) -> None:
        """Remember how it went, and say so when that is new."""
        before = self._failures.get(endpoint)
        now = self._clock()
        if reason is None:
            self._failures.pop(endpoint, None)
            if endpoint in self._complained:
                self._complained.discard(endpoint)
                logger.info("%s: GET /%s answers again", self._name, endpoint)
            return
        self._failures[endpoint] = Failures(reason, before.count + 1 if before else 1, now)
        same = ((each, reason) for each in DEADLINES) if reason in _OF_THE_SERVER else ((endpoint, reason),)
        said = max(self._said.get(kind, float("-inf")) for kind in same)
        if (before is not None and before.reason == reason) or now - said < _SAY_AGAIN:
            return
        self._said[endpoint, reason] = now
        self._complained.add(endpoint)
        remedy = _REMEDIES.get((endpoint, reason))
        logger.log(
            logging.INFO if reason in _EXPECTED else logging.WARNING,
            "%s: GET /%s fails (%s): %s%s",
            self._name,
            endpoint,
            reason,
            detail,
            f"; {remedy}" if remedy else "",
        )

    def _report_bug(self, what: str, error: Exception) -> None:
        """Log where it happened, now and then, but not the error's own words, which may quote an answer."""
        now, kind = self._clock(), (what, type(error).__name__)
        if now - self._said.get(kind, float("-inf")) < _SAY_AGAIN:
            return
        self._said[kind] = now
        where = "".join(traceback.format_tb(error.__traceback__))
        logger.error("%s: %s: unexpected %s\n%s", self._name, what, type(error).__name__, where)
