"""Draws docs/images/replay.svg: the full-size four-agents recording as kvexporter shows it.

Run from the top of the repository: `.venv/bin/python docs/images/replay_picture.py`. Every point comes out of the
recording through the daemon's own model; nothing is drawn by hand.
"""

from __future__ import annotations

from pathlib import Path

from kvexporter.replay import replay_snapshots

RECORDING = Path("tests/recordings/replay-b11434-full")
PICTURE = Path("docs/images/replay.svg")

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 330, 56, 46, 150, 40
COLOURS = ("#8c510a", "#35978f", "#bf812d", "#01665e")
SECONDS = 790


def main() -> None:
    """Write the picture."""
    across = WIDTH - LEFT - RIGHT
    down = HEIGHT - TOP - BOTTOM
    stacks: list[tuple[float, list[float]]] = []
    failed_at = None
    for second, snapshot in replay_snapshots(RECORDING, range(0, SECONDS, 4)):
        (server,) = snapshot.servers
        capacity = server.geometry.capacity or 1
        held = [0.0] * 4
        for slot in server.slots:
            if slot.processing and slot.tokens is not None:
                held[slot.id] = slot.tokens / capacity
        stacks.append((second, held))
        if failed_at is None and server.counters.incidents["pool"]:
            failed_at = second

    def x(second: float) -> float:
        return LEFT + across * second / SECONDS

    def y(ratio: float) -> float:
        return TOP + down * (1 - ratio)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" fill="#222">llama_slot_tokens by slot, as a share of the pool of '
        "262,144 tokens</text>",
        f'<text x="{LEFT}" y="36" fill="#555">four agents, each promised the whole pool; llama-server b11434, recorded'
        "</text>",
    ]
    for ratio in (0, 0.25, 0.5, 0.75, 1.0):
        out.append(
            f'<line x1="{LEFT}" x2="{LEFT + across}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end" fill="#555">{ratio:.0%}</text>'
        )
    for second in range(0, SECONDS, 120):
        out.append(
            f'<text x="{x(second):.1f}" y="{HEIGHT - 20}" text-anchor="middle" fill="#555">{second // 60} min</text>'
        )
    below = [0.0] * len(stacks)
    for number in (3, 1, 2, 0):
        top = [base + held[number] for base, (_, held) in zip(below, stacks, strict=True)]
        points = [f"{x(s):.1f},{y(t):.1f}" for (s, _), t in zip(stacks, top, strict=True)]
        points += [f"{x(s):.1f},{y(b):.1f}" for (s, _), b in reversed(list(zip(stacks, below, strict=True)))]
        out.append(f'<polygon points="{" ".join(points)}" fill="{COLOURS[number]}" fill-opacity="0.85"/>')
        shares = [held[number] for _, held in stacks]
        largest = max(range(len(stacks)), key=shares.__getitem__)
        middle = (below[largest] + top[largest]) / 2
        out.append(
            f'<text x="{LEFT + across + 10}" y="{y(middle) + 4:.1f}" fill="{COLOURS[number]}">slot {number}: '
            f"{shares[largest]:.1%}</text>"
        )
        below = top
    if failed_at is not None:
        out.append(
            f'<line x1="{x(failed_at):.1f}" x2="{x(failed_at):.1f}" y1="{TOP - 4}" y2="{TOP + down}" stroke="#b2182b" '
            'stroke-width="2" stroke-dasharray="5 3"/>'
            f'<text x="{x(failed_at) - 6:.1f}" y="{TOP - 8}" text-anchor="end" fill="#b2182b">all four requests die'
            "</text>"
        )
    out.append("</svg>\n")
    PICTURE.write_text("\n".join(out))


if __name__ == "__main__":
    main()
