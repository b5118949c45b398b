"""Log the programs of this machine in without a password, in local mode: as the account of the first run.

Frameworks and tools send to `localhost` without TLS and login unless they are told otherwise. In local mode the
submission port takes their mail: over loopback only, whatever address the port is bound to, and never in live mode. It
is the API key in `first-run.json` that is logged in, so revoking that key or suspending its account closes the door.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from engine.base.local_mode import FIRST_RUN
from engine.people.api_keys import rules


class _FirstRun(Struct, rename="camel"):
    api_key: str


_DECODER = msgspec.json.Decoder(_FirstRun)


def first_key(state: Path) -> rules.FreshApiKey | None:
    """Return the API key of the first run, None if the state folder `state` has none."""
    try:
        found = _DECODER.decode((state / FIRST_RUN).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return rules.parse(found.api_key)
