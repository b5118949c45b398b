"""Ports are reserved for servers that start later."""

import socket
import subprocess
import sys

import pytest

from loadtests.ports import _LOCAL_RANGE, _lowest_local, reserve_ports

_SHOW = "from loadtests.ports import reserve_ports; print(*reserve_ports(200)); input()"


def test_reserved_ports_are_free_different_and_below_the_ephemeral_range() -> None:
    ports = reserve_ports(100)

    assert len(set(ports)) == 100
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
    assert max(ports) < _lowest_local()


@pytest.mark.skipif(not _LOCAL_RANGE.exists(), reason="this kernel has no abstract names to hold ports with")
def test_a_port_is_reserved_by_one_process_only() -> None:
    own = set(reserve_ports(200))
    with subprocess.Popen([sys.executable, "-c", _SHOW], stdin=-1, stdout=-1, text=True) as other:
        out, _ = other.communicate("\n", timeout=100)

    assert len(theirs := set(map(int, out.split()))) == 200
    assert not own & theirs
