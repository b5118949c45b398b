"""Bootstrap: an empty checkout sets itself up once, and again only when its lock or environment changed."""

import ast
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from ops import __main__ as entry
from ops.commands import testing
from ops.host import bootstrap
from tests.harness.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
CLI = """
import sys
def main(argv):
    import pebble
    print(argv, sys.prefix, pebble.VERSION)
    return 7 if argv == ["seven"] else 0
"""


def wheel(folder: Path, version: str) -> str:
    """A minimal wheel named pebble; gives its sha256."""
    info = f"pebble-{version}.dist-info"
    files = {
        "pebble.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: pebble\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    path = folder / f"pebble-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Checkout:
    """A checkout with the real bootstrap, and a package index that is one local folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheels = root.parent / "wheels"  # beside it: pip splits this setting at spaces
        self.venv = root / ".venv"
        self.wheels.mkdir(parents=True)
        (root / "ops" / "lock").mkdir(parents=True)
        (root / "ops" / "host").mkdir()
        for name in ("__init__.py", "__main__.py", "host/__init__.py"):
            shutil.copy(ROOT / "ops" / name, root / "ops" / name)
        for name in ("bootstrap.py", "chromium.py", "interpreter.py"):
            shutil.copy(ROOT / "ops" / "host" / name, root / "ops" / "host" / name)
        (root / "ops" / "cli.py").write_text(CLI)
        (root / "pyproject.toml").write_text("")
        self.lock("run", "1.0")

    def lock(self, name: str, version: str, digest: str | None = None) -> None:
        digest = digest or wheel(self.wheels, version)
        (self.root / "ops" / "lock" / f"{name}.txt").write_text(f"pebble=={version} \\\n    --hash=sha256:{digest}\n")

    def begin(self, *words: str, python: str = sys.executable, **more: str) -> "subprocess.Popen[str]":
        environ = {
            "PATH": os.environ["PATH"], "HOME": str(self.root / "home"), "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), **more,
        }  # fmt: skip
        return subprocess.Popen(
            [python, "-m", "ops", *words], cwd=self.root, env=environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        with self.begin(*words, **more) as process:
            out, err = process.communicate(timeout=100)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first start."""
    checkout = Checkout(tmp_path_factory.mktemp("made") / "way bill")
    status, out, err = checkout.run("hello")
    assert (status, out) == (0, f"['hello'] {checkout.venv} 1.0\n"), err
    assert "Installing 1 package…" in err
    return checkout


@pytest.mark.exhaustive
def test_a_later_start_installs_nothing_and_says_nothing(made: Checkout) -> None:
    before = (made.venv / "waybill.json").stat()
    status, out, err = made.run("again", PIP_FIND_LINKS="/nonexistent")

    assert (status, out, err) == (0, f"['again'] {made.venv} 1.0\n", "")
    assert (made.venv / "waybill.json").stat() == before


@pytest.mark.exhaustive
def test_the_exit_status_is_the_commands_own(made: Checkout) -> None:
    assert made.run("seven")[0] == 7


@pytest.mark.exhaustive
def test_the_waybill_script_works_from_any_folder(made: Checkout) -> None:
    done = subprocess.run([made.venv / "bin" / "waybill", "x"], cwd="/", capture_output=True, text=True, check=True)

    assert done.stdout == f"['x'] {made.venv} 1.0\n"


@pytest.mark.exhaustive
def test_a_changed_lock_is_installed_by_the_next_start_outside_and_inside(made: Checkout) -> None:
    made.lock("run", "1.1")
    assert made.run("a")[1].endswith(" 1.1\n")
    made.lock("run", "1.2")
    with made.begin("b", python=str(made.venv / "bin" / "python")) as process:
        assert process.communicate(timeout=100)[0].endswith(" 1.2\n")


@pytest.mark.exhaustive
def test_a_larger_lock_satisfies_the_smaller_one(made: Checkout) -> None:
    made.lock("run", "1.3")
    shutil.copy(made.root / "ops" / "lock" / "run.txt", made.root / "ops" / "lock" / "test.txt")
    status, out, _ = made.run("bootstrap", "test")
    assert (status, out) == (0, f"{made.venv}\n")

    assert made.run("x") == (0, f"['x'] {made.venv} 1.3\n", "")
    assert set(json.loads((made.venv / bootstrap.RECORD).read_text())["locks"]) == {"run", "test"}


@pytest.mark.exhaustive
def test_a_broken_environment_is_made_anew(made: Checkout) -> None:
    (made.venv / "bin" / "python").unlink()
    status, out, err = made.run("mended")

    assert status == 0, err
    assert "creating it again" in err
    assert out.startswith("['mended']")


@pytest.mark.exhaustive
def test_a_package_with_another_hash_is_refused_without_a_traceback(made: Checkout) -> None:
    wheel(made.wheels, "1.4")
    made.lock("run", "1.4", digest="0" * 64)
    status, out, err = made.run("x")
    made.lock("run", "1.2")

    assert (status, out) == (1, "")
    assert "pip said last" in err
    assert "HASHES" in err
    assert "Traceback" not in err


@pytest.mark.exhaustive
def test_a_missing_package_index_is_explained(made: Checkout) -> None:
    made.lock("run", "9.9", digest="0" * 64)
    status, _, err = made.run("x")
    made.lock("run", "1.2")

    assert status == 1
    assert "PIP_INDEX_URL" in err
    assert "Traceback" not in err


def test_a_long_installation_is_told_with_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "_TOLD_EVERY_S", 0.02)
    told: list[str] = []
    with bootstrap._Progress(4) as progress:
        for said in (
            "Collecting pebble==1.0 (from -r run.txt)",
            "Collecting stone==2.0 (from -r run.txt)",
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'",
            "Installing collected packages: pebble, stone",
        ):
            progress.line(said)
            told.append(until_told(capsys))
    assert "Installing [#####---------------] 1 of 4 packages, 0 s: pebble" in told[0]
    assert "Installing [##########----------] 2 of 4 packages, 0 s: stone" in told[1]
    assert "2 of 4 packages, 0 s: the package index does not answer, pip tries again" in told[2]
    assert "Installing [####################] 4 of 4 packages, 0 s: unpacking them" in told[3]


