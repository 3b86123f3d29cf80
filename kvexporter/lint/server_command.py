"""One start of a llama-server, from its arguments and variables: what contradicts, does nothing, or is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvexporter.lint.command_line import Given, Occurrence, Walk
from kvexporter.lint.findings import Findings
from kvexporter.lint.options import find_variable
from kvexporter.lint.options_history import (
    AUTOMATIC_SLOTS,
    FLASH_ATTENTION_TAKES_A_VALUE,
    SINCE,
    SLOTS_BY_DEFAULT,
    UNIFIED_BY_ITSELF,
    VERBOSITY_THREE,
)
from kvexporter.lint.values import wrong_value
from kvexporter.lint.words import Argument, Value
from kvexporter.llama.launch import LaunchOptions, parse_launch

_OFF = frozenset(("off", "0", "disabled", "false"))
_FULL_PRECISION = frozenset(("f32", "f16", "bf16"))
# Options that may be given again and again.
_REPEATED = frozenset(
    ("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--override-kv", "-ot", "-l",
     "--dry-sequence-breaker", "-r", "--spec-replace", "--spec-draft-override-tensor", "--logit-bias", "-mm")
)  # fmt: skip


# It prints something and ends.
_ENDS_AT_ONCE = ("-h", "--version", "-cl", "--completion-bash", "--list-devices")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What is known of one start."""

    arguments: Sequence[Argument]
    variables: Mapping[str, Value] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    """Variable → mark of its assignment."""
    whole: bool = True
    """All arguments and variables are here; else only some, and nothing is said of what is not given."""
    mark: int = 0
    """Where the command starts, for what is said of all of it."""


def check_server(command: ServerCommand, out: Findings, build: int | None) -> None:
    """Add all that is wrong with one start of a llama-server."""
    given = Walk(command.arguments, out, build).run()
    _Checks(command, given, out, build).run()


def _readable(name: str, value: Value) -> Value:
    """The value, as unknown if the server cannot read it: then it is not known what was meant."""
    known = find_variable(name)
    if known is None or value is None or wrong_value(known.option, value.text) is None:
        return value
    return None


