"""Names of mta processes as members of the shards, such as `north:/srv/waybill:mta-1`, and their short forms."""


def node_of(name: str) -> str:
    """Return the host part of a member's name."""
    return name.partition(":")[0]


def label_of(name: str) -> str:
    """Return a member's name without the folder in its middle: `host:mta-1`."""
    parts = name.split(":")
    return name if len(parts) < 3 else f"{parts[0]}:{parts[-1]}"
