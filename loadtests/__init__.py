"""Test and benchmark tools: benches, fault drills, load tests, other mail servers to compare with, test hosts.

The commands `ops bench`, `ops drill`, `ops loadtest`, `ops simulate` and `ops hosts` start them. `ops` finds those
commands by module name (`ops/commands/table.toml`): this package imports `ops`, so `ops` must not import it.
"""
