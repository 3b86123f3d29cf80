"""AMD's GPUs, from folders shaped like /sys and /proc of such machines."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kvexporter.facts import GpuReport
from kvexporter.gpu_worker import GpuWorker
from kvexporter.sources.drm_fdinfo import drm_memory
from kvexporter.sources.gpu_amd import AmdReader
from tests.support.machine_tree import MachineTree, client

GIB = 1 << 30
KIB = 1 << 10
CARD = "0000:03:00.0"
APU = "0000:c4:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> MachineTree:
    tree = MachineTree(tmp_path / "root")
    tree.memory(total=131_000_000, available=45_000_000, swap_free=8_000_000)
    return tree


def discrete_card(machine: MachineTree, files: dict[str, str] | None = None) -> Path:
    """A Radeon RX 7900 XTX of 24 GiB."""
    files = {"unique_id": "8a3f0d6c2b1e4f57", "product_name": "Radeon RX 7900 XTX", **(files or {})}
    memory = (24 * GIB, 20 * GIB), (64 * GIB, 90 * 1024 * 1024)
    return machine.amd("card1", CARD, "0x744c", *memory, metrics_format=1, files=files)


def strix_halo(machine: MachineTree) -> Path:
    """A Ryzen AI Max+ 395 whose firmware sets 512 MiB aside; the model is in the host's memory."""
    return machine.amd(
        "card0", APU, "0x1586", (536870912, 230686720), (124 * GIB, 70 * GIB), metrics_format=3, power="power1_input"
    )


def read(machine: MachineTree, *pids: int) -> GpuReport:
    async def once() -> GpuReport:
        return await GpuWorker(machine.root, deadline=20).read(pids)

    return asyncio.run(once())


def test_a_discrete_card_tells_both_pools_apart_and_its_name_and_identity(machine: MachineTree) -> None:
    discrete_card(machine)
    machine.drm_file(4242, 17, client(41, CARD, "18874368 KiB", "92160 KiB"))
    report = read(machine, 4242)
    (gpu,) = report.gpus
    assert (gpu.index, gpu.uuid, gpu.name) == ("card1", "8a3f0d6c2b1e4f57", "Radeon RX 7900 XTX")
    assert (gpu.memory_total, gpu.memory_used) == (25769803776, 21474836480)
    assert (gpu.gtt_total, gpu.gtt_used) == (68719476736, 94371840)
    assert (gpu.utilization_ratio, gpu.temperature_celsius, gpu.power_watts) == (0.42, 47, 35.046)
    # 18,874,368 KiB = 18 GiB; what it has of the host's memory is not the card's.
    assert gpu.processes == {4242: 18 * GIB}
    assert (gpu.unified, report.unified_total, report.reason) == (False, None, None)


def test_an_apu_keeps_models_in_the_hosts_memory_which_is_told_once(machine: MachineTree) -> None:
    strix_halo(machine)
    # nvtop issue 492: 5 MiB in the carve-out, 25 GB in the host's memory.
    machine.drm_file(4242, 9, client(7, APU, "5348 KiB", "25258000 KiB"))
    report = read(machine, 4242)
    (gpu,) = report.gpus
    assert (gpu.unified, gpu.uuid, gpu.name) == (True, APU, "AMD GPU 1586")
    assert (gpu.memory_total, gpu.memory_used) == (536870912, 230686720)
    assert (gpu.gtt_total, gpu.gtt_used) == (124 * GIB, 70 * GIB)
    assert gpu.processes == {4242: (5348 + 25258000) * KIB}
    assert gpu.power_watts == 35.046
    assert (report.unified_total, report.unified_available) == (131_000_000 * KIB, 45_000_000 * KIB)
    assert report.reason is None


def test_a_card_whose_driver_has_no_table_is_not_judged(machine: MachineTree) -> None:
    machine.amd("card0", CARD, "0x67df", (8 * GIB, GIB), (16 * GIB, 0))
    report = read(machine)
    assert (report.gpus[0].unified, report.unified_total) == (None, None)
    assert report.gpus[0].memory_used == GIB