def until_told(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what two turns of the telling print: the last one is of the present state."""
    text = ""
    ends = time.monotonic() + PATIENCE_S
    capsys.readouterr()
    while text.count("\n") < 2:
        assert time.monotonic() < ends
        time.sleep(0.01)  # another thread prints, and captured output tells no change
        text += capsys.readouterr().err
    return text.splitlines()[-1]


def test_a_full_disk_is_no_matter_of_the_package_index(tmp_path: Path) -> None:
    said = bootstrap._why_not_installed(
        tmp_path, ["ERROR: Could not install packages: [Errno 28] No space left on device"]
    )

    assert said.startswith(f"The disk of {tmp_path} is full: ")
    assert "PIP_INDEX_URL" not in said


@pytest.mark.exhaustive
def test_an_unknown_lock_is_named(made: Checkout) -> None:
    status, _, err = made.run("bootstrap", "nope")

    assert status == 1
    assert "no lock named nope; there are: run" in err


@pytest.mark.exhaustive
def test_an_environment_made_by_hand_is_kept_and_two_starts_share_one_installation(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "hand")
    subprocess.run([sys.executable, "-m", "venv", checkout.venv], check=True)
    (checkout.venv / "mine").write_text("keep")

    starts = [checkout.begin("one"), checkout.begin("two")]
    outputs = [start.communicate(timeout=100) for start in starts]

    assert [start.returncode for start in starts] == [0, 0]
    assert sum("Installing" in err for _, err in outputs) == 1
    assert (checkout.venv / "mine").read_text() == "keep"


def test_an_environment_that_does_not_answer_in_time_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_QUICK_S", 0.2)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexec sleep 5\n")
    python.chmod(0o755)

    with pytest.raises(bootstrap.SetupFailed, match="did not answer"):
        bootstrap.make(tmp_path / "venv")
    assert python.exists()


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "odd")
    checkout.venv.mkdir()
    (checkout.venv / "thesis.txt").write_text("years of work")
    status, _, err = checkout.run("x")

    assert status == 1
    assert "is not a virtual environment" in err
    assert (checkout.venv / "thesis.txt").exists()


def test_an_old_python_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "OLDEST", (99, 0))

    assert entry.main(["up"]) == 2
    assert "needs Python 99.0 or newer" in capsys.readouterr().err


def test_the_entry_can_be_read_by_python_3_8() -> None:
    ast.parse((ROOT / "ops" / "__main__.py").read_text(), feature_version=(3, 8))


def test_real_locks_pin_every_requirement_with_hashes() -> None:
    for lock in (ROOT / "ops" / "lock").glob("*.txt"):
        pins = bootstrap._pins(lock)
        text = lock.read_text()
        assert len(pins) > 30, lock
        assert text.count("==") >= len(pins)
        assert all(line.startswith((" ", "#")) or "==" in line for line in text.splitlines() if line), lock


def test_ops_test_runs_several_workers_unless_told_otherwise() -> None:
    assert testing.command(["tests/ops"])[1:] == ["-m", "pytest", "--workers", str(testing.WORKERS), "tests/ops"]
    assert testing.command(["--workers=0"])[1:] == ["-m", "pytest", "--workers=0"]


def test_ops_test_quick_selects_rules_and_flows() -> None:
    assert testing.command(["-x"], quick=True)[-3:] == ["-m", testing.QUICK, "-x"]


def test_ops_test_all_leaves_out_only_what_needs_hosts() -> None:
    assert testing.command(["-x"], everything=True)[-4:] == ["--all", "-m", testing.ALL, "-x"]
