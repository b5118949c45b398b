"""The account log read, exported and verified."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
