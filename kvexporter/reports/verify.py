"""Looks at a running llama-server after a change: one tiny completion, and how its pool really is.

Asks nothing that wakes a sleeping server or loads a model unless that is allowed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from kvexporter.geometry import merge
from kvexporter.llama.errors import MalformedBody, parse_error
from kvexporter.llama.geometry import geometry_from_api, geometry_from_launch
from kvexporter.llama.props import Props, RouterModel, parse_models, parse_props
from kvexporter.llama.slots import parse_slots
from kvexporter.pool_geometry import Geometry
from kvexporter.read_once import read_journal
from kvexporter.reports.findings import Finding
from kvexporter.reports.verify_words import Expected, compare
from kvexporter.sources.api_target import ApiTarget
from kvexporter.sources.journal_library import JournalUnavailableError
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.sources.one_request import Answered, request
from kvexporter.targets import Target

_RETRY_SECONDS = 0.5
_PROPS_SECONDS = 10.0
_NOT_READY = (None, 503)
"""Nothing answers yet, or the model is being loaded."""


class CouldNotAsk(Exception):  # noqa: N818 - named for what it is
    """The server could not be asked; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be verified, and what may be done for it."""

    expected: Expected = field(default_factory=Expected)
    deadline: float = 60.0
    """Seconds for all of it, waiting for the server to be ready included."""
    completion: bool = True
    wake: bool = False
    """It may be woken, or its model loaded."""
    model: str | None = None
    """Which of a router's models."""


class _Completion(msgspec.Struct):
    tokens_predicted: int = 0


_completion = msgspec.json.Decoder(_Completion)


async def verify(target: Target, running: Callable[[], Sequence[Target]], wanted: Wanted) -> list[Finding]:
    """Look at the server. Raises CouldNotAsk.

    `running` lists the servers of this host, among them a router's children; may raise OSError.
    """
    if target.api is None:
        raise CouldNotAsk(f"the address of {target.name} is not known: say --url")
    looking = _Looking(target.api, wanted, time.monotonic() + wanted.deadline)
    props = await looking.ready()
    findings: list[Finding] = []
    router: Target | None = None
    if props.router:
        router, target = target, Target(await looking.routed(target))
    elif wanted.model is not None:
        raise CouldNotAsk(f"{target.name} is no router: leave --model away")
    elif props.sleeping and not wanted.wake:
        raise CouldNotAsk(f"{target.name} is asleep, and asking would load its model again: allow that with --wake")
    if wanted.completion:
        findings.append(await looking.complete(target.name))
        if findings[-1].level == "problem":
            return findings
    api = await looking.geometry()
    if router is not None:
        target = _child(router, target.name, running)
    log, problem = await asyncio.to_thread(_logged, target)
    if problem is not None:
        findings.append(Finding("warning", target.name, f"its log is not read: {problem}"))
    launch = None
    if target.options is not None:
        launch = geometry_from_launch(
            target.options, slots=api.slots, slot_context=api.slot_context, training_context=None
        )
    found = merge(log, launch, api)
    # What it says now is true now; its log may be of an earlier start.
    found = replace(found, slots=api.slots or found.slots, slot_context=api.slot_context or found.slot_context)
    compared, unknown = compare(target.name, wanted.expected, found)
    findings += compared
    if unknown:
        raise CouldNotAsk(
            f"{' and '.join(unknown)} of {target.name} cannot be read from here: run it on the server's host with "
            "--unit, as a user who may read its log"
        )
    return findings


