"""What the check says of GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from kvexporter.facts import FoundProcess, GpuReason, GpuReport, GpuSample
from kvexporter.reports.findings import Finding
from kvexporter.reports.gpu_check import gpu_findings
from kvexporter.targets import Target

GIB = 1 << 30
L4 = GpuSample("0", "GPU-1", "NVIDIA L4", "nvidia", 24 * GIB, 20 * GIB, processes={42: 18 * GIB}, unified=False)
SPARK = GpuSample("0", "GPU-1", "NVIDIA GB10", "nvidia", memory_used=64 * GIB, processes={42: 64 * GIB}, unified=True)
HALO = GpuSample(
    "card0", "0000:c4:00.0", "AMD GPU 1586", "amd", GIB // 2, GIB // 4, gtt_total=124 * GIB, gtt_used=70 * GIB,
    unified=True,
)  # fmt: skip
PROCESS = FoundProcess(42, 1.0, ("llama-server",))
MAIN = Target("main", process=PROCESS)


def said(report: GpuReport, *targets: Target, foreign_pids: bool = False) -> list[tuple[str, str, str]]:
    return [(f.level, f.subject, f.text) for f in gpu_findings(report, targets, foreign_pids)]


def test_each_gpu_and_what_each_server_holds_is_said() -> None:
    assert said(GpuReport((L4, replace(L4, index="1", processes={}))), MAIN) == [
        ("ok", "GPU", "0: NVIDIA L4, 20.0 GiB of 24.0 GiB in use"),
        ("ok", "GPU", "1: NVIDIA L4, 20.0 GiB of 24.0 GiB in use"),
        ("ok", "main", "holds 18.0 GiB on GPU 0"),
    ]


def test_unified_memory_is_said_with_what_is_available() -> None:
    report = GpuReport((SPARK,), unified_total=120 * GIB, unified_available=40 * GIB)
    assert said(report) == [
        ("ok", "GPU", "0: NVIDIA GB10, uses the host's memory; its processes hold 64.0 GiB"),
        ("ok", "GPU", "unified memory: 40.0 GiB of 120.0 GiB available"),
    ]
    assert said(GpuReport((HALO,))) == [
        ("ok", "GPU", "card0: AMD GPU 1586, 0.2 GiB of 0.5 GiB in use, and of the host's memory 70.0 GiB of 124.0 GiB")
    ]


def test_a_machine_without_a_gpu_is_no_problem() -> None:
    assert said(GpuReport(reason="no_gpu", detail="there is no GPU here")) == [("ok", "GPU", "there is no GPU here")]


@pytest.mark.parametrize("reason", [reason for reason in get_args(GpuReason) if reason != "no_gpu"])
def test_every_reason_is_said_with_what_to_do(reason: GpuReason) -> None:
    (finding,) = gpu_findings(GpuReport(reason=reason, detail="what happened"), (), False)
    assert finding.level == ("warning" if reason == "not_supported" else "problem")
    assert (finding.subject, finding.text) == ("GPU", "what happened")
    assert finding.remedy


def test_what_cuda_lets_a_server_use_is_said() -> None:
    gpus = (L4, replace(L4, index="1"))
    one = Target("main", process=replace(PROCESS, cuda_visible_devices="1"))
    none = Target("main", process=replace(PROCESS, cuda_visible_devices=""))
    mixed = (L4, replace(L4, index="1", name="NVIDIA T4", processes={}))
    assert said(GpuReport(gpus), one)[2:] == [
        ("ok", "main", "may use GPUs: 1 (CUDA_VISIBLE_DEVICES=1)"),
        ("ok", "main", "holds 18.0 GiB on GPU 1"),
    ]
    assert said(GpuReport(gpus), none)[2:] == [("ok", "main", "may use GPUs: none (CUDA_VISIBLE_DEVICES=)")]
    assert said(GpuReport(mixed), one)[2:] == [
        ("ok", "main", "may use GPUs: not known which (CUDA_VISIBLE_DEVICES=1)"),
        ("ok", "main", "holds 18.0 GiB on GPU 0"),
    ]


def test_process_numbers_that_are_not_the_hosts_are_a_warning_where_the_driver_uses_those() -> None:
    assert [level for level, _, _ in said(GpuReport((L4,)), foreign_pids=True)] == ["ok", "warning"]
    assert [level for level, _, _ in said(GpuReport((HALO,)), foreign_pids=True)] == ["ok"]


def test_a_cut_gpu_and_its_slices_are_said() -> None:
    whole = replace(L4, memory_total=None, memory_used=None, processes=None, sliced=True)
    part = replace(L4, index="0:1", name="NVIDIA A100 MIG 3g.20gb", slice_of="0")
    assert [text for _, _, text in said(GpuReport((whole, part)))] == [
        "0: NVIDIA L4, cut into slices",
        "0:1: NVIDIA A100 MIG 3g.20gb, 20.0 GiB of 24.0 GiB in use",
    ]


def test_an_unknown_amount_is_said_to_be_so() -> None:
    finding: Finding = gpu_findings(GpuReport((replace(SPARK, memory_used=None),)), (), False)[0]
    assert finding.text.endswith("its processes hold an unknown amount")
