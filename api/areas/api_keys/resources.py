"""The keys of an account."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
