"""Rules on the llama-server itself: down, stuck while loading, in a crash loop, killed for want of memory."""

from __future__ import annotations

from kvexporter.rules import thresholds as limit
from kvexporter.rules.links import FLEET_DASHBOARD, MEMORY_DASHBOARD
from kvexporter.rules.rule import SERVER_LABELS, AlertRule, RuleGroup, of, of_server
from kvexporter.rules.spans import in_words, span

_CRASHES = span(limit.CRASH_WINDOW)
_KILLS = span(limit.OOM_WINDOW)
_STOPPED = f"{of_server('llama_unit_stopped_on_request')} == 1"

DOWN = AlertRule(
    name="LlamaServerDown",
    severity="page",
    when=f"The server has not run, or not answered, for {in_words(limit.DOWN_FOR)}, and systemd was not asked to stop "
    "its unit. One that loads or sleeps is up.",
    expr=f"""\
{of_server("llama_up")} == 0
unless
{_STOPPED}""",
    summary="{server}: llama-server is down",
    description=(
        f"{{server}} on {{instance}} has not answered for {in_words(limit.DOWN_FOR)}: no client gets an answer.",
        "Its unit is {unit}.",
        "First: `systemctl status` and the last lines of its log say why it ended.",
    ),
    dashboard=FLEET_DASHBOARD,
    hold=limit.DOWN_FOR,
)

LOADING = AlertRule(
    name="LlamaServerLoadingTooLong",
    severity="warning",
    when=f"The server has been loading its model for {in_words(limit.LOADING_FOR)}.",
    expr=of_server('llama_server_state{state="loading"}') + " == 1",
    summary="{server}: the model has been loading for long",
    description=(
        f"{{server}} on {{instance}} has been loading its model for {in_words(limit.LOADING_FOR)} and answers every "
        "request with 503.",
        "The model is {model}.",
        "Its process has {resident}B in memory so far.",
        "First: see whether that still grows; if it does, the disk or the network is slow, if not, it hangs.",
    ),
    dashboard=FLEET_DASHBOARD,
    hold=limit.LOADING_FOR,
)

CRASH_LOOPING = AlertRule(
    name="LlamaServerCrashLooping",
    severity="page",
    when=f"systemd restarted the server {limit.CRASH_RESTARTS} times or more within {in_words(limit.CRASH_WINDOW)}, "
    "and was not asked to stop it since; `code` is the exit status or the signal.",
    # A code has no series before its first exit, so increase() would miss that one: the restarts are counted instead.
    expr=f"""\
(
  {of((*SERVER_LABELS, "code"), f"changes(llama_unit_exits_total[{_CRASHES}])")} > 0
  or
  {of((*SERVER_LABELS, "code"), f"llama_unit_exits_total unless llama_unit_exits_total offset {_CRASHES}")}
)
and on ({", ".join(SERVER_LABELS)})
{of_server(f"increase(llama_unit_restarts_total[{_CRASHES}])")} > {limit.CRASH_RESTARTS - 0.5:g}
unless on ({", ".join(SERVER_LABELS)})
{_STOPPED}""",
    summary="{server}: llama-server is in a crash loop, exit code {code}",
    description=(
        "{server} on {instance} ends soon after each start, with exit code {code}, and systemd starts it again.",
        f"Restarts in the last {in_words(limit.CRASH_WINDOW)}: {{restarts}}.",
        "Its unit is {unit}.",
        "First: `journalctl` for its first error after a start; 127 is a command that does not exist, often an "
        "unquoted value in an environment file, which `kvexporter lint` finds.",
    ),
    dashboard=FLEET_DASHBOARD,
    labels=(*SERVER_LABELS, "code"),
)

OUT_OF_MEMORY = AlertRule(
    name="LlamaServerOutOfMemory",
    severity="page",
    when=f"A process of the server was killed for want of memory, within the last {in_words(limit.OOM_WINDOW)}.",
    expr=f"""\
{of_server(f"increase(llama_unit_oom_kills_total[{_KILLS}])")} > 0
or
{of_server(f"increase(llama_cgroup_oom_kills_total[{_KILLS}])")} > 0""",
    summary="{server}: killed for want of memory",
    description=(
        "A process of {server} on {instance} was killed because memory ran out; all its requests died with it.",
        "It may take {memory_limit}B.",
        "It has {resident}B in memory now.",
        "First: see on the memory dashboard what grew; then give the KV cache or the model less.",
    ),
    dashboard=MEMORY_DASHBOARD,
)

SERVER = RuleGroup(
    name="server",
    about="The llama-server itself: down, stuck while loading, in a crash loop, killed for want of memory.",
    rules=(DOWN, CRASH_LOOPING, OUT_OF_MEMORY, LOADING),
)
