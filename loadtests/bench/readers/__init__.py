"""`ops bench --readers`: what each reader of outside octets costs at its worst, in CPU of the process that reads.

A reader without a bound on its work per octet lets a client buy seconds of our CPU with a few megabytes. Every reader
has its worst input here, in `registry`. The mark: at most 1 µs per octet, or 100 ms for a request that a bound ends.
"""

from loadtests.bench.readers.run import run

__all__ = ["run"]
