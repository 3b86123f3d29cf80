"""A server's model fed with lines of text, one hundredth of a second apart."""

from __future__ import annotations

from kvexporter.llama.log import parse_line
from kvexporter.server import Server

STEP = 0.01


class LogStory:
    """A model and the time of the next line."""

    def __init__(self, server: Server | None = None, at: float = 1000.0) -> None:
        self.server = server if server is not None else Server("test")
        self.at = at

    def lines(self, text: str) -> LogStory:
        """Feed the lines of a text, empty ones left out."""
        for line in text.splitlines():
            if line.strip():
                self.line(line.strip())
        return self

    def line(self, text: str) -> LogStory:
        """Feed one line."""
        self.at += STEP
        parsed = parse_line(text.encode())
        if parsed is not None:
            self.server.line(parsed, self.at)
        return self

    def wait(self, seconds: float) -> LogStory:
        """Let time pass in silence."""
        self.at += seconds
        self.server.tick(self.at)
        return self
