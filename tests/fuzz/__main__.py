"""Try random inputs until the time is over: `python3 -m tests.fuzz [TARGET …] --seconds 60 --seed 1`."""

import argparse
import itertools
import sys
import time

from tests.fuzz.mutations import inputs
from tests.fuzz.reading import Misread, read
from tests.fuzz.targets import TARGETS

ROUND = 200  # inputs of a target before the next one has its turn


def main() -> int:
    """Print each finding, a reader's first one; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", help="names of readers; default: all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    wanted = parser.parse_args()
    unknown = set(wanted.target).difference(target.name for target in TARGETS)
    if unknown:
        parser.error(f"no such reader: {', '.join(sorted(unknown))}")
    targets = [target for target in TARGETS if not wanted.target or target.name in wanted.target]
    ends_at, tried, misread = time.monotonic() + wanted.seconds, 0, set()
    sys.stdout.write(f"seed {wanted.seed}, {len(targets)} readers\n")
    for seed, target in ((seed, target) for seed in itertools.count(wanted.seed) for target in targets):
        if time.monotonic() > ends_at:
            break
        if target.name in misread:
            continue
        try:
            for content in inputs(target.examples, target.words, seed, ROUND // target.costly):
                read(target, content)
                tried += 1
        except Misread as found:
            misread.add(target.name)
            sys.stdout.write(f"{found}\n")
    sys.stdout.write(f"{tried:,} inputs, {len(misread)} readers misread\n")
    return 1 if misread else 0


if __name__ == "__main__":
    sys.exit(main())
