"""NVIDIA's GPUs, through the real nvidia-ml-py and a real library that answers as the test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_nvml import FakeNvml, GpuProbe
from tests.support.machine_tree import MachineTree
from tests.support.paths import wait_for

GIB = 1 << 30

# A GeForce RTX 4090 of 24,564 MiB: 25,757,220,864 bytes, of which the driver keeps 757,220,864.
TWO_CARDS = (
    "count 2",
    "name@0 NVIDIA GeForce RTX 4090",
    "uuid@0 GPU-aaaa",
    "mem@0 25757220864 5000000000 20000000000 757220864",
    "util@0 87",
    "temp@0 61",
    "power@0 312500",
    "name@1 NVIDIA GeForce RTX 3090",
    "uuid@1 GPU-bbbb",
    "mem@1 25769803776 25700000000 1803776 68000000",
    "util@1 0",
    "temp@1 35",
    "power@1 21000",
    "proc@0 4242 19500000000",
    "proc@0 77 400000000",
)
# DGX Spark as its owners measured it: no memory, but utilization, temperature, power and the processes' bytes.
GB10 = (
    "name NVIDIA GB10",
    "uuid GPU-cccc",
    "util 96",
    "temp 54",
    "power 41170",
    "proc 4242 68719476736",
    "proc 9 1024",
)


@pytest.fixture
def machine(tmp_path: Path) -> MachineTree:
    tree = MachineTree(tmp_path / "root")
    tree.memory(total=64 * 1024 * 1024, available=40 * 1024 * 1024, swap_free=8 * 1024 * 1024)
    return tree


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml")


def look(machine: MachineTree, nvml: FakeNvml | None, *lines: str) -> dict[str, Any]:
    """What one round finds when the library answers so."""
    if nvml is not None:
        nvml.tell(*lines)
    with GpuProbe(machine.root, nvml) as probe:
        return probe.read()


def test_two_cards_are_told_with_the_memory_of_each_process(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(machine, nvml, *TWO_CARDS)
    assert (report["reason"], report["unified_total"], report["unified_available"]) == (None, None, None)
    first, second = report["gpus"]
    assert (first["index"], first["uuid"], first["name"]) == ("0", "GPU-aaaa", "NVIDIA GeForce RTX 4090")
    assert (first["memory_total"], first["memory_used"]) == (25757220864, 20000000000)
    assert (first["utilization_ratio"], first["temperature_celsius"], first["power_watts"]) == (0.87, 61, 312.5)
    assert (first["processes"], first["unified"]) == ({"4242": 19500000000, "77": 400000000}, False)
    assert (second["uuid"], second["memory_used"], second["processes"]) == ("GPU-bbbb", 1803776, {})
    assert (second["utilization_ratio"], second["power_watts"]) == (0, 21)


def test_a_driver_without_the_second_version_tells_used_with_its_own_part(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(machine, nvml, *TWO_CARDS, "err nvmlDeviceGetMemoryInfo_v2 13")
    assert report["gpus"][0]["memory_used"] == 20000000000 + 757220864
    assert report["reason"] is None


def test_unified_memory_is_the_hosts_and_what_processes_hold_is_used(machine: MachineTree, nvml: FakeNvml) -> None:
    machine.memory(total=125513344, available=62756672, swap_free=16777212)
    report = look(machine, nvml, *GB10)
    (gpu,) = report["gpus"]
    assert (gpu["unified"], gpu["memory_total"], gpu["memory_used"]) == (True, None, 68719476736 + 1024)
    assert (gpu["utilization_ratio"], gpu["temperature_celsius"], gpu["power_watts"]) == (0.96, 54, 41.17)
    # 125,513,344 KiB; and (62,756,672 + 16,777,212) KiB
    assert (report["unified_total"], report["unified_available"]) == (128525664256, 81442697216)
    assert report["reason"] is None


def test_free_huge_pages_are_what_is_available_where_they_are_set_up(machine: MachineTree, nvml: FakeNvml) -> None:
    machine.memory(total=125513344, available=62756672, swap_free=16777212, huge=(20480, 15360))
    assert look(machine, nvml, *GB10)["unified_available"] == 30 * GIB  # 15,360 pages of 2 MiB


@pytest.mark.parametrize("answer", ["mem 0 0 0", "mem 128525664256 64262832128 64262832128"])
def test_a_known_device_that_reports_nothing_or_the_host_is_unified(
    machine: MachineTree, nvml: FakeNvml, answer: str
) -> None:
    machine.memory(total=125513344, available=62756672)
    report = look(machine, nvml, *GB10, answer)
    assert report["gpus"][0]["unified"] is True
    assert report["gpus"][0]["memory_total"] is None
    assert report["unified_total"] == 128525664256


def test_a_jetson_takes_what_nvml_does_not_tell_from_sys(machine: MachineTree, nvml: FakeNvml) -> None:
    machine.memory(total=64_000_000, available=32_000_000)
    machine.jetson("NVIDIA Jetson AGX Orin Developer Kit", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234")
    # A process that does not exist, with more memory than there is.
    report = look(machine, nvml, "name Orin (nvgpu)", "uuid GPU-dddd", "proc 4000000000 99999999999999")
    (gpu,) = report["gpus"]
    assert (gpu["name"], gpu["unified"], gpu["memory_used"]) == ("Orin (nvgpu)", True, None)
    assert (gpu["utilization_ratio"], gpu["temperature_celsius"]) == (0.345, 52.343)
    assert report["unified_total"] == 65_536_000_000
    assert report["reason"] is None


def test_a_jetson_whose_system_has_no_nvml_is_told_from_sys_alone(machine: MachineTree) -> None:
    machine.memory(total=16_000_000, available=8_000_000)
    machine.jetson("NVIDIA Jetson Xavier NX", "nvidia,p3509\0nvidia,tegra194", load="platform/17000000.gv11b.gpu/load")
    report = look(machine, None)
    (gpu,) = report["gpus"]
    assert (gpu["name"], gpu["unified"], gpu["utilization_ratio"]) == ("NVIDIA Jetson Xavier NX", True, 0.345)
    assert (gpu["memory_used"], gpu["processes"], report["reason"]) == (None, None, None)
    assert report["unified_total"] == 16_384_000_000


def test_an_unknown_card_that_does_not_tell_its_memory_gets_none_of_the_hosts(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    report = look(machine, nvml, "name NVIDIA A100-PCIE-40GB", "util 3")
    assert report["gpus"][0]["unified"] is None
    assert (report["gpus"][0]["memory_total"], report["gpus"][0]["memory_used"]) == (None, None)
    assert (report["reason"], report["unified_total"]) == ("not_supported", None)


def test_processes_without_a_figure_are_not_zero(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(machine, nvml, *GB10[:-2], "proc 4242 na", "proc 5 na")
    (gpu,) = report["gpus"]
    assert gpu["processes"] == {"4242": None, "5": None}
    assert gpu["memory_used"] is None


def test_a_server_that_computes_with_vulkan_is_found_among_the_graphics_processes(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    report = look(machine, nvml, "mem 1000 500 500", "proc 1 100", "graphics 1 100", "graphics 4242 300")
    assert report["gpus"][0]["processes"] == {"1": 100, "4242": 300}


def test_a_card_cut_by_mig_shows_its_memory_by_slice_only(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(
        machine,
        nvml,
        "name@0 NVIDIA A100-SXM4-40GB",
        "mem@0 42949672960 0 42949672960",  # must not be asked for: it would count twice
        "err nvmlDeviceGetUtilizationRates 3",
        "temp@0 40",
        "power@0 70000",
        "mig@0 7",
        "slice@0:0 1",
        "name@0:0 NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "uuid@0:0 MIG-1111",
        "mem@0:0 20937965568 10937965568 10000000000",
        "proc@0:0 4242 9000000000",
        "slice@0:3 1",
        "name@0:3 NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "uuid@0:3 MIG-2222",
        "mem@0:3 5100273664 5000273664 100000000",
    )
    whole, large, small = report["gpus"]
    assert (whole["memory_total"], whole["memory_used"], whole["processes"]) == (None, None, None)
    assert (whole["temperature_celsius"], whole["power_watts"], whole["utilization_ratio"]) == (40, 70, None)
    assert (large["index"], large["uuid"], large["slice_of"]) == ("0:0", "MIG-1111", "0")
    assert (large["memory_total"], large["memory_used"]) == (20937965568, 10000000000)
    assert large["processes"] == {"4242": 9000000000}
    assert (small["index"], small["memory_used"], small["processes"]) == ("0:3", 100000000, {})
    assert {gpu["unified"] for gpu in report["gpus"]} == {False}
    assert report["reason"] is None


# ---- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "no_driver"), (12, "no_library"), (18, "mismatch"), (15, "lost"), (3, "not_supported"), (4, "no_permission"),
     (999, "failed")],
)  # fmt: skip
def test_why_nvml_cannot_be_initialised_is_told_apart(
    machine: MachineTree, nvml: FakeNvml, code: int, reason: str
) -> None:
    report = look(machine, nvml, f"err nvmlInitWithFlags {code}")
    assert (report["reason"], report["gpus"]) == (reason, [])
    assert f"(NVML {code})" in report["detail"]
    assert report["restart_wanted"] is False


def test_a_machine_without_any_gpu_has_none_and_does_not_load_the_module(machine: MachineTree) -> None:
    machine.pci("0000:00:02.0", "0x8086")  # graphics of Intel
    machine.pci("0000:01:00.1", "0x10de", kind="0x040300")  # an NVIDIA card's sound
    report = look(machine, None)
    assert (report["reason"], report["detail"], report["gpus"]) == ("no_gpu", "there is no GPU here", [])
    assert report["module"] is False


def test_a_card_without_its_library_is_said_unless_it_was_given_to_a_virtual_machine(machine: MachineTree) -> None:
    machine.pci("0000:01:00.0", "0x10de", driver="vfio-pci")
    assert look(machine, None)["reason"] == "no_gpu"
    machine.pci("0000:02:00.0", "0x10de", kind="0x030200", driver="nvidia")
    assert look(machine, None)["reason"] == "no_library"


def test_a_file_that_is_no_library_is_said(machine: MachineTree, nvml: FakeNvml) -> None:
    (nvml.folder / "libnvidia-ml.so.1").unlink()
    (nvml.folder / "libnvidia-ml.so.1").write_text("not a library")
    report = look(machine, nvml)
    assert report["reason"] == "no_library"
    assert "cannot be loaded" in report["detail"]


def test_a_missing_python_package_is_said(
    machine: MachineTree, nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pynvml.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    assert look(machine, nvml, *TWO_CARDS)["reason"] == "no_module"


def test_one_card_without_permission_leaves_the_other(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(machine, nvml, *TWO_CARDS, "err nvmlDeviceGetHandleByIndex_v2@1 4")
    assert [gpu["index"] for gpu in report["gpus"]] == ["0"]
    assert report["reason"] == "no_permission"
    assert report["detail"].startswith("GPU 1: ")


@pytest.mark.parametrize("function", ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPowerUsage"])
def test_a_lost_card_never_looks_unified(machine: MachineTree, nvml: FakeNvml, function: str) -> None:
    report = look(machine, nvml, *TWO_CARDS, f"err {function}@1 15")
    assert report["reason"] == "lost"
    assert report["gpus"][0]["memory_used"] == 20000000000
    assert not any(gpu["unified"] for gpu in report["gpus"])
    assert report["unified_total"] is None


def test_an_unknown_error_to_an_optional_question_costs_that_answer_only(machine: MachineTree, nvml: FakeNvml) -> None:
    report = look(machine, nvml, *TWO_CARDS, "err nvmlDeviceGetPowerUsage@1 999")
    assert report["reason"] is None
    assert (report["gpus"][1]["power_watts"], report["gpus"][1]["temperature_celsius"]) == (None, 35)


# ---- over time -----------------------------------------------------------------------------------------------------


def test_nvml_is_initialised_once_for_all_rounds_and_shut_down_at_the_end(machine: MachineTree, nvml: FakeNvml) -> None:
    nvml.tell(*TWO_CARDS)
    with GpuProbe(machine.root, nvml) as probe:
        for clock in range(0, 100, 5):
            assert len(probe.read(clock=clock)["gpus"]) == 2
        assert nvml.calls("nvmlShutdown") == 0
    assert nvml.calls("nvmlDeviceGetCount_v2") == 20
    assert (nvml.calls("nvmlInitWithFlags"), nvml.calls("nvmlShutdown")) == (1, 1)


def test_a_card_lost_midway_comes_back_after_a_new_initialisation(machine: MachineTree, nvml: FakeNvml) -> None:
    nvml.tell(*TWO_CARDS)
    with GpuProbe(machine.root, nvml) as probe:
        assert probe.read(clock=0)["reason"] is None
        nvml.tell(*TWO_CARDS, "err nvmlDeviceGetHandleByIndex_v2@0 15")
        lost = probe.read(clock=5)
        assert (lost["reason"], [gpu["uuid"] for gpu in lost["gpus"]]) == ("lost", ["GPU-bbbb"])
        nvml.tell(*TWO_CARDS)
        back = probe.read(clock=10)
        assert (back["reason"], [gpu["uuid"] for gpu in back["gpus"]]) == (None, ["GPU-aaaa", "GPU-bbbb"])
        assert (nvml.calls("nvmlInitWithFlags"), nvml.calls("nvmlShutdown")) == (2, 1)


def test_a_card_that_is_not_counted_any_more_is_lost_and_the_other_keeps_its_identity(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    nvml.tell(*TWO_CARDS)
    with GpuProbe(machine.root, nvml) as probe:
        probe.read(clock=0)
        nvml.tell("name NVIDIA GeForce RTX 3090", "uuid GPU-bbbb", "mem 25769803776 25700000000 1803776")
        for clock in (5, 10, 20, 300):
            report = probe.read(clock=clock)
            assert (report["reason"], [gpu["uuid"] for gpu in report["gpus"]]) == ("lost", ["GPU-bbbb"])


def test_a_lasting_failure_is_tried_again_ever_more_seldom(machine: MachineTree, nvml: FakeNvml) -> None:
    nvml.tell("err nvmlInitWithFlags 9")
    with GpuProbe(machine.root, nvml) as probe:
        for clock in range(0, 600, 5):
            assert probe.read(clock=clock)["reason"] == "no_driver"
        # At 0, 5, 15, 35 and 75 s, then every minute: 135, 195, 255, 315, 375, 435, 495, 555.
        assert nvml.calls("nvmlInitWithFlags") == 13
        nvml.tell(*TWO_CARDS)
        assert probe.read(clock=620)["reason"] is None


def driver_upgrade(machine: MachineTree, nvml: FakeNvml, probe: GpuProbe) -> dict[str, Any]:
    """The package is upgraded to 590.11 while a card is lost, so that NVML must be initialised anew."""
    nvml.tell(*TWO_CARDS)
    assert probe.read(clock=0)["reason"] is None
    nvml.install("590.11")
    assert probe.read(clock=5)["reason"] is None  # what is initialised goes on
    nvml.tell(*TWO_CARDS, "err nvmlDeviceGetCount_v2 999", "err nvmlInitWithFlags 18")
    assert probe.read(clock=10)["reason"] == "failed"
    return probe.read(clock=15)


def test_a_replaced_library_that_fits_the_running_driver_needs_a_new_process(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    (machine.root / "sys/module/nvidia").mkdir(parents=True)
    (machine.root / "sys/module/nvidia/version").write_text("580.95.05\n")
    with GpuProbe(machine.root, nvml) as probe:
        report = driver_upgrade(machine, nvml, probe)
        assert (report["reason"], report["restart_wanted"]) == ("mismatch", False)  # the old driver still runs
        (machine.root / "sys/module/nvidia/version").write_text("590.11\n")
        report = probe.read(clock=100)
        assert (report["reason"], report["restart_wanted"]) == ("mismatch", True)
        assert "only a new process" in report["detail"]
    with GpuProbe(machine.root, nvml) as probe:  # the new process: nothing would be won by another
        assert probe.read()["restart_wanted"] is False


def test_a_mismatch_with_the_library_that_is_installed_needs_no_new_process(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    nvml.tell("err nvmlInitWithFlags 18")
    with GpuProbe(machine.root, nvml) as probe:
        assert [probe.read(clock=clock)["restart_wanted"] for clock in (0, 100, 200)] == [False] * 3


def test_a_call_that_hangs_costs_its_round_only_and_its_late_result_is_not_shown(
    machine: MachineTree, nvml: FakeNvml
) -> None:
    machine.memory(total=125513344, available=62756672)
    nvml.tell(*GB10)
    with GpuProbe(machine.root, nvml, deadline=0.5) as probe:
        # On a slow machine the first round, which loads the module, may be too long.
        wait_for("the first round", lambda: probe.read()["reason"] is None)
        nvml.tell(*GB10, "temp 99", "hang nvmlDeviceGetMemoryInfo_v2 30000")
        report = probe.read()
        assert (report["reason"], report["gpus"]) == ("hanging", [])
        assert report["seconds"] < 10
        machine.memory(total=125513344, available=1024)
        later = probe.read()
        assert (later["reason"], later["seconds"] < 10) == ("hanging", True)
        # The host's memory is known all the same: that is when it is wanted most.
        assert (later["unified_total"], later["unified_available"]) == (128525664256, 1024 * 1024)
        assert nvml.calls("nvmlInitWithFlags") == 1
        nvml.tell(*GB10)
        report = wait_for("the call to come back", lambda: None if (now := probe.read())["reason"] else now)
        assert report["gpus"][0]["temperature_celsius"] == 54
