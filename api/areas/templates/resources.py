"""Templates of customers."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
