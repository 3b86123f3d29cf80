"""The container files name what exists: paths, options, keys, stages. No container engine is needed for that."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kvexporter.cli import commands
from kvexporter.config import load_config
from kvexporter.lint.options import find as option_of_llama_server
from kvexporter.options import DEFAULT_PORT
from tests.support.paths import ROOT

DOCKER = ROOT / "packaging" / "docker"
PODMAN = ROOT / "packaging" / "podman"
DOCKERFILE = DOCKER / "Dockerfile"
COMPOSE = sorted(DOCKER.glob("compose*.yaml"))
QUADLETS = sorted(PODMAN.glob("*.container"))


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile."""
    text = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE.read_text()))
    found = []
    for line in text.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append((word, " ".join(rest.split())))
    return found


def of(word: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == word]


def accept(arguments: list[str]) -> dict[str, Any]:
    """The parameters that kvexporter makes of arguments; UsageError when it refuses them."""
    context = click.Context(commands, info_name="kvexporter", **commands.context_settings)
    name, command, rest = commands.resolve_command(context, list(arguments))
    assert command is not None
    return command.make_context(name, rest, parent=context).params


def test_instructions_of_the_dockerfile_are_known() -> None:
    assert {word for word, _ in instructions()} <= {
        *("FROM", "RUN", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }


def test_both_stages_have_the_same_base_so_that_the_virtual_environment_finds_its_python() -> None:
    build, final = of("FROM")
    assert build.removesuffix(" AS build") == final
    assert "latest" not in final


def test_the_image_installs_the_extras_that_exist() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"/src\[([a-z,]+)\]", " ".join(of("RUN")))
    assert set(wanted.split(",")) <= set(extras)


def test_the_debian_packages_are_those_of_the_readme() -> None:
    build = next(run for run in of("RUN") if "apt-get" in run)
    for package in ("python3-venv", "python3-dev", "gcc", "libsystemd-dev", "pkg-config"):
        assert f" {package} " in build


def test_what_the_package_is_built_from_is_not_left_out() -> None:
    ignored = [
        line for line in (DOCKER / "Dockerfile.dockerignore").read_text().split("\n") if line[:1] not in ("", "#")
    ]
    needed = [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "kvexporter/__init__.py",
        "kvexporter/py.typed",
        "alerts",
        "dashboards",
    ]
    for name in needed:
        assert (ROOT / name).exists()
        assert not [pattern for pattern in ignored if fnmatch.fnmatch(name.partition("/")[0], pattern)]


def test_the_command_of_the_image_is_one_of_kvexporter() -> None:
    assert json.loads(of("ENTRYPOINT")[0]) == ["kvexporter"]
    accept(json.loads(of("CMD")[0]))


def test_the_image_runs_as_a_user_that_owns_its_state() -> None:
    (user,) = of("USER")
    assert user == "kvexporter"
    (environment,) = of("ENV")
    state = re.search(r"STATE_DIRECTORY=(\S+)", environment)
    assert state is not None
    assert of("VOLUME") == [state[1]]
    assert f"install -d -o kvexporter -g kvexporter -m 0700 {state[1]}" in " ".join(of("RUN"))


