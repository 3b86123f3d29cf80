"""A process's control group: v2, v1, both at once, in containers, and on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvexporter.facts import CgroupSample
from kvexporter.sources.cgroup import CgroupReader
from tests.support.cgroup_tree import HYBRID_MOUNT, V1_FILES, V1_MOUNTS, V2_FILES, V2_MOUNT, CgroupTree

UNIT = "/system.slice/llama-server.service"
V1_LINES = f"12:cpu,cpuacct:{UNIT}\n8:memory:{UNIT}\n1:name=systemd:{UNIT}\n"
CONTAINER = "/docker/" + "ab" * 32


def test_v2_tells_memory_kills_and_pressure(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT)
    tree.process(7, f"0::{UNIT}\n")
    tree.group(f"/sys/fs/cgroup{UNIT}", V2_FILES)

    assert tree.reader.read(7) == CgroupSample(
        current_bytes=66000003072,
        peak_bytes=67000004608,
        limit_bytes=None,
        anon_bytes=45500002304,
        file_bytes=20400005120,
        limit_hits=3,
        oom_kills=1,
        pressure_some_seconds=12.512345,
        pressure_full_seconds=3.25,
    )


def test_v1_counts_what_is_below_the_group_and_has_no_pressure(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V1_MOUNTS)
    tree.process(7, V1_LINES)
    tree.group(f"/sys/fs/cgroup/memory{UNIT}", V1_FILES)

    assert tree.reader.read(7) == CgroupSample(
        current_bytes=66000003072,
        peak_bytes=67000004608,
        limit_bytes=96000000000,  # of a parent
        anon_bytes=45500002304,
        file_bytes=20400005120,
        limit_hits=None,
        oom_kills=2,
    )


def test_with_both_at_once_memory_is_v1s_and_pressure_is_v2s(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, f"{V1_MOUNTS}\n{HYBRID_MOUNT}")
    tree.process(7, f"{V1_LINES}0::{UNIT}\n")
    tree.group(f"/sys/fs/cgroup/memory{UNIT}", V1_FILES)
    tree.group(f"/sys/fs/cgroup/unified{UNIT}", {"memory.pressure": V2_FILES["memory.pressure"]})

    sample = tree.reader.read(7)

    assert sample is not None
    assert (sample.current_bytes, sample.oom_kills) == (66000003072, 2)
    assert (sample.pressure_some_seconds, sample.pressure_full_seconds) == (12.512345, 3.25)


def test_the_limit_is_the_least_of_the_group_and_its_parents(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT)
    tree.process(7, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n")
    group = tree.group(
        "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service",
        V2_FILES | {"memory.max": "96000000000\n"},
    )
    (group.parent / "memory.max").write_text("max\n")
    (group.parents[2] / "memory.max").write_text("48000000000\n")

    sample = tree.reader.read(7)

    assert sample is not None
    assert sample.limit_bytes == 48000000000


def test_the_groups_of_the_machine_itself_are_no_groups(tmp_path: Path) -> None:
    v2 = CgroupTree(tmp_path / "2", V2_MOUNT)
    v2.process(7, "0::/\n")
    # The root has these two, of the whole machine, and no memory.current.
    v2.group("/sys/fs/cgroup", {name: V2_FILES[name] for name in ("memory.stat", "memory.pressure")})
    v1 = CgroupTree(tmp_path / "1", V1_MOUNTS)
    v1.process(7, "8:memory:/\n")
    v1.group("/sys/fs/cgroup/memory", V1_FILES | {"cgroup.sane_behavior": "0\n", "release_agent": "\n"})

    assert v2.reader.read(7) is None
    assert v1.reader.read(7) is None


def test_pressure_of_the_machine_is_not_taken_for_the_groups(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, f"{V1_MOUNTS}\n{HYBRID_MOUNT}")
    tree.process(7, f"{V1_LINES}0::/\n")
    tree.group(f"/sys/fs/cgroup/memory{UNIT}", V1_FILES)
    tree.group("/sys/fs/cgroup/unified", {"memory.pressure": V2_FILES["memory.pressure"]})

    sample = tree.reader.read(7)

    assert sample is not None
    assert sample.pressure_some_seconds is None


class TestInContainers:
    def test_of_its_own_namespace_the_group_is_the_root_that_is_seen(self, tmp_path: Path) -> None:
        tree = CgroupTree(tmp_path, V2_MOUNT)
        tree.process(7, "0::/\n")
        tree.group("/sys/fs/cgroup", V2_FILES | {"memory.max": "1073741824\n"})

        sample = tree.reader.read(7)

        assert sample is not None
        assert (sample.current_bytes, sample.limit_bytes) == (66000003072, 1073741824)

    def test_with_the_hosts_paths_the_mounts_root_is_taken_off(self, tmp_path: Path) -> None:
        tree = CgroupTree(tmp_path, V1_MOUNTS, root=CONTAINER)
        tree.process(7, f"8:memory:{CONTAINER}\n")
        tree.process(8, f"8:memory:{CONTAINER}/inner\n")
        tree.group("/sys/fs/cgroup/memory", V1_FILES)
        tree.group("/sys/fs/cgroup/memory/inner", V1_FILES | {"memory.usage_in_bytes": "4096\n"})

        outer, inner = tree.reader.read(7), tree.reader.read(8)

        assert outer is not None
        assert outer.current_bytes == 66000003072
        assert inner is not None
        assert inner.current_bytes == 4096

    def test_with_the_hosts_groups_mounted_the_way_up_is_found(self, tmp_path: Path) -> None:
        tree = CgroupTree(tmp_path, V2_MOUNT, root="/../..")
        tree.process(7, f"0::/../..{UNIT}\n")
        tree.group(f"/sys/fs/cgroup{UNIT}", V2_FILES)

        sample = tree.reader.read(7)

        assert sample is not None
        assert sample.current_bytes == 66000003072

    @pytest.mark.parametrize("path", ["/../../system.slice/llama-server.service", "/../other"])
    def test_a_group_outside_of_what_is_seen_is_unknown(self, tmp_path: Path, path: str) -> None:
        tree = CgroupTree(tmp_path, V2_MOUNT)
        tree.process(7, f"0::{path}\n")
        tree.group("/sys/fs/cgroup", V2_FILES)
        tree.group(f"/sys/fs{UNIT}", V2_FILES)

        assert tree.reader.read(7) is None


def test_what_an_older_kernel_does_not_have_is_unknown(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT)
    tree.process(7, f"0::{UNIT}\n")
    tree.group(f"/sys/fs/cgroup{UNIT}", {"memory.current": "4096\n"})

    assert tree.reader.read(7) == CgroupSample(current_bytes=4096)


def test_nonsense_in_the_files_is_unknown(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT)
    tree.process(7, f"0::{UNIT}\n:::\nx\n")
    nonsense = dict.fromkeys(V2_FILES, "anon -5\noom x\nsome total=many\nÿ")
    tree.group(f"/sys/fs/cgroup{UNIT}", nonsense | {"memory.current": "1\n"})

    assert tree.reader.read(7) == CgroupSample(current_bytes=1)


def test_a_process_that_is_gone_or_in_a_removed_group_has_none(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT)
    tree.process(7, f"0::{UNIT} (deleted)\n")
    tree.group(f"/sys/fs/cgroup{UNIT}", V2_FILES)

    assert tree.reader.read(7) is None
    assert tree.reader.read(8) is None


def test_a_mount_point_with_a_space_is_found(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path, V2_MOUNT.replace("/sys/fs/cgroup", "/my\\040groups"))
    tree.process(7, f"0::{UNIT}\n")
    tree.group(f"/my groups{UNIT}", V2_FILES)

    assert tree.reader.read(7) is not None


def test_this_machines_own_group_is_read() -> None:
    sample = CgroupReader().read(os.getpid())

    if sample is None:
        paths = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        counted = [path for number, names, path in paths if number == "0" or "memory" in names.split(",")]
        if all(path == "/" for path in counted):
            pytest.skip("these tests run in the root of all groups")
    assert sample is not None
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    assert sample.current_bytes > 0
    # The process itself is in its group, and pages are charged to it in batches.
    assert sample.anon_bytes is not None
    assert sample.anon_bytes > int(resident.split()[1]) * 1024 // 2
    assert sample.peak_bytes is None or sample.peak_bytes >= sample.anon_bytes
