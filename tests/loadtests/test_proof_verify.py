"""A proof is judged by its signature, its sums, the verdicts of its parts and its revision."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import structs

from loadtests.commands.proof import proof as command
from loadtests.proof import checkout, signature, verify
from loadtests.proof.page import GUIDE, STORED
from loadtests.proof.record import BadProof, Proof, SignedProof, canonical, read, totals_of, written
from ops.host.process_specs import ROOT
from tests.loadtests.proofs import BENCH, BROKEN, DRILL, HELD, OTHER, SKIPPED, changed_drill, made_proof

KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw().hex()


def signed(proof: Proof) -> SignedProof:
    return SignedProof(proof=proof, signature=signature.sign(proof, KEY))


# -- the file ---------------------------------------------------------------------------------------


def test_a_proof_is_read_as_it_was_written(tmp_path: Path) -> None:
    file, document = tmp_path / "proof.json", signed(made_proof())
    file.write_bytes(written(document))

    assert read(file) == document
    assert json.loads(file.read_bytes())["proof"]["drills"][0]["secondCopies"] == 15


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"lost": 0', '"lost": 0, "lost": 0', 1),  # readers differ in which one they take
        lambda text: text.replace('"seed": 7', '"seed": 7,\n    "more": 1'),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace('"quick"', '"other"'),
        lambda text: text.replace('"seed": 7', '"seed": "7"'),
        lambda text: text[:-20],
        lambda text: "",
    ],
)
def test_a_file_in_another_form_is_no_proof(tmp_path: Path, edit: object) -> None:
    file = tmp_path / "proof.json"
    file.write_text(edit(written(signed(made_proof())).decode()), newline="")  # type: ignore[operator]

    with pytest.raises(BadProof):
        read(file)


# -- what it states -----------------------------------------------------------------------------------


def test_a_proof_without_a_fault_holds_and_says_that_it_is_unsigned() -> None:
    found = verify.judge(SignedProof(proof=made_proof()), None)

    assert found.holds
    assert found.notes == [
        "The proof is unsigned: nothing shows who made it.", "disk-full was skipped: it must be run by root.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (changed_drill(lost=1), "kill-mta lost 1 messages."),
        (changed_drill(second_copies=126), "kill-mta had 126 second copies; 125 are allowed."),
        (changed_drill(copy_reasons=()), "kill-mta had 15 second copies without an allowed reason."),
        (changed_drill(accepted=-1), "kill-mta has a negative count."),
        (changed_drill(checks=()), "kill-mta has failed. It checked nothing."),
        (changed_drill(checks=(HELD, BROKEN)), f"kill-mta has failed. {BROKEN.shown}"),
        (changed_drill(verdict="failed"), "kill-mta has failed."),
        (changed_drill(verdict="failed", failure="It ended.", checks=()), "kill-mta has failed. It ended."),
        (made_proof(dirty=True), "It is not a release: files differed from the commit."),
        (
            made_proof(only=("clock",), drills=(OTHER,), benches=(), skipped=()),
            "It is not a release: only clock of the quick set ran.",
        ),
        (made_proof(drills=(DRILL,)), "Parts of the quick set are missing: clock."),
        (made_proof(skipped=()), "Parts of the quick set are missing: disk-full."),
        (made_proof(drills=(DRILL, OTHER, OTHER)), "Parts are listed twice or are not of the quick set: clock."),
        (
            made_proof(parts=("kill-mta", "disk-full", "bench-send")),
            "Parts are listed twice or are not of the quick set: clock.",
        ),
        (made_proof(totals=totals_of([DRILL])), "The totals are not the sums of the drills."),
        (made_proof(ended_at="2026-11-29T09:00:00.000Z"), "It ended before it started."),
        (made_proof(benches=(structs.replace(BENCH, verdict="failed"),)), "bench-send has failed."),
        (made_proof(benches=(structs.replace(BENCH, figures={"checked": False}),)), "bench-send has failed."),
        (made_proof(parts=("bench-send", "disk-full"), drills=()), "No drill ran."),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_each_fault_of_a_proof_is_named(wrong: Proof, said: str) -> None:
    assert verify.judge(signed(wrong), PUBLIC).faults == [said]


# -- the signature ------------------------------------------------------------------------------------


def test_a_signature_holds_for_its_statement_alone() -> None:
    document = signed(made_proof())

    assert verify.judge(document, PUBLIC).faults == []
    for changed in (made_proof(seed=8), changed_drill(delivered=981), made_proof(version="0.1.1")):
        tampered = structs.replace(document, proof=changed)
        assert "The signature does not match" in verify.judge(tampered, PUBLIC).faults[0]


def test_the_key_must_be_the_expected_one() -> None:
    other = Ed25519PrivateKey.generate()
    forged = SignedProof(proof=made_proof(), signature=signature.sign(made_proof(), other))

    assert "Another key has signed it" in verify.judge(forged, PUBLIC).faults[0]
    assert "Give --public-key" in verify.judge(forged, None).notes[0]
    assert verify.judge(SignedProof(proof=made_proof()), PUBLIC).faults == ["The proof is unsigned."]


@pytest.mark.parametrize(
    "changed",
    [
        {"fingerprint": "sha256:" + "0" * 64}, {"value": "00" * 64}, {"value": "not hex"}, {"public_key": "00" * 31},
        {"value": KEY.sign(canonical(made_proof())).hex()},  # made for another purpose
    ],
    ids=str,
)  # fmt: skip
def test_a_broken_signature_is_none(changed: dict[str, str]) -> None:
    good = signature.sign(made_proof(), KEY)

    assert signature.is_genuine(made_proof(), good)
    assert not signature.is_genuine(made_proof(), structs.replace(good, **changed))


def test_a_new_key_is_private_signs_and_replaces_none(tmp_path: Path) -> None:
    file = tmp_path / "release.key"
    made = CliRunner().invoke(command, ["new-key", str(file), "--json"])
    again = CliRunner().invoke(command, ["new-key", str(file)])

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = signature.sign(made_proof(), signature.read_private(file))
    assert signature.is_genuine(made_proof(), found)
    assert found.public_key == signature.read_public(Path(f"{file}.pub"))
    assert json.loads(made.stdout)["fingerprint"] == found.fingerprint
    assert (again.exit_code, "Give another name" in again.stderr) == (1, True)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = rsa.generate_private_key(65_537, 2_048)
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "rsa").write_bytes(other.private_bytes(pem, raw, serialization.NoEncryption()))
    (tmp_path / "locked").write_bytes(
        KEY.private_bytes(pem, raw, serialization.BestAvailableEncryption(b"secret"))
    )  # fmt: skip
    (tmp_path / "text").write_text("no key")

    for name in ("rsa", "locked", "text"):
        with pytest.raises(ValueError, match=str(tmp_path / name)):
            signature.read_private(tmp_path / name)
    with pytest.raises(ValueError, match="no public key"):
        signature.read_public(tmp_path / "text")


# -- the revision -------------------------------------------------------------------------------------

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Repository:
    """A git repository with one branch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._git("init", "--quiet", "--initial-branch=main")

    def commit(self, *files: str) -> str:
        """Change some files, commit them, and return the commit."""
        for name in files:
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text((file.read_text() if file.exists() else "") + "more\n")
        self._git("add", "--all")
        self._git("-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "--quiet", "--message=change")
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self._folder), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository in place of this checkout."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    return Repository(tmp_path)


