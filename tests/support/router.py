"""The real llama-server as a router of several models."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.llama_server import RealLlamaServer
from tests.support.tiny_model import tiny_model


class RealRouter(RealLlamaServer):
    """A router whose models are copies of the tiny one in `folder`, none of them loaded. `arguments` go to all."""

    def __init__(self, folder: Path, *models: str, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(*arguments)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in models:
            shutil.copyfile(tiny_model(), folder / f"{name}.gguf")

    @property
    def command(self) -> list[str]:
        common = ["--models-dir", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port), "-t", "1"]
        return [str(self.binary), *common, "--no-webui", *self.arguments]

    def state_of(self, model: str) -> str:
        """What the router says of a model; asking loads nothing."""
        models = self.get("/models")["data"]
        return str(next(each["status"]["value"] for each in models if each["id"] == model))
