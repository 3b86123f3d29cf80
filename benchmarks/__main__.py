"""Runs the benchmarks and prints their table: python -m benchmarks [--short] [name ...]"""

from __future__ import annotations

import argparse
import sys

from benchmarks import at_rest, catching_up, diagnosing, lead_time, scraping, server_cost
from benchmarks.measure import Row, table

BENCHMARKS = {
    "catching-up": catching_up.rows,
    "diagnosing": diagnosing.rows,
    "scraping": scraping.rows,
    "at-rest": at_rest.rows,
    "server-cost": server_cost.rows,
    "lead-time": lead_time.rows,
}


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1: a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the exporter's speed and cost.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--short", action="store_true", help="a minute instead of twenty: shows only that it runs")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(BENCHMARKS)}")
    rows: list[Row] = []
    for name in options.names or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += BENCHMARKS[name](short=options.short)
    print(table(rows))
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
