"""Where a model's file is looked for, and what is said when it cannot be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from kvexporter.facts import GgufHeader
from kvexporter.sources import model_file
from kvexporter.sources.gguf_header import HeaderError, read_header
from kvexporter.sources.model_file import ModelFiles
from tests.support.gguf_bytes import header, llama, u32


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "models" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(header(llama()))
    return path


def why_not(files: ModelFiles, *names: str, pid: int | None = None, in_container: bool = False) -> str:
    with pytest.raises(HeaderError) as refused:
        files.read(names, pid, in_container=in_container)
    return str(refused.value)


def test_an_absolute_path_is_read_where_the_process_cannot_be_looked_into(tmp_path: Path, model: Path) -> None:
    files = ModelFiles(str(tmp_path / "proc"))
    assert files.read([str(model)], 7, in_container=False).values["llama.block_count"] == 40


def test_a_containers_file_is_read_through_its_process_and_never_at_the_hosts_path(tmp_path: Path, model: Path) -> None:
    files = ModelFiles(str(tmp_path / "proc"))
    inside = tmp_path / "proc" / "7" / "root" / "models"
    inside.mkdir(parents=True)
    (inside / "m.gguf").write_bytes(header(llama(**{"llama.block_count": u32(12)})))

    assert files.read(["/models/m.gguf"], 7, in_container=True).values["llama.block_count"] == 12
    assert "is in a container" in why_not(files, str(model), pid=7, in_container=True)


def test_a_relative_path_is_one_in_the_servers_own_folder(tmp_path: Path, model: Path) -> None:
    files = ModelFiles(str(tmp_path / "proc"))
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cwd").symlink_to(model.parent)

    assert files.read(["m.gguf"], 7, in_container=False).values["llama.block_count"] == 40
    assert "server's own folder" in why_not(files, "m.gguf", pid=8)


def test_of_several_names_the_first_that_can_be_read_counts(model: Path) -> None:
    files = ModelFiles()
    assert files.read(["ggml-org/m:Q4", str(model)], None, in_container=False).version == 3
    assert why_not(files, "/nowhere/a.gguf", "b.gguf") == "/nowhere/a.gguf does not exist"


def test_a_real_process_is_looked_into(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    assert ModelFiles().read(["m.gguf"], os.getpid(), in_container=False).version == 3


def test_a_pipe_is_not_waited_for_and_a_device_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    files = ModelFiles()
    assert "is not a file" in why_not(files, str(tmp_path / "pipe"))
    assert "is not a file" in why_not(files, "/dev/zero")
    assert "is not a file" in why_not(files, str(tmp_path))


def test_a_file_that_is_no_model_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password=hunter2")
    said = why_not(ModelFiles(), str(tmp_path / "secret"))
    assert said == f"{tmp_path}/secret is not a GGUF file"


@pytest.mark.parametrize("name", ["/home/nobody-here/m.gguf", "/root/nothing/m.gguf", "/run/user/1/m.gguf"])
def test_a_file_in_somebodys_own_folder_is_said_to_be_hidden_from_the_unit(name: str) -> None:
    assert "ProtectHome=" in why_not(ModelFiles(), name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_file_without_permission_is_said_to_be_so(tmp_path: Path, model: Path) -> None:
    model.chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    os.seteuid(65534)
    try:
        said = why_not(ModelFiles(), str(model))
    finally:
        os.seteuid(0)
    assert said == f"{model} may not be read"


def test_a_file_is_read_again_only_when_it_has_changed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def counted(file: BinaryIO, size: int) -> GgufHeader:
        reads.append(size)
        return read_header(file, size)

    monkeypatch.setattr(model_file, "read_header", counted)
    files = ModelFiles()
    for _ in range(3):
        files.read([str(model)], None, in_container=False)
    assert len(reads) == 1

    model.write_bytes(header(llama(**{"llama.block_count": u32(12), "x": u32(1)})))

    assert files.read([str(model)], None, in_container=False).values["llama.block_count"] == 12
