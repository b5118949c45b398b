"""Measure the CPU of one RSA-2048 signature, the unit in which benches quote CPU per message.

CPU per message varies with other load on a shared machine, and the signature varies with it, so that their ratio can be
compared between runs.
"""

import time
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from msgspec import Struct

SECONDS: Final = 1.0
_BATCH: Final = 50
_DIGESTED: Final = b"x" * 600  # about the header block that DKIM signs


class Signatures(Struct, frozen=True):
    """The speed of single-threaded RSA-2048 PKCS #1 v1.5 signatures over SHA-256."""

    per_s: float
    cpu_ms: float


class Yardstick:
    """Signs with one key, so that all measurements are comparable."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def measure(self, seconds: float = SECONDS) -> Signatures:
        """Sign for `seconds` in the calling thread."""
        count = 0
        began, cpu = time.perf_counter(), time.thread_time()
        while (took := time.perf_counter() - began) < seconds:
            for _ in range(_BATCH):
                self._key.sign(_DIGESTED, padding.PKCS1v15(), hashes.SHA256())
            count += _BATCH
        return Signatures(count / took, (time.thread_time() - cpu) / count * 1000)