class _Checks:
    def __init__(self, command: ServerCommand, given: Given, out: Findings, build: int | None) -> None:
        self._command = command
        self._given = given
        self._out = out
        self._build = build
        variables = {name: _readable(name, value) for name, value in command.variables.items() if find_variable(name)}
        self._unknown_variables = any(value is None for value in variables.values())
        environment = {name: value.text for name, value in variables.items() if value is not None}
        self._launch: LaunchOptions = parse_launch(given.canonical(), environment)

    @property
    def _all_known(self) -> bool:
        """Whether what is not given here is not given at all."""
        unknown_value = any(not value.known for found in self._given.options for value in found.values)
        complete = self._command.whole and self._given.complete
        return complete and not unknown_value and not self._unknown_variables and not self._has_presets

    @property
    def _is_router(self) -> bool:
        """It is known that no model is given: by a router's own options, or since all that is given is here."""
        own = self._has_presets or self._is_given("--models-dir", "LLAMA_ARG_MODELS_DIR")
        return self._launch.router and (own or self._all_known)

    @property
    def _has_presets(self) -> bool:
        """A router's file says more of each model; what is given here counts for all of them."""
        return self._is_given("--models-preset", "LLAMA_ARG_MODELS_PRESET")

    def _is_given(self, option: str, variable: str) -> bool:
        return self._given.last(option) is not None or variable in self._command.variables

    def run(self) -> None:
        if any(self._given.last(option) is not None for option in _ENDS_AT_ONCE):
            return
        self._repeated()
        self._overridden()
        if self._all_known and self._launch.router and not self._is_given("--models-dir", "LLAMA_ARG_MODELS_DIR"):
            self._no_model()
        self._pool()
        self._v_cache()
        self._log()
        if self._launch.slots is False:
            self._slots_off()
        if self._all_known and not self._launch.router:
            self._missing()

    def _at(self, option: str, *variables: str) -> int:
        """Where an option is given, on the command line or by a variable."""
        found = self._given.last(option)
        if found is not None:
            return found.name.start
        return next((self._command.starts[name] for name in variables if name in self._command.starts), self._end()[0])

    def _end(self) -> tuple[int, int]:
        """Where the command starts and ends."""
        if self._command.arguments:
            return self._command.mark or self._command.arguments[0].start, self._command.arguments[-1].end
        first = next(iter(self._command.starts.values()), self._command.mark)
        return first, first

    def _added(self, words: str) -> str:
        """The command's last line with more words."""
        if not self._command.arguments:
            return ""
        end = self._end()[1]
        return self._out.book.replaced(end, end, f" {words}")

    def _removed(self, found: Occurrence) -> str:
        return self._out.book.removed(found.name.start, found.end)

    def _with_value(self, option: str, value: str) -> str:
        found = self._given.last(option)
        if found is None or not found.values:
            return ""
        return self._out.book.replaced(found.values[0].start, found.values[0].end, value)

    # What is said twice or against itself.

    def _repeated(self) -> None:
        seen: dict[str, Occurrence] = {}
        for found in self._given.options:
            before = seen.get(found.option)
            seen[found.option] = found
            if before is None or found.option in _REPEATED:
                continue
            if before.known.positive != found.known.positive:
                self._out.add(
                    "contradiction", "warning", before.name.start,
                    f"{before.name.text} and {found.name.text} contradict each other",
                    f"The last one counts: {found.name.text}.", self._removed(before),
                )  # fmt: skip
            elif before.values or found.values:
                same = [value.text for value in before.values] == [value.text for value in found.values]
                happens = "It does no harm." if same else f"The last one counts: {self._shown(found)}."
                self._out.add(
                    "given-twice", "warning", before.name.start,
                    f"{before.name.text} is given again as {found.name.text}"
                    if before.name.text != found.name.text
                    else f"{found.name.text} is given twice",
                    happens, self._removed(before),
                )  # fmt: skip

    @staticmethod
    def _shown(found: Occurrence) -> str:
        return " ".join([found.name.text, *(value.text if value.known else "…" for value in found.values)])

    def _overridden(self) -> None:
        for name, mark in self._command.starts.items():
            known = find_variable(name)
            found = self._given.last(known.option.names[0]) if known is not None else None
            if found is None:
                continue
            self._out.add(
                "variable-overridden", "warning", mark, f"{name} does nothing: {found.name.text} is given as well",
                f"The command line counts: {self._shown(found)}.",
            )  # fmt: skip

    def _no_model(self) -> None:
        start, router = self._end()[0], SINCE["--models-dir"]
        if self._build is not None and self._build < router:
            self._out.add(
                "no-model", "error", start, f"no model is given, and builds before b{router} need one",
                "They look for models/7B/ggml-model-f16.gguf in their folder, and end if it is not there.",
                self._added("-m FILE"),
            )  # fmt: skip
            return
        self._out.add(
            "no-model", "note", start, "no model is given: the server becomes a router",
            f"Builds from b{router} on then load each model that is asked for into a server of its own, which gets "
            "these options and so a pool as they say. Older builds need -m.",
        )  # fmt: skip

    # How the pool is cut.

    def _each(self, words: str) -> str:
        """The words about a pool, for as many pools as there will be."""
        return f"{words} Each model that the router loads gets such a pool." if self._is_router else words

    def _slots(self) -> int | None:
        """How many slots there will be; None where that is not known."""
        if self._launch.parallel is not None:
            return self._launch.parallel
        if not self._all_known:
            return None
        return 4 if self._automatic() else 1

    def _automatic(self) -> bool:
        return self._launch.parallel is None and (self._build is None or self._build >= AUTOMATIC_SLOTS)

    def _unified(self) -> bool | None:
        if self._launch.parallel is None:
            if not self._all_known:
                return None
            if self._automatic():
                return self._launch.unified is not False or self._build is None or self._build >= UNIFIED_BY_ITSELF
        if self._launch.unified is None and not self._all_known:
            return None
        return bool(self._launch.unified)

    def _pool(self) -> None:
        launch = self._launch
        if launch.context == 0:
            self._out.add(
                "context-of-the-model", "warning", self._at("-c", "LLAMA_ARG_CTX_SIZE"),
                "-c 0 leaves the size to the model",
                "The buffer gets the model's whole training context, whatever memory that takes.",
            )  # fmt: skip
        slots, unified = self._slots(), self._unified()
        if launch.unified is False and launch.parallel is None and unified:
            self._unified_all_the_same()
        if slots is None or unified is None:
            return
        if unified and slots > 1:
            self._overcommitted(slots)
        elif not unified and launch.per_slot is not None:
            self._cap_without_unified(slots)

    def _unified_all_the_same(self) -> None:
        found = self._given.last("-kvu")
        self._out.add(
            "does-nothing", "warning", self._at("-kvu", "LLAMA_ARG_NO_KV_UNIFIED", "LLAMA_ARG_KV_UNIFIED"),
            f"{found.name.text if found else '--no-kv-unified'} does nothing without -np",
            f"Builds from b{UNIFIED_BY_ITSELF} on have four slots and one shared buffer when -np is not given.",
            self._out.book.replaced(found.name.end, found.name.end, " -np 4") if found else "",
        )  # fmt: skip

    def _overcommitted(self, slots: int) -> None:
        launch = self._launch
        pool = launch.context
        if not pool:
            if launch.per_slot is None and self._automatic():
                self._out.add(
                    "pool-overcommitted", "warning", self._end()[0], "four automatic slots share one buffer",
                    self._each(
                        "Each is promised all of it. When the sum of what they hold reaches it, every running request "
                        "dies with “Context size has been exceeded”."
                    ),
                    self._added("-np 4 --no-kv-unified"),
                )  # fmt: skip
            return
        slot = min(pool, launch.per_slot or pool)
        promised = slots * slot
        if promised <= pool:
            return
        given = "four automatic slots" if launch.parallel is None else f"{slots} slots"
        if launch.per_slot is not None:
            correction = self._with_value("-c", str(slots * launch.per_slot))
        elif self._build is None or self._build >= SINCE["--kv-unified-per-slot"]:
            correction = self._added(f"--kv-unified-per-slot {pool // slots}")
        else:
            correction = ""
        self._out.add(
            "pool-overcommitted", "warning", self._at("-c", "LLAMA_ARG_CTX_SIZE"),
            f"{given} of {slot:,} tokens are promised {promised:,} and share {pool:,}",
            self._each(
                f"When the sum of what they hold reaches {pool:,}, every running request dies with “Context size has "
                f"been exceeded”. Sure are {pool // slots:,} a slot."
            ),
            correction,
        )  # fmt: skip

    def _cap_without_unified(self, slots: int) -> None:
        launch = self._launch
        cap, pool = launch.per_slot, launch.context
        if cap is None or slots < 2:
            return
        mark = self._at("--kv-unified-per-slot", "LLAMA_ARG_KV_UNIFIED_PER_SLOT")
        if not pool:
            self._out.add(
                "cap-without-unified", "note", mark, "--kv-unified-per-slot without -kvu: the slots share nothing",
                f"The buffer gets {slots} times {cap:,} tokens, and is split: each slot has {cap:,} of its own.",
                self._added("-kvu"),
            )  # fmt: skip
        elif pool // slots <= cap:
            self._out.add(
                "cap-without-unified", "warning", mark, "--kv-unified-per-slot does nothing without -kvu",
                f"The buffer is split: each of {slots} slots has {pool // slots:,} tokens, not {cap:,}.",
                self._added("-kvu") if pool >= slots * cap else self._with_value("-c", str(slots * cap)),
            )  # fmt: skip

    def _v_cache(self) -> None:
        v_type = self._launch.cache_type_v
        if v_type is None or v_type in _FULL_PRECISION:
            return
        flash = self._given.last("-fa")
        word = flash.values[0].text if flash is not None and flash.values else None
        if flash is None:
            variable = self._command.variables.get("LLAMA_ARG_FLASH_ATTN")
            word = variable.text if variable is not None else None
        old = self._build is not None and self._build < FLASH_ATTENTION_TAKES_A_VALUE
        off = word in _OFF or (old and flash is None and word is None and self._all_known)
        if not off:
            return
        correction = self._added("-fa") if old else self._with_value("-fa", "on")
        self._out.add(
            "v-cache-needs-flash-attention", "error", self._at("-ctv", "LLAMA_ARG_CACHE_TYPE_V"),
            f"a V cache of {v_type} needs flash attention, which is off",
            "llama-server loads the model and then ends with “quantized V cache requires flash_attn to be enabled” "
            "(older builds: “V cache quantization requires flash_attn”).",
            correction,
        )  # fmt: skip

    # What kvexporter needs.

    def _slots_off(self) -> None:
        found = self._given.last("--slots")
        self._out.add(
            "slots-endpoint-off", "warning",
            self._at("--slots", "LLAMA_ARG_NO_ENDPOINT_SLOTS", "LLAMA_ARG_ENDPOINT_SLOTS"),
            "the endpoint /slots is turned off",
            "kvexporter has only the log to tell who holds how much: nothing between the lines of a long answer.",
            self._removed(found) if found is not None else "",
        )  # fmt: skip

    def _log(self) -> None:
        disabled = self._given.last("--log-disable")
        if disabled is not None:
            self._out.add(
                "log-off", "warning", disabled.name.start, "the log is turned off",
                "kvexporter counts incidents from the log, and finds out who held what there.", self._removed(disabled),
            )  # fmt: skip
        verbosity = self._launch.verbosity
        # Older builds count otherwise.
        if verbosity is not None and verbosity < 3 and (self._build is None or self._build >= VERBOSITY_THREE):
            self._out.add(
                "log-too-quiet", "warning", self._at("-lv", "LLAMA_ARG_LOG_VERBOSITY", "LLAMA_LOG_VERBOSITY"),
                f"verbosity {verbosity} hides the lines of starts and ends of requests",
                "Incidents are still counted, but not who held what. The default of builds since May 2026 is 3.",
                self._with_value("-lv", "3"),
            )  # fmt: skip

    def _missing(self) -> None:
        start = self._end()[0]
        if self._launch.metrics is None:
            self._out.add(
                "metrics-missing", "note", start, "--metrics is not given",
                "kvexporter shows everything but llama-server's own counters.", self._added("--metrics"),
            )  # fmt: skip
        if self._launch.slots is None and self._build is not None and self._build < SLOTS_BY_DEFAULT:
            self._out.add(
                "slots-missing", "note", start, f"--slots is not given, and builds before b{SLOTS_BY_DEFAULT} need it",
                "kvexporter has only the log to tell who holds how much.", self._added("--slots"),
            )  # fmt: skip
