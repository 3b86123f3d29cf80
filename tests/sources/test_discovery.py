from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvexporter.sources.discovery import Discovery, describe, discover, hidden_processes, lookalikes
from tests.support.paths import wait_for
from tests.support.proc_tree import BOOT, ProcTree


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def pids(tree: ProcTree) -> list[int]:
    return [process.pid for process in discover(tree.path)]


def test_a_server_is_found_with_its_options_unit_and_start(tree: ProcTree) -> None:
    tree.add(70, "/usr/bin/llama-server", "-c", "4096", "--alias", "", "-kvu", parent=1, started=33.0)
    (found,) = discover(tree.path)
    assert found.pid == 70
    assert found.arguments == ("/usr/bin/llama-server", "-c", "4096", "--alias", "", "-kvu")
    assert found.start_time == BOOT + 33.0
    assert (found.unit, found.user_unit, found.container, found.parent) == ("llama-server.service", False, None, 1)


def test_between_thorough_looks_only_new_processes_are_looked_at(tree: ProcTree) -> None:
    shell, new = (tree.add(pid, "bash", "start.sh", comm="bash", executable="/bin/bash") for pid in (70, 71))
    new.rename(tree.folder / "not-yet")
    search = Discovery(tree.path)
    assert search.find() == search.find(thorough=False) == []
    (tree.folder / "not-yet").rename(new)
    become_server(shell)
    assert search.find(thorough=False) == []
    become_server(new)  # what is new is looked at again
    assert [found.pid for found in search.find(thorough=False)] == [71]
    assert [found.pid for found in search.find()] == [70, 71]


def test_between_thorough_looks_a_listening_server_is_the_same_until_it_ends(tree: ProcTree) -> None:
    process = tree.add(70, "llama-server", comm="llama-server")
    search = Discovery(tree.path)
    (first,) = search.find()
    assert first.listen_ports == ()
    (process / "cmdline").write_bytes(b"llama-server\0--port\x008081\0")
    (again,) = search.find(thorough=False)
    assert again.arguments == ("llama-server", "--port", "8081")  # where it listens is awaited


def counted(tree: ProcTree, newest: int) -> None:
    """The kernel's last number for a process or thread; the tree shows the processes of this namespace."""
    (tree.folder / "loadavg").write_text(f"0.00 0.01 0.05 1/300 {newest}\n")
    own = tree.folder / "self"
    if not own.is_symlink():
        own.rmdir()
        own.symlink_to(str(os.getpid()))


def quiet(tree: ProcTree) -> Discovery:
    """After looks that have found all there is: process 70, and 71 that is no server."""
    tree.add(70, "llama-server", comm="llama-server", environment=None)
    tree.add(71, "bash", "start.sh", comm="bash", executable="/bin/bash")
    counted(tree, 71)
    search = Discovery(tree.path)
    assert search.news()  # nothing was looked at yet
    for _ in range(3):
        search.find(thorough=False)
        news = search.news()
    assert not news
    assert not search.news()
    return search


def test_a_started_process_is_news_until_it_was_looked_at_twice(tree: ProcTree) -> None:
    search = quiet(tree)
    tree.add(72, "bash", comm="bash", status="Name:\tbash\nTgid:\t72\nPid:\t72\n")
    counted(tree, 72)
    for _ in range(2):
        assert search.news()
        search.find(thorough=False)
    assert not search.news()


def test_threads_and_processes_that_have_ended_are_no_news(tree: ProcTree) -> None:
    search = quiet(tree)
    tree.add(72, "llama-server", comm="llama-server", status="Name:\tllama-server\nTgid:\t70\nPid:\t72\n")
    counted(tree, 75)
    assert not search.news()


def test_a_process_that_was_seen_by_its_number_alone_is_news_at_the_next_look(tree: ProcTree) -> None:
    """A number is given out a moment before its process can be read."""
    search = quiet(tree)
    counted(tree, 72)
    assert not search.news()
    tree.add(72, "llama-server", comm="llama-server", status="Name:\tllama-server\nTgid:\t72\nPid:\t72\n")
    assert search.news()
    assert [found.pid for found in search.find(thorough=False)] == [70, 72]


