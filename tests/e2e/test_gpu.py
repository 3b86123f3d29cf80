"""GPUs in the real daemon, with a real llama-server and a driver's library that answers as the test says."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.daemon import DISCOVERY_SECONDS
from kvexporter.sources.gpu_amd import AmdReader
from kvexporter.sources.nvml_library import nvidia_gpu_present
from tests.support.exporter import Exporter
from tests.support.fake_nvml import FakeNvml
from tests.support.llama_server import RealLlamaServer
from tests.support.paths import wait_for

DEADLINE = 60.0

CARDS = (
    "count 2",
    "name NVIDIA GeForce RTX 4090",
    "uuid@0 GPU-aaaa",
    "uuid@1 GPU-bbbb",
    "mem@0 25757220864 24980000000 20000000 757220864",
    "mem@1 25757220864 5000000000 20000000000 757220864",
    "util@1 87",
    "temp@1 61",
    "power@1 312500",
)


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The library, for processes started from here on."""
    fake = FakeNvml(tmp_path / "nvml")
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def llama() -> Iterator[RealLlamaServer]:
    arguments = ("-c", "4096", "-np", "4", "-kvu", "--slots", "--metrics")
    with RealLlamaServer(*arguments, environment={"CUDA_VISIBLE_DEVICES": "1"}) as server:
        yield server


@pytest.mark.real_server
def test_what_a_server_holds_on_its_gpu_is_shown_until_the_gpu_is_lost_and_when_it_is_back(
    llama: RealLlamaServer, nvml: FakeNvml
) -> None:
    # The entry on GPU 0, which CUDA hides from this server, is another process's in another PID namespace.
    state = (*CARDS, f"proc@0 {llama.pid} 4096", f"proc@1 {llama.pid} 19500000000", "proc@1 1 400000000")
    nvml.tell(*state)
    with Exporter({"servers": [{"name": "main", "url": llama.url}]}) as exporter:
        now = exporter.wait_value(19500000000, "llama_gpu_process_memory_bytes", DEADLINE, server="main", gpu="1")
        assert now.by("gpu", "llama_gpu_process_memory_bytes") == {"1": 19500000000}
        assert now.by("uuid", "llama_gpu_memory_used_bytes") == {"GPU-aaaa": 20000000, "GPU-bbbb": 20000000000}
        assert now.by("gpu", "llama_gpu_memory_total_bytes") == {"0": 25757220864, "1": 25757220864}
        assert now.by("name", "llama_gpu_utilization_ratio", gpu="1") == {"NVIDIA GeForce RTX 4090": 0.87}
        assert now.by("gpu", "llama_gpu_utilization_ratio").keys() == {"1"}
        assert now.value("llama_gpu_temperature_celsius", gpu="1") == 61
        assert now.value("llama_gpu_power_watts", gpu="1") == 312.5
        assert now.by("gpu", "llama_gpu_unified_memory") == {"0": 0, "1": 0}
        assert now.all("llama_unified_memory_total_bytes") == []
        assert now.value("kvexporter_collector_success", collector="gpu") == 1

        checked = subprocess.run(
            [sys.executable, "-m", "kvexporter", "check", "--config.file", str(exporter.config_file)],
            capture_output=True, text=True, timeout=120, check=False,
        ).stdout  # fmt: skip
        assert "1: NVIDIA GeForce RTX 4090, 18.6 GiB of 24.0 GiB in use" in checked
        assert "may use GPUs: 1 (CUDA_VISIBLE_DEVICES=1)" in checked
        assert "holds 18.2 GiB on GPU 1" in checked

        nvml.tell(*state, "err nvmlDeviceGetHandleByIndex_v2@1 15")
        now = exporter.wait_value(0, "kvexporter_collector_success", DEADLINE, collector="gpu")
        assert now.by("gpu", "llama_gpu_memory_used_bytes") == {"0": 20000000}
        assert now.all("llama_gpu_process_memory_bytes") == []
        assert "GPU 1: " in exporter.log()
        nvml.tell(*state)
        now = exporter.wait_value(1, "kvexporter_collector_success", DEADLINE, collector="gpu")
        assert now.by("gpu", "llama_gpu_process_memory_bytes") == {"1": 19500000000}
    # Once by the daemon, once by the check, and once more if the GPU was still lost when it was next looked at.
    assert nvml.calls("nvmlInitWithFlags") in (2, 3)
    assert nvml.calls("nvmlShutdown") == nvml.calls("nvmlInitWithFlags")


