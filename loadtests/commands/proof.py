"""The command `ops proof`: prove a revision by drills and benches, sign, verify and publish the result."""

import random
import signal
import time
from pathlib import Path

import click

from loadtests.bench.report import Progress
from loadtests.bench.run_control import INTERRUPTED
from loadtests.proof import page, record, run, sets, signature, verify
from loadtests.proof.record import Proof, SignedProof
from ops.commands.base import as_json, fail, print_json, reported, table
from ops.host.process_specs import ROOT

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(invoke_without_command=True)
@click.option("--quick", is_flag=True, help="Run the quick set (8 minutes), not the full one (45 minutes).")
@click.option("--only", multiple=True, metavar="NAME", help="Run only this part of the set; repeatable.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Repeat the random choices of a run.")
@click.option("--key", type=_FILE, help="Private key to sign with; without it the proof is unsigned.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder; default: a new one in reports/.")
@click.option(
    "--continue", "continued", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
    help="Continue the interrupted run in this folder; parts that have ended are kept.",
)  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="List the parts of the set, and those that can't run here.")
@as_json
@click.pass_context
@reported
def proof(
    context: click.Context, /, *, quick: bool, only: tuple[str, ...], seed: int | None, key: Path | None,
    out: Path | None, continued: Path | None, listed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run a fixed set of drills and benches on this revision, and write what they found to proof.json.

    Every drill counts lost messages and second copies. Exit status 1 if a part failed, 130 after an interrupt.
    """
    if context.invoked_subcommand is not None:
        return
    chosen: record.SetName = "quick" if quick else "full"
    if listed:
        _list(sets.SETS[chosen], as_json=as_json)
        return
    private = None if key is None else signature.read_private(key)
    if continued is not None:
        if quick or only or seed is not None or out is not None:
            raise click.UsageError("--continue takes set, parts and seed from the folder; give it with --key alone.")
        folder, plan = continued, run.resume(continued)
    else:
        folder = out or ROOT / "reports" / time.strftime("proof-%Y%m%d-%H%M%S")
        plan = run.begin(folder, chosen, only, random.SystemRandom().getrandbits(32) if seed is None else seed)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress()
    try:
        document = run.run(folder, plan, private, progress.say)
    except KeyboardInterrupt:
        progress.fail(f"Interrupted. `ops proof --continue {folder}` runs the parts that are left.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    _tell(folder / run.FILE, document, as_json=as_json)
    raise click.exceptions.Exit(0 if document.proof.verdict == "passed" else 1)


@proof.command("new-key")
@click.argument("file", type=_FILE, help="File of the private key.")
@as_json
@reported
def new_key(*, file: Path, as_json: bool) -> None:
    """Write a new Ed25519 key to FILE, which must not exist, and its public key to FILE.pub."""
    try:
        fingerprint = signature.new_key(file)
    except FileExistsError:
        fail(f"{file} exists. Give another name, so that no key is lost.")
    found = {"privateKey": str(file), "publicKey": f"{file}.pub", "fingerprint": fingerprint}
    if as_json:
        print_json(found)
        return
    click.echo(f"Keep {file} secret, and publish {file}.pub.\n{fingerprint}")


@proof.command("verify")
@click.argument("file", type=_FILE, help="A proof.json.")
@click.option("--public-key", type=_FILE, help="PEM file of the key that must have signed it.")
@click.option(
    "--revision", default="HEAD", show_default=True, help="Commit, branch or tag that the proof must be of."
)  # fmt: skip
@as_json
@reported
def verify_file(*, file: Path, public_key: Path | None, revision: str, as_json: bool) -> None:
    """Check signature, sums, verdicts and revision of FILE. Exit status 1 if anything is wrong.

    Needs a git checkout with the revision.
    """
    document = record.read(file)
    found = verify.judge(document, None if public_key is None else signature.read_public(public_key))
    found.faults += verify.revision_faults(document.proof, revision)
    if as_json:
        print_json({"holds": found.holds, "faults": found.faults, "notes": found.notes, **_facts(document.proof)})
    else:
        for line in [*found.faults, *found.notes]:
            click.echo(line)
        click.echo(_sentence(document.proof) if found.holds else "The proof does not hold.")
    raise click.exceptions.Exit(0 if found.holds else 1)


@proof.command("publish")
@click.argument("file", type=_FILE, help="A proof.json.")
@as_json
@reported
def publish(*, file: Path, as_json: bool) -> None:
    """Store FILE for the documentation, and write its figures into the published pages."""
    document = record.read(file)
    found = verify.judge(document, None)
    if not found.holds:
        fail(f"Only a proof that holds is published. {' '.join(found.faults)}")
    files = [str(one.relative_to(ROOT)) for one in page.publish(document)]
    if as_json:
        print_json({"files": files})
        return
    for one in files:
        click.echo(one)


def _tell(file: Path, document: SignedProof, *, as_json: bool) -> None:
    found = document.proof
    if as_json:
        signed = document.signature.fingerprint if document.signature else None
        print_json({"file": str(file), "verdict": found.verdict, "signedBy": signed, **_facts(found)})
        return
    click.echo(_sentence(found))
    click.echo(f"{'Signed' if document.signature else 'Unsigned'}: {file}")


def _facts(found: Proof) -> dict[str, object]:
    totals = found.totals
    return {
        "set": found.set_name, "revision": found.revision, "dirty": found.dirty, "seed": found.seed,
        "drills": totals.drills, "accepted": totals.accepted, "lost": totals.lost, "secondCopies": totals.second_copies,
        "failed": found.failed, "skipped": [one.name for one in found.skipped],
    }  # fmt: skip


def _sentence(found: Proof) -> str:
    """Return the result in one line."""
    totals = found.totals
    return (
        f"{found.set_name} set at {found.revision[:12]}{' with changes' if found.dirty else ''}: {found.verdict}."
        f" {totals.drills} drills, {totals.accepted:,} messages accepted, {totals.lost} lost,"
        f" {totals.second_copies} second copies; failed: {', '.join(found.failed) or 'none'};"
        f" skipped: {len(found.skipped)}."
    )


def _list(parts: tuple[sets.ProofPart, ...], *, as_json: bool) -> None:
    rows = [{"part": part.name, "missing": part.missing(), "command": " ".join(part.words())} for part in parts]
    if as_json:
        print_json(rows)
    else:
        table(rows, ["part", "command", "missing"])
