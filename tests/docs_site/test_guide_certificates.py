"""The verifier in PHP of the guide on certificates: it takes what the service signs, and nothing else."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.guides import guides
from tests.sdk.test_certificate_verifiers import GOOD, KEYS, MIME, encoded, signed_as
from tests.sdk.test_certificate_verifiers import HEADER as GOOD_HEADER


def verified(folder: Path, certificate: object, message: bytes = MIME, keys: object = KEYS) -> tuple[int, str]:
    """Run the guide's program beside the files that it reads; return its exit status and output."""
    php = shutil.which("php")
    if php is None:
        pytest.skip("PHP is not installed")
    [sample] = [one for one in guides()["certificates"].samples if one.language == "php"]
    (folder / "verify.php").write_text(sample.text.replace("ann@example.com", "ann@people.test"))
    (folder / "certificate.json").write_text(json.dumps(certificate))
    (folder / "keys.json").write_text(json.dumps(keys))
    (folder / "message.eml").write_bytes(message)
    done = subprocess.run([php, "verify.php"], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_program_is_short() -> None:
    [sample] = [one for one in guides()["certificates"].samples if one.language == "php"]

    assert len(sample.text.splitlines()) <= 45


def test_it_verifies_a_certificate_with_message_and_recipient(tmp_path: Path) -> None:
    assert verified(tmp_path, GOOD) == (0, "the certified message\nAnn: delivered\nsomebody: delivered\n")
    assert verified(tmp_path, GOOD, b"Received: from a\r\n" + MIME)[1].startswith("the certified message")
    assert verified(tmp_path, GOOD, MIME.replace(b"Hello", b"HELLO"))[1].startswith("another message")


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (GOOD | {"payload": encoded({"version": 1})}, "signature mismatch"),
        (GOOD | {"signature": GOOD["signature"][:-4] + "AAAA"}, "signature mismatch"),
        (signed_as(GOOD_HEADER | {"alg": "none"}, {}), "unsupported algorithm"),
        (signed_as(GOOD_HEADER | {"alg": "EdDSA"}, {}), "unsupported algorithm"),
        (signed_as(GOOD_HEADER | {"typ": "JWT"}, {}), "unsupported algorithm"),
        (signed_as(GOOD_HEADER | {"kid": "x"}, {}), "unknown key"),
    ],
)
def test_it_refuses_everything_else(tmp_path: Path, certificate: dict[str, Any], reason: str) -> None:
    status, printed = verified(tmp_path, certificate)

    assert status != 0
    assert reason in printed
