"""Say in a Struct which PostgreSQL type a field has where its Python type leaves that open."""

from typing import Annotated

from msgspec import Struct


class SqlType(Struct, frozen=True):
    """The PostgreSQL type of an annotated field."""

    name: str


Json = Annotated[str, SqlType("jsonb")]  # as text
Inet = Annotated[str, SqlType("inet")]
Real = Annotated[float, SqlType("real")]
BigInt = Annotated[int, SqlType("bigint")]
