"""Each command line that is proposed, started on the real llama-server: its start-up lines show what was promised."""

from __future__ import annotations

import re

import pytest

from kvexporter.sizing import Configuration, RequestSizeFacts, SizingFacts, configurations
from tests.support.llama_server import RealLlamaServer
from tests.support.tiny_model import KV_BYTES_PER_TOKEN_F16, TRAINING_CONTEXT

MIB = 1 << 20

# The four agents at a sixteenth: sessions up to 9,942 tokens, windows of 16,384.
AGENTS = configurations(
    SizingFacts(4, 16_384, 16_384, True, TRAINING_CONTEXT, float(KV_BYTES_PER_TOKEN_F16), "f16", "f16"),
    RequestSizeFacts(p95=8_192, largest=9_942),
)
# The three requests as they were.
REQUESTS = configurations(
    SizingFacts(3, None, None, None, TRAINING_CONTEXT, float(KV_BYTES_PER_TOKEN_F16), "f16", "f16"),
    RequestSizeFacts(p95=4_362 + 1_738, largest=12_288),
)
# More than the model was trained on: the window is no larger for that.
TRAINED = configurations(
    SizingFacts(2, None, None, None, TRAINING_CONTEXT, float(KV_BYTES_PER_TOKEN_F16), "f16", "f16"),
    RequestSizeFacts(p95=TRAINING_CONTEXT + 1),
)
PROPOSED = {each.flags: each for found in (AGENTS, REQUESTS, TRAINED) for each in found if each.flags}
ALSO = {each.flags_any_build: each for each in PROPOSED.values() if each.flags_any_build}

INITIALIZING = re.compile(r"initializing, n_slots = (\d+), n_ctx_slot = (\d+), kv_unified = '(\w+)'")
CACHE = re.compile(r"llama_kv_cache: size = +([0-9.]+) MiB \( *(\d+) cells, +\d+ layers, +(\d+)/(\d+) seqs\)")


@pytest.mark.real_server
@pytest.mark.parametrize(
    ("flags", "promised"), [*PROPOSED.items(), *ALSO.items()], ids=lambda value: " ".join(value)
    if isinstance(value, tuple) else value.option
)  # fmt: skip
def test_a_real_server_makes_of_the_flags_what_was_promised(flags: tuple[str, ...], promised: Configuration) -> None:
    # At this verbosity the log has the cache's size too.
    with RealLlamaServer(*flags, "-lv", "4") as server:
        log = server.log()
    started = INITIALIZING.search(log)
    assert started is not None, log
    assert (int(started[1]), int(started[2])) == (promised.slots, promised.guaranteed)
    cache = CACHE.search(log)
    assert cache is not None, log
    size, cells, streams = float(cache[1]) * MIB, int(cache[2]), int(cache[4])
    assert cells * streams == promised.pool
    assert promised.kv_bytes is not None
    assert size == pytest.approx(promised.kv_bytes, abs=0.01 * MIB)
    shared = promised.slots > 1 and "-kvu" in flags
    assert (started[3], streams) == ("true" if shared else "false", 1 if shared else promised.slots)


def test_nothing_proposed_is_missing_here() -> None:
    assert {each.option for each in PROPOSED.values()} == {
        *("split", "capped", "grown_f16", "grown_q8", "grown_q4", "queue")
    }
