"""The worst inputs of every reader, in one list: add a reader's cases here when the reader is added.

Each door of the service has a module with its cases: a tuple `CASES`.
"""

from ops.bench.readers import http, json_bodies
from ops.bench.readers.cases import Case

ALL_CASES: tuple[Case, ...] = (*http.CASES, *json_bodies.CASES)  # in the order of the table
