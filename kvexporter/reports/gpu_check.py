"""What `kvexporter check` says of the host's GPUs: pure, from one round of reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvexporter.facts import GpuReason, GpuReport, GpuSample
from kvexporter.gpu_memory import process_memory
from kvexporter.gpu_visibility import visible_gpus
from kvexporter.reports.findings import Finding, Level
from kvexporter.targets import Target

SUBJECT = "GPU"

REMEDIES: dict[GpuReason, str] = {
    "no_gpu": "",
    "no_module": "pip install 'kvexporter[gpu]' into kvexporter's environment",
    "no_library": "install NVIDIA's driver with its libraries; in a container, give it the GPU (--gpus all)",
    "no_driver": "load the driver (modprobe nvidia), and see why it was not loaded: dmesg | grep NVRM",
    "mismatch": "the driver was upgraded while the old one runs: reboot, or unload and load its kernel modules",
    "lost": "look for Xid in dmesg; the GPU needs a reset (nvidia-smi --gpu-reset) or the host a reboot",
    "not_supported": "nothing to do here: this GPU or its driver has no answer, and the host's memory is not taken for "
    "its own. A newer driver may tell it",
    "no_permission": "let kvexporter's user open /dev/nvidia*; MIG's parent needs CAP_SYS_ADMIN",
    "hanging": "the driver hangs, and new processes will hang too: look for Xid in dmesg, reset the GPU or reboot",
    "failed": "run nvidia-smi: where it fails as well, reload the driver; a container that once worked, create anew",
}


def gpu_findings(report: GpuReport, targets: Sequence[Target], foreign_pids: bool) -> list[Finding]:
    """Say what can be read of the GPUs, what not and what to do.

    `foreign_pids`: this process sees other process numbers than the host's.
    """
    findings = [Finding("ok", SUBJECT, _words(gpu)) for gpu in report.gpus]
    if report.unified_total is not None:
        text = f"unified memory: {_size(report.unified_available)} of {_size(report.unified_total)} available"
        findings.append(Finding("ok", SUBJECT, text))
    if report.reason == "no_gpu":
        findings.append(Finding("ok", SUBJECT, report.detail))
    elif report.reason is not None:
        level: Level = "warning" if report.reason == "not_supported" else "problem"
        findings.append(Finding(level, SUBJECT, report.detail, REMEDIES[report.reason]))
    if any(gpu.vendor == "nvidia" for gpu in report.gpus) and foreign_pids:
        findings.append(
            Finding(
                "warning",
                SUBJECT,
                "NVIDIA's driver names processes by the host's numbers, and this is another PID namespace: what a "
                "server holds on a GPU is not known",
                "run kvexporter in the host's PID namespace (--pid=host)",
            )
        )
    for target in targets:
        findings += [Finding("ok", target.name, text) for text in _server(report.gpus, target)]
    return findings


def _words(gpu: GpuSample) -> str:
    what = f"{gpu.index}: {gpu.name}"
    if gpu.sliced:
        return f"{what}, cut into slices"
    if gpu.unified and gpu.vendor == "nvidia":
        return f"{what}, uses the host's memory; its processes hold {_size(gpu.memory_used)}"
    text = f"{what}, {_size(gpu.memory_used)} of {_size(gpu.memory_total)} in use"
    if gpu.gtt_total is not None:
        text += f", and of the host's memory {_size(gpu.gtt_used)} of {_size(gpu.gtt_total)}"
    return text


def _server(gpus: Sequence[GpuSample], target: Target) -> Iterator[str]:
    process = target.process
    if process is None:
        return
    visible = visible_gpus(process.cuda_visible_devices, process.cuda_device_order, gpus)
    if process.cuda_visible_devices is not None:
        which = "not known which" if visible is None else ", ".join(sorted(visible)) or "none"
        yield f"may use GPUs: {which} (CUDA_VISIBLE_DEVICES={process.cuda_visible_devices})"
    for index, size in process_memory(gpus, process.pid, visible).items():
        yield f"holds {_size(size)} on GPU {index}"


def _size(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / (1 << 30):.1f} GiB"
