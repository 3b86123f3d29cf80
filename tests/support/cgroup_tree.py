"""Control groups of a test's own: /proc files that name them, and the folders that they name."""

from __future__ import annotations

from pathlib import Path

from kvexporter.sources.cgroup import CgroupReader

V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "30 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:4 - tmpfs tmpfs ro,mode=755\n"
    "31 30 0:27 {root} /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,memory\n"
    "32 30 0:28 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 30 0:29 {root} /sys/fs/cgroup/systemd rw,relatime shared:12 - cgroup cgroup rw,xattr,name=systemd"
)
HYBRID_MOUNT = "34 30 0:30 {root} /sys/fs/cgroup/unified rw,relatime shared:13 - cgroup2 cgroup2 rw,nsdelegate"

# Kept as the kernel writes them (Linux 6.1), cut to lines around those that are read.
V2_FILES = {
    "memory.current": "66000003072\n",
    "memory.peak": "67000004608\n",
    "memory.max": "max\n",
    "memory.high": "max\n",
    "memory.stat": "anon 45500002304\nfile 20400005120\nkernel 1234944\nkernel_stack 622592\npagetables 405504\n"
    "sec_pagetables 0\npercpu 1152\nsock 4096\nvmalloc 0\nshmem 8192\nfile_mapped 20255408128\nfile_dirty 0\n"
    "inactive_anon 45500006400\nactive_anon 8192\npgfault 51321\npgmajfault 99\n",
    "memory.events": "low 0\nhigh 0\nmax 1204\noom 3\noom_kill 1\noom_group_kill 0\n",
    "memory.pressure": "some avg10=1.53 avg60=0.87 avg300=0.22 total=12512345\n"
    "full avg10=0.00 avg60=0.12 avg300=0.03 total=3250000\n",
}
V1_FILES = {
    "memory.usage_in_bytes": "66000003072\n",
    "memory.max_usage_in_bytes": "67000004608\n",
    "memory.limit_in_bytes": "9223372036854771712\n",
    "memory.failcnt": "77\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "memory.stat": "cache 8192\nrss 4096\nrss_huge 0\nshmem 0\nmapped_file 0\n"
    "hierarchical_memory_limit 96000000000\nhierarchical_memsw_limit 9223372036854771712\n"
    "total_cache 20400005120\ntotal_rss 45500002304\ntotal_rss_huge 0\ntotal_shmem 0\n",
}


class CgroupTree:
    """`reader` reads it; `group` makes groups below the root that the mount shows."""

    def __init__(self, folder: Path, mountinfo: str, root: str = "/") -> None:
        self.proc = folder / "proc"
        self.files = folder / "host"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(mountinfo.format(root=root) + "\n")
        self.reader = CgroupReader(str(self.proc), str(self.files))

    def process(self, pid: int, cgroup: str) -> None:
        """A process with this /proc/PID/cgroup."""
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "cgroup").write_text(cgroup)

    def group(self, path: str, files: dict[str, str]) -> Path:
        """A group's folder (a path on the host) with these files."""
        folder = self.files / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        return folder
