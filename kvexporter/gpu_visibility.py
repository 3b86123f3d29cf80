"""Which GPUs a process may use by its CUDA_VISIBLE_DEVICES. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvexporter.facts import GpuSample

MAX_ENTRIES = 256


def visible_gpus(devices: str | None, order: str | None, gpus: Sequence[GpuSample]) -> frozenset[str] | None:
    """The indexes of the NVIDIA GPUs that CUDA shows to a process; None where that cannot be known.

    `devices` and `order` are its CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. CUDA numbers the fastest GPU first unless
    told to go by PCI bus, as NVML does: numbers mean something only then, or when all GPUs are alike. As in CUDA, the
    list ends at the first entry that is none.
    """
    if devices is None:
        return None
    cards = [gpu for gpu in gpus if gpu.vendor == "nvidia" and gpu.slice_of is None]
    slices = [gpu for gpu in gpus if gpu.slice_of is not None]
    comparable = not slices and (order == "PCI_BUS_ID" or len({gpu.name for gpu in cards}) <= 1)
    seen: set[str] = set()
    for entry in devices.split(",", MAX_ENTRIES)[:MAX_ENTRIES]:
        word = entry.strip()
        if word.isascii() and word.isdigit():
            if not comparable:
                return None
            chosen = {gpu.index for gpu in cards if gpu.index == str(int(word))}
        elif word.startswith(("GPU-", "MIG-")):
            chosen = {gpu.index for gpu in (*cards, *slices) if gpu.uuid.startswith(word)}
            if word.startswith("MIG-GPU-"):
                return None  # the form of old drivers: card, GPU instance and compute instance
            if len(chosen) != 1:
                break  # a beginning must be that of one GPU only
            chosen |= {gpu.index for gpu in slices if gpu.slice_of in chosen}
        else:
            break
        if not chosen:
            break
        seen |= chosen
    return frozenset(seen)
