"""Whose memory a GPU's is, and who holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.facts import GpuReason, GpuSample, HostMemory
from kvexporter.gpu_memory import is_unified, judge, process_memory, unified_available
from kvexporter.gpu_visibility import visible_gpus
from kvexporter.sources.host_memory import in_own_pid_namespace, read_host_memory
from tests.support.machine_tree import MachineTree

GIB = 1 << 30
HOST = HostMemory(total=32 * GIB, available=20 * GIB, swap_free=2 * GIB)


def gpu(
    name: str, total: int | None = None, reason: GpuReason | None = None, *, slice_of: str | None = None
) -> GpuSample:
    return GpuSample("0", "GPU-1", name, "nvidia", total, memory_reason=reason, slice_of=slice_of)


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)", "Xavier (nvgpu)", "Tegra X1", "GB10"])
@pytest.mark.parametrize("answer", [(None, "not_supported"), (0, None), (32 * GIB, None), (31 * GIB, None)])
def test_a_known_integrated_device_is_unified(name: str, answer: tuple[int | None, GpuReason | None]) -> None:
    assert is_unified(gpu(name, *answer), HOST, tegra=False) is True


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 5090", "NVIDIA GB100", "NVIDIA GH200 480GB", "NVIDIA A2", ""])
def test_an_unknown_device_that_does_not_tell_its_memory_is_not_judged(name: str) -> None:
    assert is_unified(gpu(name, None, "not_supported"), HOST, tegra=False) is None
    assert is_unified(gpu(name, 0), HOST, tegra=False) is None


@pytest.mark.parametrize("reason", ["lost", "no_permission", "failed", "no_driver"])
@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 5090", "NVIDIA GB10"])
@pytest.mark.parametrize("tegra", [False, True])
def test_an_error_is_no_evidence_for_anything(name: str, reason: GpuReason, tegra: bool) -> None:
    assert is_unified(gpu(name, None, reason), HOST, tegra) is None


@pytest.mark.parametrize("total", [8, 24, 28, 31, 33, 35, 36, 80, 192])
def test_a_card_with_any_memory_of_its_own_is_discrete_also_with_as_much_as_its_host(total: int) -> None:
    assert is_unified(gpu("NVIDIA GeForce RTX 5090", total * GIB), HOST, tegra=False) is False


def test_a_total_that_is_the_hosts_to_the_byte_is_the_hosts() -> None:
    assert is_unified(gpu("NVIDIA N2", 32 * GIB), HOST, tegra=False) is True


def test_a_tegras_own_gpu_is_unified_whatever_its_name_and_a_card_plugged_into_it_is_not() -> None:
    assert is_unified(gpu("NVIDIA T9000", None, "not_supported"), HOST, tegra=True) is True
    assert is_unified(gpu("NVIDIA RTX A6000", None, "not_supported"), HOST, tegra=True) is None
    assert is_unified(gpu("NVIDIA RTX A6000", 48 * GIB), HOST, tegra=True) is False


def test_a_slice_is_of_a_card_with_memory_of_its_own() -> None:
    assert is_unified(gpu("NVIDIA GB10", None, "not_supported", slice_of="0"), HOST, tegra=False) is False


def test_without_the_hosts_total_a_card_that_tells_its_memory_is_discrete() -> None:
    assert is_unified(gpu("NVIDIA GeForce RTX 5090", 32 * GIB), HostMemory(), tegra=False) is False


def test_a_discrete_card_keeps_what_its_driver_told() -> None:
    sample = GpuSample("0", "GPU-1", "NVIDIA L4", "nvidia", 24 * GIB, 5 * GIB, processes={1: 99 * GIB})
    judged = judge(sample, HOST, tegra=False)
    assert (judged.memory_total, judged.memory_used, judged.processes) == (24 * GIB, 5 * GIB, {1: 99 * GIB})


@pytest.mark.parametrize(
    ("host", "available"),
    [
        (HostMemory(32 * GIB, 20 * GIB, 2 * GIB), 22 * GIB),
        (HostMemory(32 * GIB, 20 * GIB, None), 20 * GIB),
        (HostMemory(32 * GIB, 20 * GIB, 2 * GIB, 0, 0, 2 << 20), 22 * GIB),
        (HostMemory(32 * GIB, 20 * GIB, 2 * GIB, 1024, 512, 2 << 20), GIB),  # swap is no help to huge pages
        (HostMemory(32 * GIB, 20 * GIB, 2 * GIB, 1024, 0, 2 << 20), 0),
        (HostMemory(32 * GIB, None, 2 * GIB), None),
        (HostMemory(32 * GIB, 20 * GIB, 2 * GIB, 1024, 512, None), None),
    ],
)
def test_what_is_available_is_what_nvidia_documents(host: HostMemory, available: int | None) -> None:
    assert unified_available(host, [GpuSample("0", "", "NVIDIA GB10", "nvidia", unified=True)]) == available


def test_the_hosts_own_meminfo_is_understood() -> None:
    host = read_host_memory()
    assert host.total is not None
    assert host.available is not None
    assert 0 < host.available < host.total
    words = next(line.split() for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert host.total == int(words[1]) * 1024


def test_what_meminfo_does_not_hold_is_unknown(tmp_path: Path) -> None:
    assert read_host_memory(tmp_path) == HostMemory()
    tree = MachineTree(tmp_path)
    (tree.root / "proc/meminfo").write_text("MemTotal: lots kB\nMemAvailable:\nSwapFree\n\nHugePages_Total: 3\n")
    assert read_host_memory(tmp_path) == HostMemory(huge_pages=3)


def test_a_pid_namespace_of_ones_own_is_seen(tmp_path: Path) -> None:
    ns = tmp_path / "proc/self/ns"
    ns.mkdir(parents=True)
    assert in_own_pid_namespace(tmp_path) is False
    (ns / "pid").symlink_to("pid:[4026531836]")
    assert in_own_pid_namespace(tmp_path) is False
    (ns / "pid").unlink()
    (ns / "pid").symlink_to("pid:[4026532567]")
    assert in_own_pid_namespace(tmp_path) is True


# ---- who holds it, and who may -------------------------------------------------------------------------------------


def cards(*names: str) -> list[GpuSample]:
    return [
        GpuSample(str(n), f"GPU-{n}{n}{n}", name, "nvidia", processes={7: 100 + n, 8: None})
        for n, name in enumerate(names)
    ]


def test_a_process_is_found_on_each_gpu_that_lists_it_with_a_figure() -> None:
    gpus = [*cards("L4", "L4"), GpuSample("2", "", "L4", "nvidia"), GpuSample("3", "", "L4", "nvidia", processes={})]
    assert process_memory(gpus, 7, None) == {"0": 100, "1": 101}
    assert process_memory(gpus, 8, None) == {}
    assert process_memory(gpus, 9, None) == {}


def test_on_a_gpu_that_cuda_hides_from_it_a_process_of_that_number_is_another_one() -> None:
    gpus = [*cards("L4", "L4"), GpuSample("card1", "", "AMD", "amd", processes={7: 5})]
    assert process_memory(gpus, 7, frozenset({"1"})) == {"1": 101, "card1": 5}
    assert process_memory(gpus, 7, frozenset()) == {"card1": 5}


ALIKE = cards("L4", "L4", "L4")
MIXED = cards("L4", "T4", "L4")
CUT = [*cards("A100"), GpuSample("0:0", "MIG-a1", "A100 MIG", "nvidia", slice_of="0"),
       GpuSample("0:1", "MIG-b2", "A100 MIG", "nvidia", slice_of="0")]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "order", "devices", "visible"),
    [
        (ALIKE, None, None, None),
        (ALIKE, None, "1", {"1"}),
        (ALIKE, None, "2, 0", {"0", "2"}),
        (ALIKE, None, "", set()),
        (ALIKE, None, "-1", set()),
        (ALIKE, None, "0,-1,2", {"0"}),
        (ALIKE, None, "0,5,2", {"0"}),
        (ALIKE, None, "NoDevFiles", set()),
        (ALIKE, None, "GPU-111,GPU-2", {"1", "2"}),
        (ALIKE, None, "GPU-", set()),  # of all
        (ALIKE, None, "GPU-9", set()),
        (MIXED, None, "1", None),  # the fastest comes first, whichever that is
        (MIXED, "FASTEST_FIRST", "0", None),
        (MIXED, "PCI_BUS_ID", "1", {"1"}),
        (MIXED, None, "GPU-000", {"0"}),
        (CUT, "PCI_BUS_ID", "0", None),
        (CUT, None, "MIG-b2", {"0:1"}),
        (CUT, None, "GPU-000", {"0", "0:0", "0:1"}),
        (CUT, None, "MIG-GPU-000/1/0", None),
        ([], None, "0", set()),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(
    gpus: list[GpuSample], order: str | None, devices: str | None, visible: set[str] | None
) -> None:
    assert visible_gpus(devices, order, gpus) == (None if visible is None else frozenset(visible))


def test_a_very_long_list_is_no_danger() -> None:
    assert visible_gpus("0," * 1_000_000, None, ALIKE) == frozenset({"0"})