@needs_git
def test_a_proof_is_of_its_commit_and_of_the_one_that_publishes_it(repository: Repository) -> None:
    tested = made_proof(revision=repository.commit("engine/code.py"))
    published = repository.commit(*(str(one.relative_to(ROOT)) for one in (STORED, GUIDE)))
    later = repository.commit("engine/code.py")

    assert verify.revision_faults(tested, tested.revision) == []
    assert verify.revision_faults(tested, published) == []
    [said] = verify.revision_faults(tested, "HEAD")
    assert f"revision {tested.revision[:12]}, and 1 files differ at HEAD ({later[:12]})" in said


@needs_git
def test_a_revision_that_the_repository_lacks_is_a_fault(repository: Repository) -> None:
    repository.commit("engine/code.py")

    assert "this repository does not have" in verify.revision_faults(made_proof(), "HEAD")[0]
    with pytest.raises(checkout.NoCheckout, match="none is no commit"):
        verify.revision_faults(made_proof(), "none")


@needs_git
def test_new_and_changed_files_make_the_work_tree_dirty(repository: Repository, tmp_path: Path) -> None:
    revision = repository.commit("engine/code.py")
    assert checkout.work_tree() == checkout.WorkTree(revision, dirty=False)

    (tmp_path / "new.py").write_text("new\n")
    assert checkout.work_tree() == checkout.WorkTree(revision, dirty=True)


# -- the command --------------------------------------------------------------------------------------


@needs_git
def test_the_command_says_what_is_wrong_by_its_exit_status(repository: Repository, tmp_path: Path) -> None:
    proof = made_proof(revision=repository.commit("engine/code.py"), skipped=(SKIPPED,))
    good, lossy = tmp_path / "good.json", tmp_path / "lossy.json"
    good.write_bytes(written(SignedProof(proof=proof)))
    lossy.write_bytes(written(SignedProof(proof=structs.replace(changed_drill(lost=2), revision=proof.revision))))

    told = CliRunner().invoke(command, ["verify", str(good)])
    wrong = CliRunner().invoke(command, ["verify", str(lossy), "--json"])
    absent = CliRunner().invoke(command, ["verify", str(tmp_path / "absent.json")])

    assert told.exit_code == 0, told.output
    assert "quick set at" in told.stdout
    assert "2 drills, 1,500 messages accepted, 0 lost, 15 second copies" in told.stdout
    assert wrong.exit_code == 1
    assert msgspec.json.decode(wrong.stdout)["faults"] == ["kill-mta lost 2 messages."]
    assert (absent.exit_code, "absent.json" in absent.stderr) == (1, True)
