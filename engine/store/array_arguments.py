"""Encode array arguments without asyncpg's costly check of each element.

To find nested arrays, asyncpg tests every element of an array argument against abstract classes, which takes Python
0.15 µs each: 40 in 100 of the CPU of encoding. The concrete types that the service passes are tested in a tenth of it.
`engine.store.postgres` calls this once; a contract test tells when asyncpg has changed.
"""

from typing import Any, Final

import asyncpg.protocol.protocol

_driver: Any = asyncpg.protocol.protocol
ARRAY_TYPES: Final[tuple[type, ...]] = (list, tuple, set, frozenset, range, type({}.keys()), type({}.values()))


def use_concrete_types() -> None:
    """Make asyncpg take exactly `ARRAY_TYPES` for arrays, in this process."""
    _driver.IterableABC = _driver.SizedABC = ARRAY_TYPES
    _driver.MappingABC = dict
