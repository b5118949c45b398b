"""The command `ops simulate`."""

import os
import subprocess
import sys

import click

from ops.commands.base import as_json as json_option

# Texts hash alike in each process, so that sets have one order: a seed then has one schedule.
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


@click.command()
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Number of seeds.")
@click.option("--first", type=click.IntRange(0), default=1, show_default=True, help="First of the seeds.")
@click.option("--seed", type=click.IntRange(0), help="Run this seed alone, and print its schedule.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Runs at the same time.")
@click.option("--mutations", is_flag=True, help="Put faults into the service instead; the seeds must find each.")
@click.option("--mutation", default="", metavar="NAME", help="Put this fault into the service.")
@json_option
def simulate(
    *, seeds: int, first: int, seed: int | None, jobs: int, mutations: bool, mutation: str, as_json: bool
) -> None:
    """Run the whole service in one process with simulated time, network, Redis and mail servers, and check invariants.

    PostgreSQL is real, a separate one. Each seed draws its own faults: lost and delayed statements, killed, frozen and
    disconnected processes, outages of PostgreSQL and Redis, mail servers and webhook receivers that fail. A seed that
    fails prints its schedule; `--seed` repeats it exactly.
    """
    words = ["--seeds", str(seeds), "--first", str(first), "--jobs", str(jobs), "--mutation", mutation]
    words += [] if seed is None else ["--seed", str(seed)]
    words += ["--mutations"] if mutations else []
    words += ["--json"] if as_json else []
    done = subprocess.run(
        [sys.executable, "-m", "loadtests.simulation", *words], check=False, env=os.environ | _ENVIRONMENT
    )
    raise click.exceptions.Exit(done.returncode)
