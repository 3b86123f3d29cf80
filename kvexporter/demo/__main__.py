"""`python -m kvexporter.demo`: see `--help`."""

from __future__ import annotations

import argparse
import sys

from kvexporter.demo.run import DemoOptions, run_demo


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration from a command line; the exit status."""
    defaults = DemoOptions()
    parser = argparse.ArgumentParser(
        prog="kvexporter demo",
        description="Replay the incident of four agents in one KV pool, with the real exporter watching it.",
    )
    parser.add_argument("--once", action="store_true", help="end after one story (exit 1 if the exporter missed it)")
    parser.add_argument(
        "--speed", type=float, default=defaults.speed, help=f"times faster than recorded (default {defaults.speed:g})"
    )
    parser.add_argument("--port", type=int, help="the exporter's port (default: 9889, or the next free one)")
    parser.add_argument(
        "--linger",
        type=float,
        default=defaults.linger,
        help=f"seconds between the incident and the next story (default {defaults.linger:g})",
    )
    options = parser.parse_args(arguments)
    if not 0.1 <= options.speed <= 1000:
        parser.error("--speed must be from 0.1 to 1000")
    return run_demo(DemoOptions(options.once, options.speed, options.port, options.linger))


if __name__ == "__main__":
    sys.exit(main())
