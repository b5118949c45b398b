"""Names of mta processes as members of the shards, such as `north:/srv/waybill:mta-1`, and their short forms."""

import socket
from pathlib import Path


def process_name(state: Path, name: str) -> str:
    """Return a name that no other living process of the installation has: by host, state folder and name in it."""
    return f"{socket.gethostname()}:{state.absolute()}:{name}"


def node_of(name: str) -> str:
    """Return the host part of a member's name."""
    return name.partition(":")[0]


def label_of(name: str) -> str:
    """Return a member's name without the folder in its middle: `host:mta-1`."""
    parts = name.split(":")
    return name if len(parts) < 3 else f"{parts[0]}:{parts[-1]}"
