"""Operations of the area; filled in beside this file."""

from api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = ()