def test_port_and_health_check_are_those_of_the_exporter() -> None:
    assert of("EXPOSE") == [str(DEFAULT_PORT)]
    (check,) = of("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    compile(command[2], "health check", "exec")
    assert f"http://127.0.0.1:{DEFAULT_PORT}/-/healthy" in command[2]


# --- compose ----------------------------------------------------------------------------------------------------

SERVICE_KEYS = {
    *(
        "build",
        "cap_drop",
        "cgroup",
        "command",
        "container_name",
        "entrypoint",
        "group_add",
        "image",
        "logging",
        "network_mode",
    ),
    *("pid", "ports", "read_only", "restart", "security_opt", "volumes"),
}


def services(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files_have_known_keys_and_declared_volumes(path: Path) -> None:
    top = yaml.safe_load(path.read_text())
    assert set(top) == {"name", "services", "volumes"}
    named = set()
    for service in services(path).values():
        assert set(service) <= SERVICE_KEYS
        for volume in service["volumes"]:
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            if not source.startswith((".", "/")):
                named.add(source)
    assert named == set(top["volumes"])


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_files_build_from_this_repository_and_start_with_accepted_options(path: Path) -> None:
    exporter = services(path)["kvexporter"]
    context = (path.parent / exporter["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / exporter["build"]["dockerfile"]) == DOCKERFILE
    params = accept(exporter["command"])
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in exporter["volumes"] if isinstance(volume, str)}
    config = load_config(path.parent / mounted[str(params["config_file"])])
    assert [text for text in config.warnings if "there is no such file now" not in text] == []
    assert [server.name for server in config.servers] == ["llama-server"]


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_the_server_in_a_compose_file_starts_with_options_that_it_knows_and_where_it_is_looked_for(path: Path) -> None:
    command = services(path)["llama-server"]["command"]
    assert all(option_of_llama_server(word) for word in command if word.startswith("-"))
    assert command[command.index("--port") + 1] == "8080"
    assert services(path)["llama-server"]["ports"] == ["127.0.0.1:8080:8080"]


def test_the_log_goes_where_the_configuration_looks_for_it() -> None:
    journal, file = (services(DOCKER / name) for name in ("compose.yaml", "compose.log-file.yaml"))

    by_name = load_config(DOCKER / "kvexporter.yml")
    assert journal["llama-server"]["logging"] == {"driver": "journald"}
    assert by_name.servers[0].journal is not None
    assert [dict(group) for group in by_name.servers[0].journal.matches] == [
        {"CONTAINER_NAME": journal["llama-server"]["container_name"]}
    ]
    (bind,) = [volume for volume in journal["kvexporter"]["volumes"] if isinstance(volume, dict)]
    assert bind["target"] == bind["source"] == str(by_name.journal.directory if by_name.journal else None)
    assert bind["bind"] == {"create_host_path": False}

    by_file = load_config(DOCKER / "kvexporter.log-file.yml")
    assert by_file.servers[0].log is not None
    assert str(by_file.servers[0].log.file) == "/logs/llama-server.log"
    for service, mount in (("llama-server", "logs:/logs"), ("kvexporter", "logs:/logs:ro")):
        assert mount in file[service]["volumes"]


def test_the_shell_that_appends_the_log_hands_on_all_options_and_both_streams(tmp_path: Path) -> None:
    entrypoint = services(DOCKER / "compose.log-file.yaml")["llama-server"]["entrypoint"]
    program, folder = tmp_path / "server", tmp_path / "logs"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo problem >&2\n')
    program.chmod(0o755)
    folder.mkdir()
    script = entrypoint[2].replace("$$", "$").replace("/app/llama-server", str(program)).replace("/logs", str(folder))
    for _ in range(2):
        subprocess.run([*entrypoint[:2], script, entrypoint[3], "--model", "a b"], timeout=60, check=True)
    assert (folder / "llama-server.log").read_text() == "<--model><a b>problem\n" * 2


# --- Podman ----------------------------------------------------------------------------------------------------

QUADLET_KEYS = {
    *("ContainerName", "DropCapability", "Exec", "Image", "LogDriver", "Network", "NoNewPrivileges", "PodmanArgs"),
    *("PublishPort", "ReadOnly", "SecurityLabelDisable", "Volume"),
}
"""Of podman-systemd.unit(5), as of Podman 4.5."""


def quadlet(path: Path) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("path", QUADLETS, ids=lambda path: path.name)
def test_quadlets_have_known_sections_and_keys(path: Path) -> None:
    configparser.ConfigParser(strict=False, interpolation=None).read(path)
    found = quadlet(path)
    assert set(found) == {"Unit", "Container", "Service", "Install"}
    assert set(found["Container"]) <= QUADLET_KEYS
    assert found["Container"]["LogDriver"] == ["journald"]


def test_the_quadlet_of_kvexporter_starts_it_with_accepted_options_and_the_configuration_beside_it() -> None:
    container = quadlet(PODMAN / "kvexporter.container")["Container"]
    params = accept(shlex.split(container["Exec"][0]))
    assert str(params["config_file"]) == "/etc/kvexporter/kvexporter.yml"
    config = load_config(PODMAN / "kvexporter.yml")
    assert config.warnings == ()
    assert [server.unit for server in config.servers] == ["llama-server.service"]
    folder = str(config.journal.directory if config.journal else None)
    assert f"{folder}:{folder}:ro" in container["Volume"]
    assert "JOURNAL_GID" in container["PodmanArgs"][0], "docs/quickstart.md replaces it"


def test_the_quadlet_of_llama_server_starts_it_with_options_that_it_knows() -> None:
    words = shlex.split(quadlet(PODMAN / "llama-server.container")["Container"]["Exec"][0])
    assert all(option_of_llama_server(word) for word in words if word.startswith("-"))
