from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvexporter.llama.geometry import geometry_from_api, geometry_from_launch
from kvexporter.llama.launch import LaunchOptions, parse_launch
from kvexporter.pool_geometry import Geometry
from tests.support.paths import RECORDINGS


def geometry(
    line: str, *, slots: int | None = None, slot_context: int | None = None, training_context: int | None = None
) -> Geometry:
    options = parse_launch(["-m", "m.gguf", *shlex.split(line)], {})
    return geometry_from_launch(options, slots=slots, slot_context=slot_context, training_context=training_context)


def known(slots: int | None, slot_context: int | None, capacity: int | None, shared: bool | None) -> Geometry:
    return Geometry(slots, slot_context, capacity, shared, "cmdline")


class TestOperatorsConfigurations:
    """The configurations that two operators ran; the slots of an automatic number are known over the API only."""

    @pytest.mark.parametrize(
        ("line", "slots", "slot_context", "expected", "overcommit", "guaranteed"),
        [
            pytest.param("--ctx-size 16384", 4, 16384, known(4, 16384, 16384, True), 4, 4096, id="original"),
            pytest.param(
                "--ctx-size 16384 --parallel 3 --no-kv-unified",
                None,
                None,
                # 16,384 / 3 = 5,461.3, each part rounded up to 256.
                known(3, 5632, 16896, False),
                1,
                5632,
                id="C2",
            ),
            pytest.param(
                "--ctx-size 12288 -ctk q8_0 -ctv q8_0 -np 1",
                None,
                None,
                known(1, 12288, 12288, False),
                1,
                12288,
                id="C3P",
            ),
            pytest.param(
                "-c 262144 -np 4 -kvu",
                None,
                None,
                known(4, 262144, 262144, True),
                4,
                65536,
                id="original, overcommitted",
            ),
            pytest.param(
                "-np 4 -kvu --kv-unified-per-slot 131072",
                None,
                None,
                known(4, 131072, 524288, True),
                1,
                131072,
                id="A",
            ),
            pytest.param(
                "-c 1048576 -np 4 -kvu --kv-unified-per-slot 262144 -ctk q8_0 -ctv q8_0",
                None,
                None,
                known(4, 262144, 1048576, True),
                1,
                262144,
                id="B",
            ),
            pytest.param(
                "-c 1048576 -np 4 -kvu --kv-unified-per-slot 262144",
                None,
                None,
                known(4, 262144, 1048576, True),
                1,
                262144,
                id="C",
            ),
            pytest.param("-c 262144 -np 4", None, None, known(4, 65536, 262144, False), 1, 65536, id="split"),
        ],
    )
    def test_pool_overcommit_and_guaranteed_window(
        self,
        line: str,
        slots: int | None,
        slot_context: int | None,
        expected: Geometry,
        overcommit: float,
        guaranteed: int,
    ) -> None:
        found = geometry(line, slots=slots, slot_context=slot_context, training_context=262144)
        assert found == expected
        assert (found.overcommit_ratio, found.guaranteed) == (overcommit, guaranteed)


class TestRealServer:
    """What b11434 itself said of its slots and cells when started so (training contexts 262,144, 4,096 and 5,000)."""

    @pytest.mark.parametrize(
        ("line", "training", "slots", "slot_context", "cells", "shared"),
        [
            ("-c 10000 -np 3", 262144, 3, 3584, 10752, False),
            ("-c 5000 -np 4 -kvu", 262144, 4, 5120, 5120, True),
            ("-c 300 -np 2", 262144, 2, 256, 512, False),
            ("-c 100 -np 4", 262144, 4, 256, 1024, False),
            ("-c 5000 -np 1", 262144, 1, 5120, 5120, False),
            ("-c 5000 -np 1 -kvu", 262144, 1, 5120, 5120, False),
            ("-c 5000", 262144, 4, 5120, 5120, True),
            ("-c 5000 -no-kvu", 262144, 4, 5120, 5120, True),
            ("-c 5000 -np -1 --no-kv-unified", 262144, 4, 5120, 5120, True),
            ("-c 0 -np 2", 262144, 2, 262144, 524288, False),
            ("-c 0 -np 2 -kvu", 262144, 2, 262144, 262144, True),
            ("-np 2 -kvu", 262144, 2, 262144, 262144, True),
            ("-np 2", 262144, 2, 262144, 524288, False),
            ("-c 10000 -np 2", 4096, 2, 4096, 10240, False),
            ("-c 10000 -np 2 -kvu", 4096, 2, 4096, 10240, True),
            ("-c 0 -np 2 -kvu", 5000, 2, 5000, 5120, True),
            ("-c 0 -np 3", 5000, 3, 5000, 15360, False),
            ("-c 0 -np 1", 5000, 1, 5000, 5120, False),
            ("-np 3 -kvu --kv-unified-per-slot 1000", 262144, 3, 1000, 3072, True),
            ("-np 3 --kv-unified-per-slot 1000", 262144, 3, 1000, 3072, False),
            ("--kv-unified-per-slot 1000", 262144, 4, 1000, 4096, True),
            ("-np 1 --kv-unified-per-slot 1000", 262144, 1, 1000, 1024, False),
            ("-c 0 -np 3 -kvu --kv-unified-per-slot 1000", 262144, 3, 1000, 262144, True),
            ("-c 0 -np 1 --kv-unified-per-slot 1000", 262144, 1, 1000, 262144, False),
            ("-c 2048 -np 4 -kvu --kv-unified-per-slot 4096", 262144, 4, 2048, 2048, True),
            ("-c 8192 -np 4 --kv-unified-per-slot 1000", 262144, 4, 1000, 8192, False),
            ("-np 2 -kvu --kv-unified-per-slot 8192", 4096, 2, 4096, 16384, True),
            ("-np 2 --kv-unified-per-slot 3000", 4096, 2, 3000, 6144, False),
            ("-c 4096 -np 2 -kvu --kv-unified-per-slot 0", 262144, 2, 4096, 4096, True),
        ],
    )
    def test_options_and_what_the_api_shows_give_the_real_pool(
        self, line: str, training: int, slots: int, slot_context: int, cells: int, shared: bool
    ) -> None:
        expected = known(slots, slot_context, cells, shared)
        assert geometry(line, slots=slots, slot_context=slot_context, training_context=training) == expected
        if "-np" in line and "-np -1" not in line and ("-c" in line or "per-slot" in line):
            assert geometry(line, training_context=training) == expected


