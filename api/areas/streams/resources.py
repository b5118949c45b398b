"""Message streams."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
