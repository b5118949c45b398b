"""`ops bench --readers`: the CPU that the worst input costs each parser of input from outside.

A parser without a bound on its work per octet lets a client consume seconds of CPU with a few megabytes. `registry`
holds the worst input of every parser. Limit: 1 µs per octet, or 100 ms for a request that a bound ends.
"""

from loadtests.bench.readers.run import run

__all__ = ["run"]
