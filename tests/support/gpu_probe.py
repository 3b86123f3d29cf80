"""Run as a process of its own, so that its loader can be told where libraries are: reads GPUs, once for each line."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from kvexporter.gpu_worker import GpuWorker


async def main(root: Path, deadline: float) -> None:
    now = 0.0
    worker = GpuWorker(root, deadline, clock=lambda: now)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        now = asked["clock"]
        began = time.monotonic()
        report = await worker.read(asked["pids"])
        answer = {**asdict(report), "seconds": time.monotonic() - began, "module": "pynvml" in sys.modules}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await worker.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
