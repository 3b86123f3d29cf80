from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvexporter.facts import ProcessSample
from kvexporter.sources.process import PAGE, ProcessReader
from tests.support.paths import wait_for
from tests.support.proc_tree import BOOT, TICKS, ProcTree

# The values of a measured process: 40,960 kB anonymous, 9,789,440 kB swapped out.
STATUS = """Name:\tllama-server
VmPeak:\t99999999 kB
VmRSS:\t   71680 kB
RssAnon:\t   40960 kB
RssFile:\t   28672 kB
RssShmem:\t    2048 kB
VmSwap:\t 9789440 kB
Threads:\t12
"""


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def test_memory_cpu_faults_and_start_are_read_in_base_units(tree: ProcTree) -> None:
    tree.add(7, utime=3 * TICKS, stime=TICKS // 2, major_faults=11, resident_pages=5, started=12.5, status=STATUS)
    (tree.folder / "7" / "fd").mkdir()
    for name in ("0", "1", "2"):
        (tree.folder / "7" / "fd" / name).touch()
    assert ProcessReader(tree.path).read(7) == ProcessSample(
        pid=7,
        start_time=BOOT + 12.5,
        cpu_seconds=3.5,
        resident_bytes=71680 * 1024,
        anon_bytes=40960 * 1024,
        file_bytes=28672 * 1024,
        shmem_bytes=2048 * 1024,
        swap_bytes=9789440 * 1024,
        major_faults=11,
        open_fds=3,
    )


def test_what_may_not_be_read_is_unknown(tree: ProcTree) -> None:
    tree.add(7, resident_pages=5)
    sample = ProcessReader(tree.path).read(7)
    assert sample is not None
    assert sample.resident_bytes == 5 * PAGE
    assert (sample.anon_bytes, sample.swap_bytes, sample.open_fds) == (None, None, None)


def test_a_name_with_spaces_and_parentheses_does_not_shift_the_fields(tree: ProcTree) -> None:
    tree.add(7, comm="llama) S 1 (x y", utime=TICKS)
    sample = ProcessReader(tree.path).read(7)
    assert sample is not None
    assert sample.cpu_seconds == 1.0


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_dead_process_is_gone(tree: ProcTree, state: str) -> None:
    tree.add(7, state=state)
    assert ProcessReader(tree.path).read(7) is None


@pytest.mark.parametrize("text", ["", "7", "7 (x", "7 (x) S 1", "7 (x) S " + "a " * 50])
def test_text_that_linux_does_not_write_is_no_process(tree: ProcTree, text: str) -> None:
    (tree.add(7) / "stat").write_text(text)
    assert ProcessReader(tree.path).read(7) is None


def test_a_process_that_is_not_there_is_gone(tree: ProcTree) -> None:
    assert ProcessReader(tree.path).read(4711) is None


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    script = "import sys; data = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def test_a_real_process_is_read_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    sample = ProcessReader().read(child.pid)
    assert sample is not None
    assert abs(sample.start_time - time.time()) < 120
    assert sample.anon_bytes is not None
    assert sample.anon_bytes >= 64 << 20
    assert sample.resident_bytes >= sample.anon_bytes
    assert sample.open_fds is not None
    assert sample.open_fds >= 3
    assert sample.cpu_seconds > 0
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now, not yet waited for
    assert ProcessReader().read(child.pid) is None
    child.wait()
    assert ProcessReader().read(child.pid) is None


def test_a_processs_start_time_stays_the_same(child: subprocess.Popen[bytes]) -> None:
    first = ProcessReader().read(child.pid)
    again = wait_for("a second sample", lambda: ProcessReader().read(child.pid))
    assert first is not None
    assert first.start_time == again.start_time
