"""The live tail and the pull of events."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