class _Looking:
    """The requests of one look, all within one deadline."""

    def __init__(self, api: ApiTarget, wanted: Wanted, until: float) -> None:
        self._api = api
        self._wanted = wanted
        self._until = until
        self._query: dict[str, str] = {}
        """Names a router's model, and never loads it."""

    async def ready(self) -> Props:
        """Wait until it answers for its properties."""
        while True:
            answer = await request(self._api, "props", min(self._left(), _PROPS_SECONDS))
            if answer.status not in _NOT_READY or answer.hopeless or not self._waits():
                return self._props(answer)
            await asyncio.sleep(_RETRY_SECONDS)

    async def routed(self, router: Target) -> str:
        """Have all further requests go to the model that is asked for; the name of its server."""
        model = self._wanted.model
        if model is None:
            raise CouldNotAsk(f"{router.name} is a router: say which --model")
        while True:
            found = await self._model(router, model)
            if found.status != "loading" or not self._waits():
                break
            await asyncio.sleep(_RETRY_SECONDS)
        if found.status != "loaded" and not (self._wanted.wake and self._wanted.completion):
            allow = "--wake" if self._wanted.completion else "--wake, without --no-completion"
            state = found.status or "in an unknown state"
            raise CouldNotAsk(f"model {model} of {router.name} is {state}: have it loaded with {allow}")
        self._query = {"model": model, "autoload": "false"}
        return f"{router.name}:{model}"

    async def _model(self, router: Target, model: str) -> RouterModel:
        answer = await request(self._api, "models", self._left())
        try:
            models = parse_models(answer.body) if answer.status == 200 else ()
        except MalformedBody as error:
            raise CouldNotAsk(f"{self._api.base_url}/models: {error.reason}") from None
        found = next((each for each in models if each.id == model), None)
        if found is None:
            known = ", ".join(each.id for each in models[:20]) or "none"
            raise CouldNotAsk(f"{router.name} has no model {model!r}; it has: {known}")
        return found

    async def complete(self, name: str) -> Finding:
        """Have one token generated."""
        payload: dict[str, object] = {"prompt": "a", "n_predict": 1, "temperature": 0, "cache_prompt": False}
        if self._query:
            payload["model"] = self._query["model"]
        began = time.monotonic()
        answer = await request(self._api, "completion", self._left(), payload=payload)
        if answer.status is None:
            raise CouldNotAsk(
                f"{name}: the completion came to nothing: {answer.problem} (a busy server lets it wait: --deadline)"
            )
        if answer.status == 401 or (answer.problem and answer.status != 200):
            raise CouldNotAsk(f"{name}: the completion was refused: {_why(answer)}")
        if answer.status != 200:
            return Finding("problem", name, f"the completion failed: {_why(answer)}", "look at the server's own log")
        try:
            predicted = _completion.decode(answer.body).tokens_predicted
        except (msgspec.DecodeError, ValueError):
            predicted = 0
        if predicted < 1:
            return Finding("problem", name, "the completion gave no token", "is it a model that generates text?")
        return Finding("ok", name, f"a completion of one token took {time.monotonic() - began:.2f} s")

    async def geometry(self) -> Geometry:
        """What `/props` and `/slots` tell, now that it is awake if it may be."""
        props = self._props(await request(self._api, "props", self._left(), query=self._query))
        slots, window = props.total_slots, props.slot_context
        if self._wanted.completion:
            answer = await request(self._api, "slots", self._left(), query=self._query)
            try:
                samples = parse_slots(answer.body) if answer.status == 200 else ()
            except MalformedBody:
                samples = ()
            windows = {sample.context for sample in samples if sample.context is not None}
            slots = len(samples) or slots
            window = min(windows) if windows else window
        return geometry_from_api(slots, window)

    def _props(self, answer: Answered) -> Props:
        where = f"{self._api.base_url}/props"
        if answer.status != 200:
            raise CouldNotAsk(f"{where}: {_why(answer)}")
        try:
            return parse_props(answer.body)
        except MalformedBody as error:
            raise CouldNotAsk(f"{where}: {error.reason}") from None

    def _waits(self) -> bool:
        """Whether there is time for another attempt."""
        return time.monotonic() + _RETRY_SECONDS < self._until

    def _left(self) -> float:
        return max(1.0, self._until - time.monotonic())


def _child(router: Target, name: str, running: Callable[[], Sequence[Target]]) -> Target:
    """The process of a router's model, as far as it is seen here. Its lines are in the router's log."""
    try:
        child = next((each for each in running() if each.child_of == router.name and each.name == name), None)
    except OSError:
        child = None
    return replace(child, selection=router.selection) if child is not None else Target(name)


def _why(answer: Answered) -> str:
    """Why an answer is not a good one, without a word of its text."""
    if answer.problem:
        return answer.problem
    if answer.status == 401:
        return "it demands an API key: say --api-key-file"
    if answer.status == 503:
        return "its model is still being loaded: give it a longer --deadline"
    kind = parse_error(answer.body)
    return f"HTTP status {answer.status}{f' ({kind})' if kind is not None else ''}"


def _logged(target: Target) -> tuple[Geometry | None, str | None]:
    """What the log of the current run says, or why it cannot be read."""
    selection = target.selection
    if selection is None:
        return None, None
    about = (selection.about if isinstance(selection, JournalSelection) else None) or target.name
    try:
        servers = read_journal(selection, about, seek="invocation")
    except (JournalUnavailableError, OSError) as error:
        return None, str(error)
    wanted = about if target.child_of is None else f"{about}:{target.port}"
    server = next((each for each in servers if each.name == wanted), None)
    return (server.memory().startup.geometry(), None) if server is not None else (None, None)
