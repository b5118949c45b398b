"""The worst inputs of every reader in one list; add the cases of a new reader here.

Each module holds the cases of one interface in a tuple `CASES`.
"""

from loadtests.bench.readers import http, json_bodies, mail, peers, received
from loadtests.bench.readers.cases import Case

# In the order of the table.
ALL_CASES: tuple[Case, ...] = (*http.CASES, *json_bodies.CASES, *mail.CASES, *received.CASES, *peers.CASES)
