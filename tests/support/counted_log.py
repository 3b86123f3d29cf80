"""Recorded runs of a server written into a journal, and what a person with grep would count in the lines written."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

from tests.support.paths import RECORDINGS, wait_for
from tests.support.scrape import Scrape

RUNS = ("unified_overflow", "idle_purge", "client_cancels", "prompt_too_long")
"""Recordings of one build; together they have each kind of count."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""

_ERROR = "Context size has been exceeded"


def runs() -> list[list[str]]:
    """The recorded runs' lines."""
    return [(RECORDINGS / "b11434" / name / "server.log").read_text().splitlines() for name in RUNS]


def series(name: str, **labels: str) -> Series:
    return name, tuple(sorted(labels.items()))


def count(lines: Sequence[str]) -> Counter[Series]:
    """What the exporter must count in one whole run, found by plain searching: nothing of the exporter is used."""
    found: Counter[Series] = Counter()

    def add(pattern: str, name: str, **labels: str) -> list[re.Match[str]]:
        matches = [match for line in lines if (match := re.search(pattern, line))]
        found[series(name, **labels)] += len(matches)
        return matches

    add(_ERROR, "llama_context_exceeded_log_lines_total")
    add(rf"decode\(\) failed: {_ERROR}", "llama_context_exceeded_total", cause="pool")
    add(rf"send_error: task id = \d+, error: {_ERROR}", "llama_context_exceeded_requests_total", cause="pool")
    for name in ("llama_context_exceeded_total", "llama_context_exceeded_requests_total"):
        add(r"request \(\d+ tokens\) exceeds the available context size", name, cause="slot")
    add("failed to find a memory slot", "llama_kv_pressure_lines_total")
    released = add(r" release: .* n_tokens = (\d+)", "llama_request_tokens_count")
    found[series("llama_request_tokens_sum")] += sum(int(match[1]) for match in released)
    add(r" release: .* truncated = 1", "llama_answers_truncated_total")
    prompts = add(r" prompt eval time = .* / +(\d+) tokens", "llama_prompt_tokens_per_second_count")
    found[series("llama_request_prompt_tokens_count")] += len(prompts)
    found[series("llama_request_prompt_tokens_sum")] += sum(int(match[1]) for match in prompts)
    add(r" {5,}eval time = ", "llama_generation_tokens_per_second_count")
    cancelled = {match[1] for line in lines if (match := re.search(r"cancel task, id_task = (\d+)", line))}
    failed = {match[1] for line in lines if (match := re.search(r"send_error: task id = (\d+)", line))}
    found[series("llama_requests_cancelled_total")] += len(cancelled - failed)
    return found


ALWAYS_ZERO = (
    "llama_kv_recoveries_total",
    "llama_slot_purges_total",
    "llama_slot_purged_tokens_total",
    "llama_context_shifts_total",
)
"""Counts of what none of the runs has."""


def differences(expected: Counter[Series], shown: Scrape, gaps: int = 0) -> dict[str, tuple[float, float | None]]:
    """Series that are not what they must be: expected and shown."""
    wrong: dict[str, tuple[float, float | None]] = {}
    for (name, labels), value in expected.items():
        got = shown.value(name, server="s", **dict(labels))
        if got != value:
            wrong[f"{name}{dict(labels)}"] = (value, got)
    if (got := shown.value("kvexporter_journal_gaps_total")) != gaps:
        wrong["kvexporter_journal_gaps_total"] = (gaps, got)
    for name in ALWAYS_ZERO:
        found = [value for _, value in shown.all(name)]
        if any(found):
            wrong[name] = (0, found[0])
    return wrong


class Writer:
    """Writes whole runs, over and over, from a thread of its own; a context manager.

    `write` gets the lines of a burst, which is how they leave a server: many at once. `rate` is in lines a second.
    """

    def __init__(self, write: Callable[[Sequence[str]], None], rate: float, burst: int = 23) -> None:
        self.expected: Counter[Series] = Counter()
        self.lines = 0
        self._write = write
        self._pause = burst / rate
        self._burst = burst
        self._runs = [(run, count(run)) for run in runs()]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.failure: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """End the run that is being written, then stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                for lines, counts in self._runs:
                    due = self._write_run(lines, counts, due)
        except BaseException as error:
            self.failure = error

    def _write_run(self, lines: list[str], counts: Counter[Series], due: float) -> float:
        for first in range(0, len(lines), self._burst):
            self._write(lines[first : first + self._burst])
            due += self._pause
            time.sleep(max(0.0, due - time.monotonic()))
        self.expected += counts
        self.lines += len(lines)
        return max(due, time.monotonic() - 1.0)


def wait_counted(
    scrape: Callable[[], Scrape], expected: Counter[Series], *, gaps: int = 0, deadline: float = 60.0
) -> Scrape:
    """Wait until all that was written is counted, then demand that each count is right."""
    key = "llama_request_tokens_count"
    last: Scrape | None = None

    def read() -> Scrape | None:
        nonlocal last
        try:
            last = scrape()
        except OSError:
            return None
        except Exception as error:
            if "httpx" not in type(error).__module__:
                raise
            return None
        return last if last.value(key) == expected[series(key)] else None

    try:
        wait_for("all lines to be counted", read, deadline, interval=0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}: {differences(expected, last, gaps) if last else 'nothing was shown'}") from None
    # An incident ends with the next sign of life or after a silence.
    try:
        return wait_for(
            "the last incident to be counted",
            lambda: now if not differences(expected, now := scrape(), gaps) else None,
            15,
            interval=0.2,
        )
    except AssertionError:
        raise AssertionError(f"counted wrongly (expected, shown): {differences(expected, scrape(), gaps)}") from None
