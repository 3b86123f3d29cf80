"""The KV cache that a start of a llama-server asks for: how the slots share it, and whether its types can be had."""

from __future__ import annotations

from kvexporter.lint.findings import Findings
from kvexporter.lint.options_history import (
    AUTOMATIC_SLOTS,
    FLASH_ATTENTION_TAKES_A_VALUE,
    SINCE,
    UNIFIED_BY_ITSELF,
)
from kvexporter.lint.server_command import UnderstoodCommand

_OFF = frozenset(("off", "0", "disabled", "false"))
_FULL_PRECISION = frozenset(("f32", "f16", "bf16"))


def check_pool(command: UnderstoodCommand, out: Findings) -> None:
    """How the pool is cut: what the slots are promised, and what of it they cannot all have."""
    launch = command.launch
    if launch.context == 0:
        out.add(
            "context-of-the-model", "warning", command.at("-c", "LLAMA_ARG_CTX_SIZE"),
            "-c 0 leaves the size to the model",
            "The buffer gets the model's whole training context, whatever memory that takes.",
        )  # fmt: skip
    slots, unified = _slots(command), _unified(command)
    if launch.unified is False and launch.parallel is None and unified:
        _unified_all_the_same(command, out)
    if slots is None or unified is None:
        return
    if unified and slots > 1:
        _overcommitted(command, out, slots)
    elif not unified and launch.per_slot is not None:
        _cap_without_unified(command, out, slots)


def check_v_cache(command: UnderstoodCommand, out: Findings) -> None:
    """A quantized V cache without the flash attention that it needs."""
    v_type = command.launch.cache_type_v
    if v_type is None or v_type in _FULL_PRECISION:
        return
    flash = command.given.last("-fa")
    word = flash.values[0].text if flash is not None and flash.values else None
    if flash is None:
        variable = command.variables.get("LLAMA_ARG_FLASH_ATTN")
        word = variable.text if variable is not None else None
    old = command.build is not None and command.build < FLASH_ATTENTION_TAKES_A_VALUE
    off = word in _OFF or (old and flash is None and word is None and command.all_known)
    if not off:
        return
    correction = command.added("-fa") if old else command.with_value("-fa", "on")
    out.add(
        "v-cache-needs-flash-attention", "error", command.at("-ctv", "LLAMA_ARG_CACHE_TYPE_V"),
        f"a V cache of {v_type} needs flash attention, which is off",
        "llama-server loads the model and then ends with “quantized V cache requires flash_attn to be enabled” "
        "(older builds: “V cache quantization requires flash_attn”).",
        correction,
    )  # fmt: skip


def _slots(command: UnderstoodCommand) -> int | None:
    """How many slots there will be; None where that is not known."""
    if command.launch.parallel is not None:
        return command.launch.parallel
    if not command.all_known:
        return None
    return 4 if _automatic(command) else 1


def _automatic(command: UnderstoodCommand) -> bool:
    """Whether the server chooses the number of slots by itself."""
    return command.launch.parallel is None and (command.build is None or command.build >= AUTOMATIC_SLOTS)


def _unified(command: UnderstoodCommand) -> bool | None:
    """Whether the slots will share one buffer; None where that is not known."""
    launch = command.launch
    if launch.parallel is None:
        if not command.all_known:
            return None
        if _automatic(command):
            return launch.unified is not False or command.build is None or command.build >= UNIFIED_BY_ITSELF
    if launch.unified is None and not command.all_known:
        return None
    return bool(launch.unified)


def _unified_all_the_same(command: UnderstoodCommand, out: Findings) -> None:
    found = command.given.last("-kvu")
    out.add(
        "does-nothing", "warning", command.at("-kvu", "LLAMA_ARG_NO_KV_UNIFIED", "LLAMA_ARG_KV_UNIFIED"),
        f"{found.name.text if found else '--no-kv-unified'} does nothing without -np",
        f"Builds from b{UNIFIED_BY_ITSELF} on have four slots and one shared buffer when -np is not given.",
        command.added_after(found, "-np 4"),
    )  # fmt: skip


def _overcommitted(command: UnderstoodCommand, out: Findings, slots: int) -> None:
    launch = command.launch
    pool = launch.context
    if not pool:
        if launch.per_slot is None and _automatic(command):
            out.add(
                "pool-overcommitted", "warning", command.start, "four automatic slots share one buffer",
                _each(
                    command,
                    "Each is promised all of it. When the sum of what they hold reaches it, every running request "
                    "dies with “Context size has been exceeded”."
                ),
                command.added("-np 4 --no-kv-unified"),
            )  # fmt: skip
        return
    slot = min(pool, launch.per_slot or pool)
    promised = slots * slot
    if promised <= pool:
        return
    given = "four automatic slots" if launch.parallel is None else f"{slots} slots"
    if launch.per_slot is not None:
        correction = command.with_value("-c", str(slots * launch.per_slot))
    elif command.build is None or command.build >= SINCE["--kv-unified-per-slot"]:
        correction = command.added(f"--kv-unified-per-slot {pool // slots}")
    else:
        correction = ""
    out.add(
        "pool-overcommitted", "warning", command.at("-c", "LLAMA_ARG_CTX_SIZE"),
        f"{given} of {slot:,} tokens are promised {promised:,} and share {pool:,}",
        _each(
            command,
            f"When the sum of what they hold reaches {pool:,}, every running request dies with “Context size has "
            f"been exceeded”. Sure are {pool // slots:,} a slot."
        ),
        correction,
    )  # fmt: skip


def _each(command: UnderstoodCommand, words: str) -> str:
    """The words about a pool, for as many pools as there will be."""
    return f"{words} Each model that the router loads gets such a pool." if command.is_router else words


def _cap_without_unified(command: UnderstoodCommand, out: Findings, slots: int) -> None:
    cap, pool = command.launch.per_slot, command.launch.context
    if cap is None or slots < 2:
        return
    mark = command.at("--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT")
    if not pool:
        out.add(
            "cap-without-unified", "note", mark, "--kv-unified-per-slot without -kvu: the slots share nothing",
            f"The buffer gets {slots} times {cap:,} tokens, and is split: each slot has {cap:,} of its own.",
            command.added("-kvu"),
        )  # fmt: skip
    elif pool // slots <= cap:
        out.add(
            "cap-without-unified", "warning", mark, "--kv-unified-per-slot does nothing without -kvu",
            f"The buffer is split: each of {slots} slots has {pool // slots:,} tokens, not {cap:,}.",
            command.added("-kvu") if pool >= slots * cap else command.with_value("-c", str(slots * cap)),
        )  # fmt: skip
