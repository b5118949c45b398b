"""The suppression list."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
