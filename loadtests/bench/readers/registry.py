"""The worst inputs of every reader, in one list: add a reader's cases here when the reader is added.

Each door of the service has a module with its cases: a tuple `CASES`.
"""

from loadtests.bench.readers import http, json_bodies, mail, peers
from loadtests.bench.readers.cases import Case

ALL_CASES: tuple[Case, ...] = (*http.CASES, *json_bodies.CASES, *mail.CASES, *peers.CASES)  # in the order of the table