@pytest.mark.parametrize("newest", [70, 5, 30_000])
def test_numbers_that_began_anew_and_very_many_new_ones_are_news(tree: ProcTree, newest: int) -> None:
    search = quiet(tree)
    counted(tree, newest)
    assert search.news()


def test_a_proc_that_does_not_tell_its_newest_number_or_is_another_namespaces_always_has_news(tree: ProcTree) -> None:
    search = quiet(tree)
    (tree.folder / "self").unlink()
    (tree.folder / "self").symlink_to("1")
    assert search.news()
    (tree.folder / "loadavg").unlink()
    assert search.news()


def test_a_server_whose_ports_can_be_read_and_are_not_open_yet_is_news(tree: ProcTree) -> None:
    search = quiet(tree)
    (tree.folder / "70" / "environ").write_bytes(b"LLAMA_ARG_PORT=8081\0")
    search.find()
    assert search.news()


def test_a_real_process_that_is_started_is_news() -> None:
    search = Discovery()
    process = subprocess.Popen(["sleep", "60"])
    try:
        search.find()
        search.find()
        search.news()
        newer = subprocess.Popen(["sleep", "60"])
        try:
            assert search.news()
        finally:
            newer.kill()
            newer.wait()
    finally:
        process.kill()
        process.wait()


def test_a_server_that_was_found_listening_is_read_anew_only_when_it_is_another_one() -> None:
    search = Discovery()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = "import os, sys; os.execv('/bin/sleep', ['llama-server', '60'])"
        listener.set_inheritable(True)
        process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[listener.fileno()])
    try:
        (first,) = wait_for("the server", lambda: [f for f in search.find() if f.pid == process.pid])
        assert first.listen_ports == (port,)
        (again,) = [f for f in search.find(thorough=False) if f.pid == process.pid]
        assert again is first
    finally:
        process.kill()
        process.wait()
    assert [f for f in search.find(thorough=False) if f.pid == process.pid] == []


def become_server(process: Path) -> None:
    (process / "comm").write_text("llama-server\n")
    (process / "cmdline").write_bytes(b"llama-server\0")
    (process / "exe").unlink()
    (process / "exe").symlink_to("/usr/bin/llama-server")


def test_only_the_servers_own_environment_variables_are_kept_and_no_key(tree: ProcTree) -> None:
    variables = ("PATH=/bin", "AWS_SECRET=hush", "LLAMA_ARG_CTX_SIZE=8192", "LLAMA_API_KEY=sk-secret", "NOVALUE")
    tree.add(70, "llama-server", environment=variables)
    (found,) = discover(tree.path)
    assert found.environment == {"LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_API_KEY": "1"}
    assert found.environment_readable


def test_what_cuda_lets_a_server_use_is_kept_apart_from_its_options(tree: ProcTree) -> None:
    variables = ("CUDA_VISIBLE_DEVICES=GPU-1a2b,GPU-3c", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0")
    tree.add(70, "llama-server", environment=variables)
    tree.add(71, "llama-server", environment=("CUDA_VISIBLE_DEVICES=", "PATH=/bin"), started=200)
    tree.add(72, "llama-server", environment=None, started=300)
    first, second, third = discover(tree.path)
    assert (first.cuda_visible_devices, first.cuda_device_order) == ("GPU-1a2b,GPU-3c", "PCI_BUS_ID")
    assert (second.cuda_visible_devices, second.cuda_device_order) == ("", None)
    assert (third.cuda_visible_devices, third.cuda_device_order) == (None, None)
    assert first.environment == {}


def test_an_environment_that_may_not_be_read_is_said_to_be_so(tree: ProcTree) -> None:
    tree.add(70, "llama-server", environment=None)
    (found,) = discover(tree.path)
    assert (found.environment, found.environment_readable) == ({}, False)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (("--api-key", "sk-secret", "-c", "1"), ("--api-key", "1", "-c", "1")),
        (("--api-key=sk-secret", "-c", "1"), ("--api-key=1", "-c", "1")),
        (("-hft", "hf_secret"), ("-hft", "1")),
        (("--api-key", "--api-key", "x"), ("--api-key", "1", "x")),
        (("--api-key-file", "/etc/key"), ("--api-key-file", "/etc/key")),
    ],
)
def test_keys_on_the_command_line_are_not_kept(tree: ProcTree, given: tuple[str, ...], kept: tuple[str, ...]) -> None:
    tree.add(70, "llama-server", *given)
    (found,) = discover(tree.path)
    assert found.arguments == ("llama-server", *kept)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("comm", "executable", "arguments"),
    [
        ("llama-server", "/opt/llama-server", ("./llama-server",)),
        ("llama-server", None, ("llama-server",)),
        ("llama-server-cu", "/opt/llama-server-cuda", ("/opt/llama-server-cuda", "-m", "x")),
        ("ld-linux-x86-64", "/lib/ld-linux-x86-64.so.2", ("llama-server", "-m", "x")),
        ("llama-server", "/opt/llama-server (deleted)", ("llama-server",)),
    ],
)
def test_what_is_a_server(tree: ProcTree, comm: str, executable: str | None, arguments: tuple[str, ...]) -> None:
    tree.add(70, *arguments, comm=comm, executable=executable)
    assert pids(tree) == [70]


