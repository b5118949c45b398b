"""RSA keys for the domains of tests, read from tests/data/rsa-keys.txt: one takes 0.1 to 0.3 s of CPU to make.

The processes of the fork server take them instead of making their own. `ops up` and the tests of DKIM make real ones.
"""

import base64
import functools
import itertools
import os
from pathlib import Path

from engine.authentication import dkim_signing as dkim

_FILE = Path(__file__).resolve().parents[1] / "data" / "rsa-keys.txt"
_turns = itertools.count(os.getpid())


def next_key() -> bytes:
    """Return a private key in PKCS #8 DER; as many in a row differ as the file has."""
    keys = all_keys()
    return keys[next(_turns) % len(keys)]


def next_pem() -> bytes:
    """Return the next private key in PEM."""
    return b"-----BEGIN PRIVATE KEY-----\n" + base64.encodebytes(next_key()) + b"-----END PRIVATE KEY-----\n"


@functools.cache
def all_keys() -> tuple[bytes, ...]:
    """Return the keys of the file."""
    return tuple(base64.b64decode(line) for line in _FILE.read_text().splitlines() if not line.startswith("#"))


def install() -> None:
    """Let this process take the keys of the file wherever the service would make one."""
    all_keys()
    dkim.generate_rsa = next_key
