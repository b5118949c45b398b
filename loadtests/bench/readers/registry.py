"""The worst inputs of every reader in one list; add the cases of a new reader here.

Each module holds the cases of one interface in a tuple `CASES`.
"""

from loadtests.bench.readers import authentication, http, json_bodies, mail, peers, received, reports
from loadtests.bench.readers.cases import Case

ALL_CASES: tuple[Case, ...] = (  # in the order of the table
    *http.CASES, *json_bodies.CASES, *mail.CASES, *received.CASES, *authentication.CASES, *reports.CASES, *peers.CASES,
)  # fmt: skip