@pytest.mark.parametrize(
    ("comm", "executable", "arguments"),
    [
        ("server", "/opt/server", ("./server", "-m", "x.gguf")),
        ("bash", "/usr/bin/bash", ("bash", "-c", "llama-server -c 4096")),
        ("llama-server", "/usr/bin/bash", ("/bin/bash", "/usr/local/bin/llama-server")),
        ("llama-server", None, ("/bin/sh", "/usr/local/bin/llama-server")),
        ("llama-server.sh", "/usr/bin/dash", ("/bin/sh", "./llama-server.sh")),
        ("llama-server.py", None, ("llama-server.py",)),
        ("tail", "/usr/bin/tail", ("tail", "-f", "llama-server.log")),
        ("vim", "/usr/bin/vim", ("vim", "/etc/systemd/system/llama-server.service")),
        ("llama-serverless", "/opt/llama-serverless", ("llama-serverless",)),
        ("kthreadd", None, ()),
    ],
)
def test_what_is_no_server(tree: ProcTree, comm: str, executable: str | None, arguments: tuple[str, ...]) -> None:
    tree.add(70, *arguments, comm=comm, executable=executable)
    assert pids(tree) == []


def test_a_routers_children_tell_their_parent(tree: ProcTree) -> None:
    tree.add(70, "llama-server", "--models-dir", "/m", started=10.0)
    tree.add(69, "llama-server", "--port", "37723", parent=70, started=20.0)
    assert [(p.pid, p.parent) for p in discover(tree.path)] == [(70, 1), (69, 70)]


def test_a_users_own_unit_is_told_from_the_systems(tree: ProcTree) -> None:
    tree.add(70, "llama-server", cgroup="0::/user.slice/user-1.slice/user@1.service/app.slice/llm.service\n")
    (found,) = discover(tree.path)
    assert (found.unit, found.user_unit) == ("llm.service", True)


def test_listening_ports_are_the_processs_own(tree: ProcTree) -> None:
    tree.add(70, "llama-server")
    tree.listen(
        70,
        ("tcp", 8080, "0A", "5001"),
        ("tcp6", 8081, "0A", "5002"),
        ("tcp", 8080, "01", "5003"),
        ("tcp", 40000, "01", "5004"),
    )
    (found,) = discover(tree.path)
    assert found.listen_ports == (8080, 8081)


def test_zombies_are_left_out(tree: ProcTree) -> None:
    tree.add(70, "llama-server", state="Z")
    assert pids(tree) == []


@pytest.mark.parametrize("missing", ["stat", "cmdline", "comm", "cgroup", "environ"])
def test_a_process_that_vanishes_while_it_is_read_is_no_error(tree: ProcTree, missing: str) -> None:
    folder = tree.add(70, "llama-server", executable=None)
    (folder / missing).unlink()
    tree.add(71, "llama-server", started=200.0)
    assert pids(tree)[-1] == 71