def test_on_unified_memory_the_hosts_total_is_told_once(nvml: FakeNvml) -> None:
    nvml.tell("name NVIDIA GB10", "uuid GPU-cccc", "util 96", "proc 1 1000", "proc 2 na")
    words = next(line.split() for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    with Exporter(None) as exporter:
        now = exporter.wait_value(1, "llama_gpu_unified_memory", DEADLINE, gpu="0")
    assert now.value("llama_unified_memory_total_bytes") == int(words[1]) * 1024
    assert now.all("llama_unified_memory_available_bytes") != []
    assert now.all("llama_gpu_memory_total_bytes") == []
    assert now.value("llama_gpu_memory_used_bytes", gpu="0") == 1000
    assert now.value("kvexporter_collector_success", collector="gpu") == 1


@pytest.mark.real_server
def test_a_call_that_blocks_for_30_seconds_costs_nothing_but_the_gpus_numbers(
    llama: RealLlamaServer, nvml: FakeNvml
) -> None:
    nvml.tell(*CARDS)
    with Exporter({"servers": [{"name": "main", "url": llama.url}], "idle_poll_interval": "1s"}) as exporter:
        exporter.wait_value(1, "kvexporter_collector_success", DEADLINE, collector="gpu")
        nvml.tell(*CARDS, "hang nvmlDeviceGetUtilizationRates 30000")
        exporter.wait_value(0, "kvexporter_collector_success", DEADLINE, collector="gpu")
        scrapes, polls, began = 0, set(), time.monotonic()
        while time.monotonic() - began < 10:
            now = exporter.scrape()
            scrapes += 1
            assert now.all("llama_gpu_memory_used_bytes") == []
            assert now.value("llama_up", server="main") == 1
            polls.add(now.value("kvexporter_last_poll_timestamp_seconds", server="main", endpoint="health"))
            time.sleep(0.1)
        assert scrapes > 30
        assert len(polls) > 3
        assert "GPU: reading NVIDIA's GPUs: no result within 5 s" in exporter.log()
        nvml.tell(*CARDS)
        exporter.wait_value(1, "kvexporter_collector_success", DEADLINE, collector="gpu")
        assert nvml.calls("nvmlInitWithFlags") == 1


def test_a_hanging_driver_does_not_keep_the_exporter_from_ending(nvml: FakeNvml) -> None:
    nvml.tell(*CARDS, "hang nvmlInitWithFlags 600000")
    with Exporter(None) as exporter:
        exporter.wait_value(0, "kvexporter_collector_success", DEADLINE, collector="gpu")
        began = time.monotonic()
    assert time.monotonic() - began < 15  # the process is killed after 20 s


def test_after_a_driver_upgrade_systemd_is_given_the_chance_to_start_a_new_process(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path("/sys/module/nvidia/version").exists():
        pytest.skip("this host's own driver would be asked for its version")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        nvml.tell(*CARDS)
        with Exporter(None) as exporter:
            exporter.wait_value(1, "kvexporter_collector_success", DEADLINE, collector="gpu")
            nvml.install("590.11")
            nvml.tell(*CARDS, "err nvmlDeviceGetCount_v2 999", "err nvmlInitWithFlags 18")
            process = exporter._process
            assert process is not None
            assert process.wait(DEADLINE) == 75
            log = exporter.log()
        assert "only a new process can load its new library" in log
        assert "ending, so that systemd starts a new process" in log


def test_without_systemd_it_only_says_that_a_new_process_is_needed(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path("/sys/module/nvidia/version").exists():
        pytest.skip("this host's own driver would be asked for its version")
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    nvml.tell(*CARDS)
    with Exporter(None) as exporter:
        exporter.wait_value(1, "kvexporter_collector_success", DEADLINE, collector="gpu")
        nvml.install("590.11")
        nvml.tell(*CARDS, "err nvmlDeviceGetCount_v2 999", "err nvmlInitWithFlags 18")
        wait_for("the message", lambda: "only a new process" in exporter.log(), DEADLINE)
        assert exporter.scrape().value("kvexporter_collector_success", collector="gpu") == 0


def test_a_machine_without_any_gpu_says_so_once_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    if nvidia_gpu_present() or AmdReader().read(()) or Path("/proc/device-tree/compatible").exists():
        pytest.skip("this machine has a GPU")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with Exporter(None) as exporter:
        now = exporter.wait_value(0, "kvexporter_collector_success", DEADLINE, collector="gpu")
        began = now.value("kvexporter_collector_duration_seconds", collector="gpu")
        # The next round comes with the next server, and else after some minutes.
        server = subprocess.Popen(["llama-server", "600"], executable=shutil.which("sleep"))
        try:
            wait_for(
                "the next round",
                lambda: exporter.scrape().value("kvexporter_collector_duration_seconds", collector="gpu") != began,
                DEADLINE + 2 * DISCOVERY_SECONDS,
            )
        finally:
            server.kill()
            server.wait()
        assert not re.search("^llama_(gpu|unified)", exporter.scrape().text, re.MULTILINE)
        assert exporter.log().count("GPU") == 1
        assert "there is no GPU here" in exporter.log()
        maps = Path(f"/proc/{exporter.pid}/maps").read_text()
        assert "nvidia" not in maps
    assert os.environ.get("LD_LIBRARY_PATH") is None
