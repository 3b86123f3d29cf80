from __future__ import annotations

import pytest

from kvexporter.sources.cgroup_path import Placement, placement

ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/llama-server.service\n", Placement("llama-server.service")),
        ("0::/system.slice/system-llama.slice/llama@a.service/sub\n", Placement("llama@a.service")),
        ("0::/llama.slice/llama-big.slice/x.service\n", Placement("x.service")),
        ("0::/system.slice/_llama.service\n", Placement("llama.service")),
        ("12:cpu:/x\n1:name=systemd:/system.slice/a.service\n0::/\n", Placement("a.service")),
        ("1:name=systemd:/\n0::/system.slice/b.service\n", Placement("b.service")),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n",
            Placement("llama.service", user=1000),
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", Placement("user@1000.service")),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/tmux-spawn-1.scope\n",
            Placement("tmux-spawn-1.scope", user=1000),
        ),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", Placement()),
        ("0::/system.slice/run-r12.scope\n", Placement("run-r12.scope")),
        (f"0::/system.slice/docker-{ID}.scope\n", Placement(container=ID)),
        (f"0::/docker/{ID}\n", Placement(container=ID)),
        (f"5:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", Placement(container=ID)),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", Placement(container=ID)),
        (f"0::/system.slice/llama.service/libpod-payload-{ID}\n", Placement("llama.service", container=ID)),
        (f"0::/system.slice/llama.service/libpod-payload-{ID}/container\n", Placement("llama.service", container=ID)),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service/libpod-payload-{ID}\n",
            Placement("llama.service", user=1000, container=ID),
        ),
        # Not the container's unit: the engine's, which runs all of them.
        (f"0::/system.slice/k3s.service/kubepods/besteffort/pod1/{ID}\n", Placement(container=ID)),
        (f"0::/system.slice/llama.service/libpod-payload-{ID[::-1]}/docker/{ID}\n", Placement(container=ID)),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container\n",
            Placement(container=ID),
        ),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", Placement(container=ID)),
        ("0::/\n", Placement()),
        ("", Placement()),
        ("rubbish\n:::\n0::relative", Placement()),
    ],
)
def test_the_unit_and_the_container_are_read_from_the_path(cgroup: str, expected: Placement) -> None:
    assert placement(cgroup) == expected
