"""Every command in the documents can be given: those of kvexporter parse, and what is marked `sh run` is run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kvexporter.cli import commands
from tests.support.pages import Block, Page, pages
from tests.support.paths import RECORDINGS, ROOT

_SHELLS = ("", "sh", "bash")
_OPERATORS = re.compile(r"[|&;()<>]+")
_WRAPPERS = {"sudo", "systemd-run", "docker", "podman", "exec", "timeout"}
_RUNNERS = {"run", "exec"}
_RECORDING = RECORDINGS / "b8635" / "unified_overflow"

BLOCKS = [block for page in pages() for block in page.blocks if block.language in _SHELLS]


def given(line: str) -> Iterator[list[str]]:
    """The arguments of each call of kvexporter in a command line of a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    call: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if _OPERATORS.fullmatch(word):
            if "<" in word or ">" in word:  # a redirection: its file is no argument
                skip = True
                if call and call[-1].isdigit():
                    call.pop()
                continue
            yield from _of_one(call)
            call = []
        elif skip:
            skip = False
        else:
            call.append(word)


def _of_one(call: list[str]) -> Iterator[list[str]]:
    while call and re.fullmatch(r"[A-Z_]+=.*", call[0]):
        call = call[1:]
    if not call:
        return
    if Path(call[0]).name == "kvexporter":
        yield call[1:]
    elif call[0] in _WRAPPERS and (call[0] not in ("docker", "podman") or (call[1:2] and call[1] in _RUNNERS)):
        here = [index for index, word in enumerate(call) if Path(word).name == "kvexporter" and index > 1]
        if here and call[here[-1] - 1] != "--name":
            yield call[here[-1] + 1 :]


def parse(arguments: list[str], *, values: bool) -> None:
    """UsageError when kvexporter would refuse the arguments. Without `values`, placeholders may stand for values."""
    context = click.Context(commands, info_name="kvexporter", **commands.context_settings)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")):
        arguments = ["run", *arguments]
    elif arguments[0].startswith("-"):
        return
    name, command, rest = commands.resolve_command(context, arguments)
    assert name is not None
    assert command is not None
    if not values:
        made = click.Context(command, info_name=name, parent=context)
        command.make_parser(made).parse_args([word for word in rest if word not in ("-h", "--help")])
        return
    try:
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        return  # --help
    except click.BadParameter as error:
        if error.param is None or not isinstance(error.param.type, click.Path):
            raise  # else: that a file is not here says nothing


UNITS = [
    (block, line)
    for page in pages()
    for block in page.blocks
    if block.language == "ini"
    for line in block.commands()
    if line.startswith("Exec")
]
CALLS = [(block, line, call) for block in BLOCKS for line in block.commands() for call in given(line)] + [
    (block, line, call) for block, line in UNITS for call in given(line.partition("=")[2])
]


@pytest.mark.parametrize(
    ("block", "line", "call"), CALLS, ids=[f"{block}-{n}" for n, (block, _, _) in enumerate(CALLS)]
)
def test_command_lines_of_kvexporter_in_blocks_are_accepted(block: Block, line: str, call: list[str]) -> None:
    try:
        parse(call, values=True)
    except click.UsageError as error:
        pytest.fail(f"{block}: {line}\n{error.format_message()}")


@pytest.mark.parametrize("page", pages(), ids=str)
def test_commands_and_options_of_kvexporter_in_the_text_exist(page: Page) -> None:
    wrong = []
    for code in page.inline_code:
        if not code.startswith("kvexporter ") or re.search(r"[|\[]", code):
            continue
        try:
            parse(shlex.split(code)[1:], values=False)
        except click.UsageError as error:
            wrong.append(f"{code}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language], ids=str)
def test_blocks_for_a_shell_have_its_grammar(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{block}: {done.stderr}"


RUN = [block for block in BLOCKS if "run" in block.info]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder like a checkout, with the files that the examples name beside its own."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "server.log").symlink_to(_RECORDING / "server.log")
    (tmp_path / "j").symlink_to(RECORDINGS / "replay-b11434-full" / "journal.export")
    return tmp_path


@pytest.mark.parametrize("block", RUN, ids=str)
def test_what_is_marked_to_be_run_succeeds(block: Block, checkout: Path) -> None:
    environment = {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "HOME": str(checkout),
        "XDG_STATE_HOME": str(checkout / "state"),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block}:\n{block.text}\n{done.stdout}{done.stderr}"


def test_some_blocks_are_run() -> None:
    assert len(RUN) >= 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kvexporter diagnose -u llama-server  # one unit", [["diagnose", "-u", "llama-server"]]),
        ("journalctl -o export > j; kvexporter diagnose --journal-export j", [["diagnose", "--journal-export", "j"]]),
        ("xclip -o | kvexporter diagnose --log-file -", [["diagnose", "--log-file", "-"]]),
        ("systemctl enable --now kvexporter", []),
        ("docker build -t kvexporter -f Dockerfile .", []),
        ("docker exec kvexporter kvexporter check", [["check"]]),
        ("docker run -d --name kvexporter", []),
        ("systemd-run -p User=kvexporter /opt/kvexporter/bin/kvexporter check", [["check"]]),
        ("A=1 ~/kvexporter/bin/kvexporter check 2>/dev/null || true", [["check"]]),
    ],
)
def test_calls_are_found_in_command_lines(line: str, expected: list[list[str]]) -> None:
    assert list(given(line)) == expected


@pytest.mark.parametrize(
    "wrong", ["kvexporter diagnoze", "kvexporter run --web.listen-adress=:1", "kvexporter plan --slots x"]
)
def test_what_kvexporter_would_refuse_is_refused_here(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parse(next(given(wrong)), values=True)
