"""From agents whose histories grow to the message on somebody's phone, all of it real.

A real systemd runs a llama-server unit and the exporter as packaged. A real Prometheus scrapes it and evaluates the
shipped rules; a real Alertmanager has the shipped configuration; a receiver takes its messages. The exporter also tells
Alertmanager itself. Made faster than shipped, and nothing else: Prometheus scrapes and evaluates every second, and
Alertmanager's waits are a second or two.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dashboards.expand import Chosen
from kvexporter.rules.groups import GROUPS
from tests.support.alertmanager import Alertmanager
from tests.support.grafana import NAMES, load
from tests.support.llama_server import Client, llama_server_binary
from tests.support.panel_data import empty_targets
from tests.support.paths import ROOT, free_port, wait_for
from tests.support.prometheus import Prometheus
from tests.support.promql import selectors
from tests.support.real_systemd import RealSystemd, installed_tree
from tests.support.scrape import Scrape, scrape, wait_value
from tests.support.tiny_model import tiny_model
from tests.support.webhook_receiver import Delivery, WebhookReceiver

pytestmark = [pytest.mark.real_systemd, pytest.mark.real_server]

SERVER = "llama-server"
"""The label that a discovered unit gets: its name."""
CAPACITY = 12288
LONG_ANSWERS = 0.6
WARNING, PAGE = "LlamaPoolFillingUp", "LlamaContextExceeded"

WITHOUT_DATA = {
    # What this machine does not have or what does not happen here.
    "llama_gpu_memory_total_bytes": "no GPU",
    "llama_gpu_memory_used_bytes": "no GPU",
    "llama_gpu_process_memory_bytes": "no GPU",
    "llama_unified_memory_total_bytes": "no GPU that shares the host's memory",
    "llama_unified_memory_available_bytes": "no GPU that shares the host's memory",
    "llama_unit_exits_total": "no process of the unit has ended",
    "llama_memory_growth_bytes": "the server was not up for long enough",
    "llama_memory_at_ready_bytes": "the server was not up for long enough",
    "server:llama_memory_growth_bytes:min1h": "the same",
}


EMPTY_PANELS = {
    # The same, in the dashboards: panel and letter of the query.
    "GPU memory A",
    "Waiting for memory B",  # hits of a limit, which not every machine's control groups count
    "On GPUs A",
    "Unified memory left A",
    *(f"Memory {letter}" for letter in "ABCDEF"),
    "Utilization A",
    "Temperature A",
    "Power A",
}


# ---- the agents ------------------------------------------------------------------------------------------------------


@dataclass
class Agents:
    """Four conversations, each turn longer than the last, all four asking at the same time.

    Once the prompts alone take more than LONG_ANSWERS of the pool they get answers that fill the rest, token by token:
    so the last phase takes many seconds on any machine, and a warning has the time that it needs in reality.
    """

    client: Client
    first_error: float | None = None
    """When the first client got an HTTP 500 (unix seconds)."""
    statuses: list[int] = field(default_factory=list)

    def run(self, pause: float = 1.5, turns: int = 60) -> None:
        """Go on until a request dies."""
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=self._agent, args=(*one, barrier, pause, turns)) for one in self.sizes()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)

    @staticmethod
    def sizes() -> list[tuple[int, int, int]]:
        """(seed, tokens of the first prompt, tokens more in each turn): one much bigger than the others."""
        return [(1, 1000, 250), (2, 500, 75), (3, 500, 60), (4, 300, 30)]

    def _agent(
        self, seed: int, first: int, more: int, barrier: threading.Barrier, pause: float, turns: int
    ) -> None:  # fmt: skip
        try:
            for turn in range(turns):
                barrier.wait(300)
                prompts = sum(size + turn * growth for _, size, growth in self.sizes())
                length = 150 if prompts < LONG_ANSWERS * CAPACITY else CAPACITY
                answer = self.client.complete(first + turn * more, length, seed)
                if answer.status == 500 and self.first_error is None:
                    self.first_error = time.time()
                self.statuses.append(answer.status)
                if answer.status != 200:
                    barrier.abort()
                    return
                time.sleep(pause)
        except threading.BrokenBarrierError:
            return


# ---- the chain -------------------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """What happened, and what still runs."""

    agents: Agents
    receiver: WebhookReceiver
    manager: Alertmanager
    prometheus: Prometheus
    shown: Scrape
    server_log: str
    started: float

    def deliveries(self, name: str, status: str = "firing") -> list[Delivery]:
        return [one for one in self.receiver.deliveries if self.alerts(one, name, status)]

    @staticmethod
    def alerts(delivery: Delivery, name: str, status: str = "firing") -> list[dict[str, Any]]:
        found = delivery.json["alerts"]
        return [one for one in found if one["labels"]["alertname"] == name and one["status"] == status]


def quickened(folder: Path, receiver: WebhookReceiver) -> Path:
    """The shipped Alertmanager configuration with our receiver in place of its placeholders, and with short waits."""
    config = yaml.safe_load((ROOT / "alerts" / "alertmanager.yaml").read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route |= {name: wait for name, wait in (("group_wait", "1s"), ("group_interval", "2s")) if name in route}
    for one in config["receivers"]:
        for webhook in one["webhook_configs"]:
            webhook["url"] = f"{receiver.url}/{one['name']}"
    path = folder / "alertmanager.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("chain")
    llama, port = Client(free_port()), free_port()
    address = f"127.0.0.1:{port}"
    binary = llama_server_binary()
    # The cache types are named, or the exporter would have to read the unit's environment to be sure of them.
    options = f"-c {CAPACITY} -np 4 -kvu -ctk f16 -ctv f16 --metrics -t 1"
    unit = f"""\
        [Service]
        DynamicUser=yes
        Environment=LD_LIBRARY_PATH=/opt/llama
        ExecStart=/opt/llama/{binary.name} -m /opt/model/tiny.gguf --port {llama.port} {options}
        """
    units = {f"{SERVER}.service": unit, "kvexporter.service": (ROOT / "packaging/kvexporter.service").read_text()}
    binds = {**installed_tree(), "/opt/llama": binary.parent, "/opt/model/tiny.gguf": tiny_model()}
    rules = tuple(ROOT / "alerts" / f"{group.name}.yaml" for group in GROUPS)
    with (
        WebhookReceiver() as receiver,
        Alertmanager(folder / "alertmanager", config=quickened(folder, receiver)) as manager,
    ):
        alerting = {
            "labels": {"job": "kvexporter", "instance": address},
            "alertmanagers": [{"url": manager.url, "name": "main"}],
        }
        etc = {
            "default/kvexporter": (
                f'KVEXPORTER_OPTS="--config.file=/etc/kvexporter/kvexporter.yml --web.listen-address={address}"\n'
            ),
            "kvexporter/kvexporter.yml": yaml.safe_dump({"discovery": True, "alerting": alerting}),
        }
        with RealSystemd(units, etc=etc, binds=binds) as host:
            host.start(f"{SERVER}.service")
            host.start("kvexporter.service")
            llama.wait_ready()
            wait_value(f"http://{address}", 4, "llama_kv_pool_overcommit_ratio", server=SERVER)
            with Prometheus(
                folder / "prometheus", {"kvexporter": address}, rules=rules, alertmanagers=(manager.address,)
            ) as prometheus:
                started = time.time()
                wait_for("Prometheus to know the pool", lambda: prometheus.query("llama_kv_pool_overcommit_ratio"))
                agents = Agents(llama)
                agents.run()
                assert agents.first_error is not None, agents.statuses
                try:
                    wait_for("the page", lambda: [one for one in receiver.deliveries if Chain.alerts(one, PAGE)], 60)
                except AssertionError as error:
                    raise AssertionError(f"{error}\n{host.journal('kvexporter.service')}") from None
                firing = f'ALERTS{{alertname="{PAGE}",alertstate="firing"}}'
                wait_for("Prometheus' own page", lambda: prometheus.query(firing), 60)
                wait_for("Prometheus to tell Alertmanager", lambda: sent_by_prometheus(prometheus), 60)
                # Recording rules that look back for days are evaluated once a minute.
                wait_for(
                    "every rule to be evaluated", lambda: all(r["health"] != "unknown" for r in told(prometheus)), 120
                )
                time.sleep(5)  # Prometheus' next evaluations, and two of Alertmanager's intervals
                shown, log = scrape(f"http://{address}"), host.journal(f"{SERVER}.service")
                yield Chain(agents, receiver, manager, prometheus, shown, log, started)


def told(prometheus: Prometheus) -> list[dict[str, Any]]:
    """All rules, as Prometheus tells of them."""
    reply = httpx.get(f"{prometheus.url}/api/v1/rules", timeout=30, trust_env=False).json()
    return [rule for group in reply["data"]["groups"] for rule in group["rules"]]


def sent_by_prometheus(prometheus: Prometheus) -> float:
    metrics = Scrape(httpx.get(f"{prometheus.url}/metrics", timeout=10, trust_env=False).text)
    return sum(value for _, value in metrics.all("prometheus_notifications_sent_total"))


# ---- what must have happened -----------------------------------------------------------------------------------------


def test_the_warning_reached_the_receiver_before_the_first_request_died(chain: Chain) -> None:
    warned = chain.deliveries(WARNING)
    assert warned, [one.json for one in chain.receiver.deliveries]
    assert chain.agents.first_error is not None
    assert warned[0].at < chain.agents.first_error
    assert warned[0].path == "/warning"


def test_the_page_reached_it_after_that(chain: Chain) -> None:
    paged = chain.deliveries(PAGE)
    assert chain.agents.first_error is not None
    assert paged[0].at > chain.agents.first_error
    assert paged[0].path == "/page"


def test_the_page_names_the_slot_that_held_most(chain: Chain) -> None:
    # The server's own log: the sizes at the releases that followed the error.
    after = chain.server_log.partition("Context size has been exceeded")[2]
    released = re.findall(r"id\s+(\d+) \| task \d+ \| stop processing: n_tokens = (\d+)", after)
    sizes = {slot: int(tokens) for slot, tokens in released}
    culprit = max(sizes, key=lambda slot: sizes[slot])
    assert len(sizes) == 4
    (alert,) = chain.alerts(chain.deliveries(PAGE)[0], PAGE)
    assert f"slot {culprit} held most, {sizes[culprit]} of {CAPACITY} tokens" in alert["annotations"]["description"]


def test_both_paths_were_merged_into_one(chain: Chain) -> None:
    assert (chain.shown.value("kvexporter_alerts_sent_total", alertmanager="main") or 0) > 0
    assert chain.shown.value("kvexporter_alert_send_failures_total", alertmanager="main") == 0
    theirs = [one for one in chain.prometheus.alerts() if one["labels"]["alertname"] == PAGE]
    (merged,) = chain.manager.alerts(PAGE)
    assert [one["labels"] for one in theirs] == [merged["labels"]]
    for name in (WARNING, PAGE, "LlamaPoolAlmostFull"):
        for delivery in chain.receiver.deliveries:
            assert len(chain.alerts(delivery, name)) <= 1
        assert len({one["labels"]["instance"] for one in chain.manager.alerts(name)}) <= 1


def test_each_alert_was_told_of_as_new_once(chain: Chain) -> None:
    """A receiver is told again only when something else begins or ends in the same message."""
    for path in ("/warning", "/page"):
        before: set[tuple[str, str]] = set()
        for delivery in (one for one in chain.receiver.deliveries if one.path == path):
            now = {(one["labels"]["alertname"], one["status"]) for one in delivery.json["alerts"]}
            assert now != before, delivery.json
            before = now


def test_prometheus_evaluates_every_shipped_rule_without_an_error(chain: Chain) -> None:
    rules = told(chain.prometheus)
    assert len(rules) == sum(len(group.rules) for group in GROUPS)
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}


def test_every_series_that_the_rules_name_is_there(chain: Chain) -> None:
    named = {one.metric for group in GROUPS for rule in group.rules for one in selectors(rule.expr)}
    empty: set[str] = set()

    def all_there() -> bool:
        empty.clear()
        empty.update(metric for metric in named if not chain.prometheus.samples(metric))
        return empty <= WITHOUT_DATA.keys()

    # What is recorded once a minute may have been so last before there were requests.
    with suppress(AssertionError):
        wait_for("every series", all_there, 150)
    assert empty - WITHOUT_DATA.keys() == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_query_of_the_dashboards_gives_data(chain: Chain, name: str) -> None:
    # A rate needs two scrapes: they come every second here.
    # What the server holds is compared with what it took once it was ready, which is known when it has come to rest.
    at_rest = "count_over_time(llama_memory_growth_bytes[1m]) > 10"
    wait_for("the server's memory to come to rest", lambda: chain.prometheus.query(at_rest), 120)
    chosen = Chosen(server=SERVER, rate_interval=10, interval=5, span=600)
    empty = empty_targets(chain.prometheus, load(name), chosen, chain.started, time.time())
    assert set(empty) - EMPTY_PANELS == set()
