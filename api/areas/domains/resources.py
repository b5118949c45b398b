"""Sending domains."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
