"""Which lines of a log the books of a diagnosis need: most change nothing there, and are dropped as soon as recognised.

For long journals. Pure. What is dropped leaves a `LogBook` exactly as it was, but for what running requests needed at
what time, and as long as the clock is not set back between two lines.
A sieve may begin anywhere in a log: until it knows better, it lets everything through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvexporter.llama import events as ev
from kvexporter.llama.access_log import Asked, client_address
from kvexporter.llama.events import LogLine
from kvexporter.llama.log import parse_line, parse_lines

_FAILED = 400
"""HTTP status codes from here on are errors."""


# What an event does to a server's cascades and books; those without a role are always let through.
_OPENS, _STEP, _LIFE, _LAUNCH, _IDLE, _ANEW, _STOPS, _MUTE, _ASKED = range(1, 10)

_ROLES: dict[type, int] = {
    # They begin or continue what a later line may end.
    **dict.fromkeys(
        (ev.Released, ev.BatchUnplaced, ev.BatchRetried, ev.ContextExceeded, ev.RequestFailed, ev.DecodeFailed), _OPENS
    ),
    # Signs of getting on: the first after something was opened tells all that the next ones do.
    **dict.fromkeys((ev.GenerationTick, ev.Timing, ev.TimingHeader, ev.PromptProgress), _STEP),
    # Signs of having left everything behind: after one of them, neither they nor steps tell anything.
    **dict.fromkeys((ev.PromptReused, ev.PromptDone), _LIFE),
    **dict.fromkeys((ev.TaskLaunched, ev.PromptStarted), _LAUNCH),
    ev.AllSlotsIdle: _IDLE,
    **dict.fromkeys((ev.ProcessStarting, ev.ModelLoading, ev.Sleeping), _ANEW),
    ev.Stopping: _STOPS,
    **dict.fromkeys((ev.ModelLoaded, ev.Listening, ev.Waking, ev.SlotCleared, ev.SlotChosen), _MUTE),
    ev.HttpRequest: _ASKED,
}
_role = _ROLES.get


@dataclass(slots=True)
class _State:
    """How much of one server's log is known to be settled."""

    opened: bool = True
    """Something was opened, or may have been before the sieve began, and no sign of life came since."""
    stepped: bool = False
    """A sign of getting on came since."""
    idle: bool = False
    """All slots are idle as far as the books know."""


@dataclass(slots=True)
class Sieve:
    """Sees each line of a journal in order, and gives those that the books need."""

    thorough: bool = False
    """Drop nothing that says something: all lines together also tell what the running requests needed when."""
    _states: dict[int | None, _State] = field(default_factory=dict)
    _own: _State = field(default_factory=_State)

    def __call__(self, message: bytes) -> LogLine | Asked | None:
        """Give what the line says if the books need it."""
        line = parse_line(message)
        return None if line is None else self._needed(line, message)

    def sift(self, messages: Sequence[bytes]) -> list[LogLine | Asked | None]:
        """Give the same for some lines in a row."""
        needed = self._needed
        return [
            None if line is None else needed(line, message)
            for line, message in zip(parse_lines(messages), messages, strict=True)
        ]

    def _needed(self, line: LogLine, message: bytes) -> LogLine | Asked | None:
        role = _role(type(line.event))
        if self.thorough and role != _ASKED:
            return line
        if role is None or line.mentions_context_error:
            if role == _OPENS:
                self._open(self._state(line.child_port))
            return line
        state = self._own if line.child_port is None else self._state(line.child_port)
        if role == _STEP:
            if not state.opened or state.stepped:
                return None
            state.stepped = True
        elif role in (_LIFE, _MUTE):
            if not state.opened:
                return None
            state.opened = role == _MUTE
        elif role == _OPENS:
            self._open(state)
        elif role == _ASKED:
            return _asked(line, message)
        elif role == _LAUNCH:
            state.opened = state.idle = False
        elif role == _IDLE:
            if state.idle and not state.opened:
                return None
            state.opened, state.idle = False, True
        else:
            state.opened = False
            state.idle = state.idle or role == _ANEW
        return line

    def _state(self, port: int | None) -> _State:
        if port is None:
            return self._own
        state = self._states.get(port)
        if state is None:
            state = self._states[port] = _State()
        return state

    def _open(self, state: _State) -> None:
        state.opened, state.stepped = True, False


def _asked(line: LogLine, message: bytes) -> Asked | None:
    event = line.event
    if type(event) is not ev.HttpRequest or event.method != "POST":
        return None  # only what is posted can hold tokens; the rest are pages and polls
    address = client_address(message)
    return None if address is None else Asked(address, event.code >= _FAILED, line.child_port)
