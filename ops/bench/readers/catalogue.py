"""The worst inputs of every reader, in one list: add a reader's case where the reader is added."""

from collections.abc import Iterable

from ops.bench.readers import http, json_bodies, mail, peers
from ops.bench.readers.cases import Case


def all_cases() -> Iterable[Case]:
    """Return every case, in the order of the table."""
    return (*http.CASES, *json_bodies.CASES, *mail.CASES, *peers.CASES)
