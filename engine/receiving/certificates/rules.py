"""Compute when a certificate is renewed, or tried again after a failure. Pure."""

import random
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

SEALING: Final = "certificates"  # the purpose of the key that seals private keys
FIRST_RETRY: Final = timedelta(minutes=5)
MAX_RETRY: Final = timedelta(days=1)  # authorities limit failed validations per host and hour
_RENEW_AT: Final = 2 / 3  # of the life, as Let's Encrypt advises: a third of it is left for failures


def ends_at(chain: str) -> datetime:
    """Return the end of validity of the first certificate of a PEM chain. Raises ValueError for anything else."""
    return x509.load_pem_x509_certificates(chain.encode())[0].not_valid_after_utc


def renew_at(chain: str, *, jitter: float | None = None) -> datetime:
    """Return when to get the next certificate; `jitter` from 0 to 1 spreads hosts over 2% of the life."""
    leaf = x509.load_pem_x509_certificates(chain.encode())[0]
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    spread = random.random() if jitter is None else jitter
    return leaf.not_valid_before_utc + life * (_RENEW_AT - 0.02 * spread)


def retry_after(failures: int) -> timedelta:
    """Return the wait after `failures` failed tries in a row: it doubles from five minutes to a day."""
    doublings = min(max(failures - 1, 0), 12)
    return min(FIRST_RETRY * (1 << doublings), MAX_RETRY)