def test_hidden_processes_are_said_with_what_to_do(tree: ProcTree) -> None:
    (tree.folder / "self" / "mounts").write_text("proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    text = hidden_processes(tree.path)
    assert text is not None
    assert "hidepid=invisible" in text
    assert "ProtectProc=" in text
    tree.add(1, "init", comm="systemd", executable=None)
    assert hidden_processes(tree.path) is None


def test_a_proc_that_hides_nothing_says_nothing(tree: ProcTree) -> None:
    (tree.folder / "self" / "mounts").write_text("proc /proc proc rw,hidepid=off 0 0\n")
    assert hidden_processes(tree.path) is None


def test_a_real_process_is_found_while_it_runs_with_the_port_it_listens_on(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    shutil.copy("/bin/sleep", program)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        environment = {"LLAMA_ARG_N_PARALLEL": "3", "SECRET": "hush"}
        with subprocess.Popen([program, "600"], env=environment, pass_fds=[listener.fileno()]) as process:
            (found,) = wait_for(
                "the process to be found", lambda: [p for p in discover() if p.pid == process.pid and p.listen_ports]
            )
            assert found.arguments == (str(program), "600")
            assert found.environment == {"LLAMA_ARG_N_PARALLEL": "3"}
            assert found.listen_ports == (port,)
            process.kill()
            process.wait()
            assert process.pid not in [p.pid for p in discover()]


def test_a_script_of_the_name_is_not_taken_for_the_server_it_starts(tmp_path: Path) -> None:
    script, program = tmp_path / "llama-server", tmp_path / "bin" / "llama-server"
    program.parent.mkdir()
    shutil.copy("/bin/sleep", program)
    script.write_text(f"#!/bin/sh\n{program} 600\nexit 0\n")
    script.chmod(0o755)
    with subprocess.Popen([script], start_new_session=True) as wrapper:
        try:
            (found,) = wait_for("the server", lambda: [p for p in discover() if p.arguments[0] == str(program)])
            assert found.parent == wrapper.pid
            assert wrapper.pid not in [p.pid for p in discover()]
        finally:
            wrapper.kill()
            subprocess.run(["kill", "-9", str(found.pid)], check=False)


def test_threads_are_not_listed_as_processes() -> None:
    assert sys.platform == "linux"
    tree_of_self = {process.pid for process in discover()}
    assert all(Path(f"/proc/{pid}").exists() for pid in tree_of_self)


def test_a_log_s_writer_is_described_whatever_its_name(tree: ProcTree) -> None:
    tree.add(70, "/opt/llama/server", "--port", "9001", comm="server")
    found = describe(70, tree.path)
    assert found is not None
    assert (found.pid, found.arguments) == (70, ("/opt/llama/server", "--port", "9001"))
    assert discover(tree.path) == []


@pytest.mark.parametrize("wrapper", ["/bin/bash", "/usr/bin/env", "python3"])
def test_a_wrapper_that_hands_on_a_log_is_not_taken_for_the_server(tree: ProcTree, wrapper: str) -> None:
    tree.add(70, wrapper, "/opt/start.sh", comm=wrapper.rsplit("/", 1)[-1])
    assert describe(70, tree.path) is None


def test_a_writer_that_is_gone_is_nothing(tree: ProcTree) -> None:
    assert describe(70, tree.path) is None


def test_what_serves_a_model_under_another_name_is_named_as_a_possible_server(tree: ProcTree) -> None:
    other = {"comm": "inference", "executable": "/opt/inference"}
    tree.add(70, "/opt/inference", "-m", "/models/q.gguf", "--port", "9001", **other)  # type: ignore[arg-type]
    tree.add(71, "/opt/inference", "-m", "/models/q.gguf", "-p", "a prompt", **other)  # type: ignore[arg-type]
    tree.add(72, "/opt/inference", "-m", "/models/q.gguf", "--port", "9002", **other)  # type: ignore[arg-type]
    tree.add(73, "python3", "-m", "serve", "--model", "q.gguf", "--port", "1", **other)  # type: ignore[arg-type]
    tree.add(74, "/usr/bin/llama-server", "-m", "q.gguf", "--port", "1")
    assert lookalikes(tree.path, known={72}) == [(70, "inference")]