EXPECTED = json.loads((RECORDINGS / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recorded_command_line_gives_the_expected_geometry(name: str) -> None:
    arguments = json.loads((RECORDINGS / name / "requests.json").read_text())["args"]
    expected = EXPECTED[name]["geometry"]
    options = parse_launch([*arguments, "-m", "tiny.gguf"], {})
    found = geometry_from_launch(
        options,
        slots=expected["slots"],
        slot_context=expected["slot_context_tokens"],
        training_context=262144,
    )
    assert found.slots == expected["slots"]
    assert found.slot_context == expected["slot_context_tokens"]
    assert found.capacity == expected["pool_capacity_tokens"]
    assert found.promised == expected["promised_tokens"]
    assert found.overcommit_ratio == expected["overcommit_ratio"]
    assert found.guaranteed == expected["guaranteed_tokens"]
    # Without -kvu, builds before August 2025 share one buffer in equal parts, later ones split it. Only the log can
    # tell them apart, and nothing else depends on it: equal parts cannot overflow.
    if not name.startswith("b5541/"):
        assert found.shared == expected["pool_shared"]


class TestOlderBuilds:
    def test_unified_pool_that_gives_each_slot_its_part_is_not_overcommitted(self) -> None:
        found = geometry("-c 4096 -np 4 -kvu", slots=4, slot_context=1024)
        assert found == known(4, 1024, 4096, True)
        assert found.overcommit_ratio == 1

    def test_one_slot_when_none_were_asked_for(self) -> None:
        assert geometry("-c 4096", slots=1, slot_context=4096) == known(1, 4096, 4096, False)

    def test_default_context_of_4096_in_parts_is_told_by_a_larger_training_context(self) -> None:
        assert geometry("-np 4 -kvu", slots=4, slot_context=1024, training_context=32768).capacity == 4096

    def test_model_trained_on_the_slot_context_has_a_pool_of_that_size(self) -> None:
        assert geometry("-np 4 -kvu", slots=4, slot_context=1024, training_context=1024).capacity == 1024

    def test_neither_is_guessed_while_the_training_context_is_unknown(self) -> None:
        assert geometry("-np 4 -kvu", slots=4, slot_context=1024) == known(4, 1024, None, True)

    def test_training_context_divided_among_slots_is_one_pool(self) -> None:
        found = geometry("-c 0 -np 4 -kvu", slots=4, slot_context=8192, training_context=32768)
        assert found == known(4, 8192, 32768, True)


class TestUnknown:
    def test_automatic_slots_not_yet_seen_leave_only_the_pool(self) -> None:
        assert geometry("-c 5000") == known(None, 5120, 5120, None)

    def test_training_context_not_known_leaves_c_0_unknown(self) -> None:
        assert geometry("-c 0 -np 4 -kvu") == known(4, None, None, True)
        assert geometry("-c 0 -np 4") == known(4, None, None, False)
        assert geometry("-c 0") == known(None, None, None, None)

    def test_without_c_the_pool_is_what_the_slots_show(self) -> None:
        assert geometry("-np 4 -kvu") == known(4, None, None, True)
        assert geometry("-np 4 -kvu", slots=4, slot_context=8192).capacity == 8192
        assert geometry("-np 4", slots=4, slot_context=8192).capacity == 32768
        assert geometry("", slots=4, slot_context=8192) == known(4, 8192, 8192, True)

    def test_slot_context_that_is_the_cap_does_not_tell_the_pool(self) -> None:
        found = geometry("-c 0 -np 4 -kvu --kv-unified-per-slot 1024", slots=4, slot_context=1024)
        assert found == known(4, 1024, None, True)

    def test_pool_sized_by_the_cap_needs_the_number_of_slots(self) -> None:
        assert geometry("--kv-unified-per-slot 1024") == known(None, None, None, None)

    def test_router_has_no_pool(self) -> None:
        options = parse_launch(shlex.split("-c 4096 -np 2 -kvu --models-dir /m"), {})
        found = geometry_from_launch(options, slots=None, slot_context=None, training_context=None)
        assert found == Geometry()

    def test_nothing_given_and_nothing_seen_is_nothing(self) -> None:
        assert geometry("") == known(None, None, None, None)


class TestContradictions:
    def test_slots_seen_beat_slots_asked_for(self) -> None:
        assert geometry("-c 8192 -np 2 -kvu", slots=4, slot_context=8192) == known(4, 8192, 8192, True)

    def test_fork_that_unifies_by_itself_is_told_by_slots_with_more_than_their_part(self) -> None:
        assert geometry("-c 131072 -np 2", slots=2, slot_context=131072) == known(2, 131072, 131072, True)


class TestUnreadableEnvironment:
    """Any option that the command line lacks may have been given there."""

    def found(self, line: str, *, slots: int | None = None, slot_context: int | None = None) -> Geometry:
        options = parse_launch(["-m", "m.gguf", *shlex.split(line)], None)
        return geometry_from_launch(options, slots=slots, slot_context=slot_context, training_context=None)

    def test_all_that_matters_on_the_command_line_is_enough(self) -> None:
        assert self.found("-c 4096 -np 4 -kvu") == known(4, 4096, 4096, True)
        assert self.found("-c 4096 -np 4 -no-kvu") == known(4, 1024, 4096, False)

    def test_slots_without_np_may_be_split_or_shared(self) -> None:
        assert self.found("", slots=4, slot_context=4096) == known(4, 4096, None, None)

    def test_pool_is_told_where_it_is_the_same_either_way(self) -> None:
        assert self.found("-c 4096 -np 4", slots=4, slot_context=1024) == known(4, 1024, 4096, None)
        assert self.found("-c 10000 -np 3", slots=3, slot_context=3584) == known(3, 3584, None, None)

    def test_slot_with_more_than_its_part_is_in_a_shared_pool(self) -> None:
        assert self.found("-c 4096 -np 4", slots=4, slot_context=4096) == known(4, 4096, 4096, True)

    def test_pool_without_c_stays_unknown(self) -> None:
        assert self.found("-np 4 -kvu", slots=4, slot_context=4096) == known(4, 4096, None, True)
        assert self.found("-c 4096") == known(None, None, None, None)


class TestApi:
    def test_one_slot_is_the_pool(self) -> None:
        assert geometry_from_api(1, 4096) == Geometry(1, 4096, 4096, False, "api")

    def test_several_slots_do_not_tell_whether_they_share(self) -> None:
        assert geometry_from_api(4, 4096) == Geometry(4, 4096, None, None, "api")

    def test_nothing_seen_is_nothing(self) -> None:
        assert geometry_from_api(None, None) == Geometry(None, None, None, None, "api")


sizes = st.none() | st.integers(min_value=0, max_value=2**31 - 1)
counts = st.none() | st.integers(min_value=1, max_value=256)


@given(
    st.builds(
        LaunchOptions,
        context=sizes,
        parallel=counts,
        unified=st.none() | st.booleans(),
        per_slot=st.none() | st.integers(min_value=1, max_value=2**31 - 1),
        environment_known=st.booleans(),
    ),
    counts,
    sizes,
    sizes,
)
def test_no_combination_gives_a_pool_that_cannot_be(
    options: LaunchOptions, slots: int | None, slot_context: int | None, training_context: int | None
) -> None:
    found = geometry_from_launch(options, slots=slots, slot_context=slot_context, training_context=training_context)
    assert found.capacity is None or found.capacity > 0
    assert found.slots in (slots, options.parallel)
    if found.capacity is not None:
        assert found.capacity % 256 == 0
    if slot_context:
        assert found.slot_context == slot_context
    elif found.slot_context is not None and found.capacity is not None:
        assert found.slot_context <= found.capacity
    if found.slots == 1:
        assert found.shared is False
