"""`kvexporter lint` in a real unit's ExecStartPre=: a mistake keeps it from starting, and its journal says which."""

from __future__ import annotations

import pytest

from tests.support.real_systemd import RealSystemd, installed_tree

UNIT = """
[Service]
Type=oneshot
ExecStartPre=/opt/kvexporter/bin/kvexporter lint --severity error llama.service
ExecStart=/bin/bash -c 'set -a; . /etc/llama.env; exec /mnt/test/llama-server -m x -np 1 $EXTRA_ARGS'
"""


@pytest.mark.real_systemd
def test_a_mistake_keeps_the_unit_from_starting_until_it_is_mended() -> None:
    mistake = "EXTRA_ARGS=-ctk q8_0 -ctv q8_0\n"
    with RealSystemd({"llama.service": UNIT}, {"llama.env": mistake}, installed_tree()) as system:
        system.write("/mnt/test/llama-server", "#!/bin/sh\necho started with $*\n")
        system.run("chmod", "755", "/mnt/test/llama-server")
        assert system.run("systemctl", "start", "llama.service", check=False).returncode != 0
        said = system.journal("llama.service")
        assert "/etc/llama.env:1:1: error: the value of EXTRA_ARGS has spaces and no quotes" in said
        assert "started with" not in said
        assert system.property("llama.service", "ExecMainStatus") == "0", "the server itself was never started"
        system.write("/etc/llama.env", 'EXTRA_ARGS="-ctk q8_0 -ctv q8_0"\n')
        system.systemctl("start", "llama.service")
        assert "started with -m x -np 1 -ctk q8_0 -ctv q8_0" in system.journal("llama.service")
