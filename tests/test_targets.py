"""Which servers are watched, under which names, and how they are reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvexporter.config import Config
from kvexporter.config_server import GeometryConfig, ServerConfig
from kvexporter.facts import FoundProcess
from kvexporter.pool_geometry import Geometry
from kvexporter.sources.journal_selection import JournalSelection
from kvexporter.targets import Target, gone_targets, plan_targets, with_address


def process(
    pid: int,
    *arguments: str,
    unit: str | None = None,
    parent: int | None = None,
    ports: tuple[int, ...] = (),
    container: str | None = None,
    user_unit: bool = False,
    readable: bool = True,
) -> FoundProcess:
    return FoundProcess(
        pid=pid,
        start_time=float(pid),
        arguments=("llama-server", *(arguments or ("-m", "m.gguf"))),
        unit=unit,
        user_unit=user_unit,
        container=container,
        parent=parent,
        listen_ports=ports,
        environment_readable=readable,
    )


def plan(*found: FoundProcess, config: Config | None = None) -> dict[str, Target]:
    return {target.name: target for target in plan_targets(config or Config(), found)}


def url(target: Target) -> str | None:
    return target.api.base_url if target.api is not None else None


def test_without_configuration_a_units_server_is_named_for_its_unit_and_its_journal_is_read() -> None:
    targets = plan(process(1, "-m", "m.gguf", "--port", "9001", unit="llama-server.service"))

    (target,) = targets.values()
    assert target.name == "llama-server"
    assert isinstance(target.selection, JournalSelection)
    assert target.selection.unit == "llama-server.service"
    assert url(target) == "http://127.0.0.1:9001"


def test_a_bare_process_is_named_for_its_address_and_has_no_journal() -> None:
    targets = plan(process(1, "-m", "m.gguf", "--host", "0.0.0.0", "--port", "9001", unit="session-3.scope"))

    (target,) = targets.values()
    assert target.name == "0.0.0.0:9001"
    assert target.selection is None
    assert url(target) == "http://127.0.0.1:9001"


def test_the_port_is_what_it_listens_on_when_the_command_line_does_not_tell_it() -> None:
    assert [url(t) for t in plan(process(1, ports=(9931,))).values()] == ["http://127.0.0.1:9931"]
    assert [url(t) for t in plan(process(1)).values()] == ["http://127.0.0.1:8080"]


def test_a_port_that_an_unreadable_environment_may_name_is_not_guessed() -> None:
    found = process(7, unit="llama.service", readable=False)
    (target,) = plan(found).values()
    assert (target.name, target.port, target.api) == ("llama", None, None)
    assert url(with_address(target, "0.0.0.0", 9001)) == "http://127.0.0.1:9001"

    assert set(plan(process(7, readable=False))) == {"llama-server:7"}
    assert url(plan(process(7, ports=(9002,), readable=False))["127.0.0.1:9002"]) == "http://127.0.0.1:9002"


def test_a_configured_address_takes_the_only_process_whose_port_cannot_be_known() -> None:
    config = Config(servers=(ServerConfig(name="main", url="http://127.0.0.1:8080"),))
    (target,) = plan(process(1, readable=False), config=config).values()
    assert target.process is not None
    (target,) = plan(process(1, readable=False), process(2, readable=False), config=config).values()
    assert target.process is None


def test_a_prefix_and_tls_of_the_command_line_are_in_the_address() -> None:
    found = process(
        1, "-m", "m", "--api-prefix", "/llama", "--ssl-cert-file", "c", "--ssl-key-file", "k", "--port", "443"
    )
    (target,) = plan(found).values()
    assert url(target) == "https://127.0.0.1:443/llama"


def test_the_servers_own_key_file_is_used_when_it_is_an_absolute_path() -> None:
    (target,) = plan(process(1, "-m", "m", "--api-key-file", "/etc/llama/key")).values()
    assert target.api is not None
    assert target.api.api_key_file == Path("/etc/llama/key")

    (target,) = plan(process(1, "-m", "m", "--api-key-file", "key")).values()
    assert target.api is not None
    assert target.api.api_key_file is None


def test_a_routers_children_are_servers_named_after_it_whose_lines_come_in_its_log() -> None:
    targets = plan(
        process(1, "--models-dir", "/m", "--port", "8080", unit="llama.service"),
        process(2, "-m", "a.gguf", "--port", "37723", unit="llama.service", parent=1),
    )
    child = targets["llama:a.gguf"]
    assert child.child_of == "llama"
    assert child.selection is None
    assert url(child) == "http://127.0.0.1:37723"


def test_a_routers_children_are_named_for_their_models_whatever_their_ports() -> None:
    router = process(1, "--models-dir", "/m", "--port", "8080", unit="llama.service")
    child = process(2, "--port", "37723", "--alias", "org/qwen:Q4", "--model", "/m/q.gguf", parent=1)
    same = process(3, "--port", "37724", "--alias", "org/qwen:Q4", "--model", "/m/q.gguf", parent=1)
    assert set(plan(router, child)) == {"llama", "llama:org/qwen:Q4"}
    assert set(plan(router, child, same)) == {"llama", "llama:org/qwen:Q4", "llama:org/qwen:Q4:37724"}


def test_units_of_an_earlier_exporter_are_known_as_the_servers_it_had_found_there() -> None:
    def unit(name: str, directory: str | None = None) -> JournalSelection:
        return JournalSelection(unit=name, directory=directory)

    stored = [
        (unit("llama.service"), ["llama", "llama:a.gguf"]),
        (unit("configured.service"), ["main"]),
        (unit("elsewhere.service", directory="/copy"), ["elsewhere"]),
        (JournalSelection(matches=({"CONTAINER_ID_FULL": "abc"},)), ["127.0.0.1:8080"]),
    ]
    found = {t.name: t for t in gone_targets(Config(), stored)}
    assert set(found) == {"llama"}
    assert found["llama"].selection == unit("llama.service")
    assert gone_targets(Config(servers=(ServerConfig(name="s", url="http://x"),)), stored) == []
    # What is found there later is the same server.
    (again,) = plan(process(1, "-m", "m", "--port", "9001", unit="llama.service")).values()
    assert (again.unit, again.selection, again.poll_interval) == (
        found["llama"].unit,
        found["llama"].selection,
        found["llama"].poll_interval,
    )


def test_two_servers_of_one_unit_have_two_names() -> None:
    targets = plan(
        process(1, "-m", "a", "--port", "1001", unit="llama.service"),
        process(2, "-m", "b", "--port", "1002", unit="llama.service"),
    )
    assert set(targets) == {"llama", "127.0.0.1:1002"}


def test_a_container_is_followed_by_its_id() -> None:
    (target,) = plan(process(1, unit="docker-abc.scope", container="abc")).values()
    assert isinstance(target.selection, JournalSelection)
    assert target.selection.matches == (
        {"CONTAINER_ID_FULL": "abc"},
        {"_SYSTEMD_UNIT": "libpod-abc.scope"},
        {"_SYSTEMD_USER_UNIT": "libpod-abc.scope"},
    )


@pytest.mark.parametrize("user_unit", [False, True])
def test_a_container_in_its_own_unit_is_followed_by_the_unit_over_its_starts(user_unit: bool) -> None:
    """A quadlet's container has another id at each start."""

    def found(pid: int, container: str) -> Target:
        (target,) = plan(process(pid, unit="llama.service", user_unit=user_unit, container=container)).values()
        return target

    first, second = found(1, "abc"), found(2, "def")
    assert (first.name, first.unit, first.selection) == (second.name, second.unit, second.selection)
    name = {"user_unit" if user_unit else "unit": "llama.service"}
    assert first.selection == JournalSelection(**name)  # type: ignore[arg-type]


