"""`python -m loadtests.simulation`: what `ops simulate` runs, in a process whose hashes of texts do not vary."""

import sys

from loadtests.simulation import clocks

if __name__ == "__main__":
    clocks.wrap()  # before the modules of the service are imported
    from loadtests.simulation.command import run

    sys.exit(run(sys.argv[1:]))