def test_mi300a_has_a_cards_table_and_is_one_with_its_host(machine: MachineTree) -> None:
    machine.amd("card0", CARD, "0x74a0", (128 * GIB, GIB), (64 * GIB, 0), metrics_format=1)
    assert read(machine).gpus[0].unified is True


def test_a_card_that_sleeps_is_asked_for_its_memory_only(machine: MachineTree) -> None:
    discrete_card(machine, {"power/runtime_status": "suspended"})
    (gpu,) = read(machine).gpus
    assert (gpu.utilization_ratio, gpu.temperature_celsius, gpu.power_watts, gpu.unified) == (None, None, None, None)
    assert gpu.memory_used == 20 * GIB


def test_a_card_and_an_apu_each_have_what_a_process_holds_on_them(machine: MachineTree) -> None:
    discrete_card(machine)
    strix_halo(machine)
    machine.drm_file(4242, 9, client(7, APU, "0 KiB", "1024 KiB"))
    machine.drm_file(4242, 10, client(8, CARD, "2 MiB", "0"))
    machine.drm_file(5, 3, client(9, CARD, "4096", "0"))
    apu, card = read(machine, 4242, 5, 6).gpus
    assert (apu.index, apu.processes) == ("card0", {4242: 1024 * KIB})
    assert (card.index, card.processes) == ("card1", {4242: 2 << 20, 5: 4096})


def test_a_driver_that_tells_no_memory_is_said_and_never_takes_the_hosts(machine: MachineTree) -> None:
    folder = discrete_card(machine)
    for name in ("mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total", "mem_info_gtt_used"):
        (folder / name).unlink()
    report = read(machine)
    assert (report.reason, report.gpus[0].memory_total, report.gpus[0].unified) == ("not_supported", None, False)


def test_cards_of_others_are_left_alone(machine: MachineTree) -> None:
    strix_halo(machine)
    (machine.root / f"sys/devices/pci0000:00/0000:00:08.1/{APU}/vendor").write_text("0x8086\n")
    assert AmdReader(machine.root).read(()) == []


# ---- what a process holds ------------------------------------------------------------------------------------------


def test_a_client_counts_once_however_many_descriptors_lead_to_it(machine: MachineTree) -> None:
    for number in (5, 6, 7):
        machine.drm_file(1, number, client(33, CARD, "100 KiB", "10 KiB"))
    machine.drm_file(1, 8, client(34, CARD, "1 KiB", "2 KiB"))
    assert drm_memory(1, machine.root) == {CARD: {"vram": 101 * KIB, "gtt": 12 * KIB}}


def test_the_names_of_old_and_new_kernels_are_understood(machine: MachineTree) -> None:
    old = f"pdev:\t{CARD}\npasid:\t32769\nvram mem:\t300 kB\ngtt mem:\t20 kB\ncpu mem:\t0 kB\n"
    new = f"drm-pdev:\t{APU}\ndrm-client-id:\t1\ndrm-total-vram:\t9 MiB\ndrm-resident-vram:\t2 MiB\n"
    machine.drm_file(1, 4, old)
    machine.drm_file(1, 5, new)
    assert drm_memory(1, machine.root) == {CARD: {"vram": 300 * KIB, "gtt": 20 * KIB}, APU: {"vram": 2 << 20}}


def test_files_that_are_no_gpu_and_texts_that_are_no_numbers_are_passed_over(machine: MachineTree) -> None:
    machine.drm_file(1, 0, client(1, CARD, "5 KiB", "5 KiB"), target="/dev/null")
    machine.drm_file(1, 3, client(2, CARD, "many KiB", "-4 KiB"))
    machine.drm_file(1, 4, "drm-driver:\tamdgpu\n")
    machine.drm_file(1, 5, client(3, CARD, "7 furlongs", "1 KiB"))
    assert drm_memory(1, machine.root) == {CARD: {"gtt": KIB}}


def test_a_process_that_may_not_be_looked_into_is_not_zero(machine: MachineTree) -> None:
    assert drm_memory(12345, machine.root) is None
    discrete_card(machine)
    assert read(machine, 12345).gpus[0].processes == {}


def test_this_process_holds_nothing_on_a_gpu() -> None:
    assert drm_memory(os.getpid()) == {}
