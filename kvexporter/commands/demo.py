"""`kvexporter demo`: stand-in servers live through stories, watched by the real exporter."""

from __future__ import annotations

import click

from kvexporter.commands.finite_range import FiniteRange

STORIES = ("agents", "safe", "sleeping", "crashing")


@click.command(short_help="Watch servers that fill up, sleep and crash, with the real exporter.")
@click.option(
    "--story", "stories", type=click.Choice(STORIES), multiple=True,
    help="A server that takes part; may be given several times. [default: all]",
)  # fmt: skip
@click.option(
    "--once", is_flag=True,
    help="End when each story has shown what it is about; exit 1 if the exporter missed something.",
)  # fmt: skip
@click.option(
    "--speed", type=FiniteRange(0.1, 1000), default=12.0, show_default=True,
    help="Times faster than the servers' own time. Above 20, sleeping and crashing keep to 20.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The exporter's port. [default: 9889, or the next free one]"
)
@click.option(
    "--linger", type=FiniteRange(0, 3600), default=10.0, show_default=True,
    help="Seconds between the end of the agents' pool and their new beginning.",
)  # fmt: skip
@click.option(
    "--with-prometheus", is_flag=True,
    help="Also start Prometheus, Alertmanager and Grafana with the shipped rules and dashboards, as far as they are "
    "installed.",
)  # fmt: skip
def demo(
    stories: tuple[str, ...], once: bool, speed: float, port: int | None, linger: float, with_prometheus: bool
) -> int:
    """Watch llama-server stand-ins live through stories in accelerated time, with the real exporter.

    agents: one pool that is promised to each of four agents, whose histories grow until it runs out. safe: a split
    server that works and cannot run out. sleeping: unloads its model when nobody asks. crashing: in a crash loop.

    Needs no llama-server, model or GPU. Ends with Ctrl-C and leaves nothing behind; this host's own journal is never
    written to.
    """
    from kvexporter.demo.run import DemoOptions, run_demo

    chosen = tuple(story for story in STORIES if not stories or story in stories)
    return run_demo(DemoOptions(once, speed, port, linger, chosen, with_prometheus))