def test_a_users_unit_is_followed_as_one() -> None:
    (target,) = plan(process(1, unit="llama.service", user_unit=True)).values()
    assert isinstance(target.selection, JournalSelection)
    assert (target.selection.unit, target.selection.user_unit) == (None, "llama.service")


def test_a_configured_server_takes_its_units_process_and_keeps_its_name() -> None:
    config = Config(servers=(ServerConfig(name="main", unit="llama.service", geometry=GeometryConfig(capacity=1000)),))
    targets = plan(process(1, "-m", "m", "--port", "9001", unit="llama.service"), config=config)

    (target,) = targets.values()
    assert (target.name, target.configured) == ("main", True)
    assert target.process is not None
    assert target.process.pid == 1
    assert url(target) == "http://127.0.0.1:9001"
    assert target.geometry == Geometry(capacity=1000, source="config")


def test_a_configured_address_on_this_host_finds_its_process_by_the_port() -> None:
    config = Config(servers=(ServerConfig(name="main", url="http://localhost:9001"),))
    (target,) = plan(
        process(1, "-m", "m", "--port", "9002"), process(2, "-m", "m", "--port", "9001"), config=config
    ).values()
    assert target.process is not None
    assert target.process.pid == 2


def test_an_address_elsewhere_takes_no_process_of_this_host() -> None:
    config = Config(servers=(ServerConfig(name="far", url="http://gpu.example:8080"),))
    (target,) = plan(process(1, "-m", "m", "--port", "8080"), config=config).values()
    assert target.process is None


def test_configured_and_discovered_servers_do_not_take_each_others_process_or_name() -> None:
    config = Config(discovery=True, servers=(ServerConfig(name="llama", unit="llama.service"),))
    targets = plan(
        process(1, "-m", "m", "--port", "9001", unit="llama.service"),
        process(2, "-m", "m", "--port", "9002", unit="other.service"),
        config=config,
    )
    assert set(targets) == {"llama", "other"}


def test_the_same_processes_give_the_same_targets_in_any_order() -> None:
    found = [process(n, "-m", "m", "--port", str(9000 + n), unit=f"u{n % 2}.service") for n in range(1, 6)]
    assert plan(*found) == plan(*reversed(found))
