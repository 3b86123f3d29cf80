"""Rules on memory: creeping, weights read again from disk, the host's or the GPU's nearly gone."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.links import MEMORY_DASHBOARD
from kvexporter.rules.records import GROWTH
from kvexporter.rules.rule import HOST_LABELS, AlertRule, RuleGroup, of, of_host, of_server
from kvexporter.rules.spans import in_words, span

_READY = of_server('llama_memory_at_ready_bytes{kind="anon"}')
_STEP = span(limit.CREEP_STEP)
_TWO_STEPS = span(2 * limit.CREEP_STEP)
_GPU = (*HOST_LABELS, "gpu")

CREEPING = AlertRule(
    name="LlamaMemoryCreeping",
    severity="warning",
    when=f"The process's own memory is {limit.CREEP_RATIO:.0%} and {limit.CREEP_BYTES / 2**30:g} GiB above what it "
    f"took at its start, and rose by {limit.CREEP_STEP_RATIO:.0%} in each of the last two "
    f"{in_words(limit.CREEP_STEP)}.",
    expr=f"""\
{GROWTH} > {limit.CREEP_RATIO:g} * {_READY}
and
{GROWTH} > {limit.CREEP_BYTES}
and
{GROWTH} - {GROWTH} offset {_STEP} > {limit.CREEP_STEP_RATIO:g} * {_READY}
and
{GROWTH} offset {_STEP} - {GROWTH} offset {_TWO_STEPS} > {limit.CREEP_STEP_RATIO:g} * {_READY}""",
    summary="{server}: its memory creeps up",
    description=(
        f"The own memory of {{server}}'s process on {{instance}} (without its mapped files) has grown for "
        f"{in_words(2 * limit.CREEP_STEP)}.",
        "It took {at_ready}B at its start and has taken {growth}B since.",
        "First: see whether saved prompts explain it (`--cache-ram`, 8 GiB unless set); what grows beyond that is a "
        "leak, and a restart frees it.",
    ),
    dashboard=MEMORY_DASHBOARD,
    hold=limit.CREEP_FOR,
)

REREAD = AlertRule(
    name="LlamaWeightsReread",
    severity="warning",
    when=f"More than {limit.MAJOR_FAULTS_PER_SECOND} page faults a second had to read from disk over "
    f"{in_words(limit.MAJOR_FAULTS_WINDOW)}, for {in_words(limit.MAJOR_FAULTS_FOR)}; not in a server's first "
    f"{in_words(limit.MAJOR_FAULTS_SETTLED)}.",
    expr=f"""\
{of_server(f"rate(llama_process_major_page_faults_total[{span(limit.MAJOR_FAULTS_WINDOW)}])")} > \
{limit.MAJOR_FAULTS_PER_SECOND}
and
{of_server("time() - llama_process_start_time_seconds")} > {limit.MAJOR_FAULTS_SETTLED}""",
    summary="{server}: weights are read again from disk",
    description=(
        "The kernel pushes mapped weights of {server} on {instance} out of memory and has to read them again, which "
        "slows every answer.",
        "{faults} page faults a second read from disk.",
        "First: see what else takes memory on the host; a smaller KV cache gives it back to the weights.",
    ),
    dashboard=MEMORY_DASHBOARD,
    hold=limit.MAJOR_FAULTS_FOR,
)

UNIFIED_LOW = AlertRule(
    name="LlamaUnifiedMemoryLow",
    severity="warning",
    when=f"Less than {limit.UNIFIED_AVAILABLE_RATIO:.0%} of the memory that host and GPU share is left, for "
    f"{in_words(limit.UNIFIED_FOR)}.",
    expr=f"""\
{of_host("llama_unified_memory_available_bytes")} < {limit.UNIFIED_AVAILABLE_RATIO:g} * \
{of_host("llama_unified_memory_total_bytes")}""",
    summary="{instance}: the memory that host and GPU share is nearly gone",
    description=(
        "Weights, KV caches and everything else on the host of {instance} compete for one memory, and little is left "
        "of it: next the kernel drops mapped weights, then kills a process.",
        "{unified_available}B of {unified_total}B are left.",
        "First: see on the memory dashboard which server takes most, and give its KV cache less.",
    ),
    dashboard=MEMORY_DASHBOARD,
    labels=HOST_LABELS,
    hold=limit.UNIFIED_FOR,
)

GPU_LOW = AlertRule(
    name="LlamaGpuMemoryLow",
    severity="warning",
    when=f"A GPU with its own memory has less than {limit.GPU_FREE_BYTES // 2**20} MiB free, for "
    f"{in_words(limit.GPU_FOR)}.",
    expr=f"{of(_GPU, 'llama_gpu_memory_total_bytes - llama_gpu_memory_used_bytes')} < {limit.GPU_FREE_BYTES}",
    summary="{instance}: the memory of GPU {gpu} is nearly gone",
    description=(
        "GPU {gpu} of {instance} has almost no memory free: the next allocation fails, and a start or a reload of a "
        "model with it.",
        "It is a {gpu_name}.",
        "{gpu_used}B of {gpu_total}B are in use.",
        "Most of it is held by {gpu_biggest}.",
        "First: see what else uses this GPU; then give the KV cache less or offload fewer layers.",
    ),
    dashboard=MEMORY_DASHBOARD,
    labels=_GPU,
    hold=limit.GPU_FOR,
)

MEMORY = RuleGroup(
    name="memory",
    about="Memory: creeping, weights read again from disk, the host's or the GPU's nearly gone.",
    rules=(UNIFIED_LOW, GPU_LOW, REREAD, CREEPING),
)
