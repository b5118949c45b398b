"""Counts of messages over time."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
