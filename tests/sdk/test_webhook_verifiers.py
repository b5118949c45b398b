"""The webhook verifiers of both clients against signatures of the service's own signer."""

import json
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from api.sdk.javascript import FILES
from engine.events.webhooks import rules, standard

BODY = (
    '{"id":"evt_1","type":"delivered","createdAt":"x","seq":1,"data":{"messageId":null,"detail":{"text":"é"}}}'.encode()
)
NEW, OLD = standard.new_secret(), standard.new_secret()
NOW = int(time.time())


def headers_at(at_s: int, previous: str | None = None, *, signs_standard: bool = False) -> dict[str, str]:
    """Return the headers of a post as the service signs it."""
    return rules.headers(
        BODY, event_id=uuid.uuid4(), attempt=1, secret=NEW, previous=previous, at_s=at_s, signs_standard=signs_standard
    )


def standard_at(at_s: int, previous: str | None = None, **changes: str) -> dict[str, str]:
    """Return the headers of Standard Webhooks alone, as a proxy may pass them on; `changes` by their last word."""
    found = headers_at(at_s, previous, signs_standard=True)
    return {name: found[name] for name in standard.HEADERS} | {f"webhook-{key}": one for key, one in changes.items()}


GOOD = headers_at(NOW)
CASES: dict[str, tuple[bytes, Any, Any, str | None]] = {
    "all headers": (BODY, GOOD, NEW, None),
    "one header": (BODY, GOOD[rules.SIGNATURE], NEW, None),
    "either secret of the receiver": (BODY, GOOD, [OLD, NEW], None),
    "the old secret during a rotation": (BODY, headers_at(NOW, previous=OLD), OLD, None),
    "another secret": (BODY, GOOD, OLD, "signature_mismatch"),
    "another body": (BODY + b" ", GOOD, NEW, "signature_mismatch"),
    "too old": (BODY, headers_at(NOW - 301), NEW, "timestamp_too_old"),
    "in the future": (BODY, headers_at(NOW + 302), NEW, "timestamp_in_future"),
    "no version 1": (BODY, f"t={NOW},v0=00", NEW, "unsupported_version"),
    "no time": (BODY, "v1=00", NEW, "malformed_header"),
    "no header": (BODY, {}, NEW, "malformed_header"),
    "nothing for the headers": (BODY, None, NEW, "malformed_header"),
    "a header without a value": (BODY, {rules.SIGNATURE: None}, NEW, "malformed_header"),
    "a header that is no text": (BODY, {rules.SIGNATURE: 7}, NEW, "malformed_header"),
    "a lone surrogate in the signature": (BODY, f"t={NOW},v1=\ud800", NEW, "signature_mismatch"),
    "both schemes": (BODY, headers_at(NOW, signs_standard=True), NEW, None),
    "ours is preferred": (
        BODY,
        headers_at(NOW, signs_standard=True) | {rules.SIGNATURE: f"t={NOW},v1=00"},
        NEW,
        "signature_mismatch",
    ),
    "standard headers": (BODY, standard_at(NOW), NEW, None),
    "standard headers in other letters": (
        BODY,
        {name.title(): one for name, one in standard_at(NOW).items()},
        NEW,
        None,
    ),
    "standard headers, either secret": (BODY, standard_at(NOW), [OLD, NEW], None),
    "standard headers, the old secret during a rotation": (BODY, standard_at(NOW, previous=OLD), OLD, None),
    "standard headers, another secret": (BODY, standard_at(NOW), OLD, "signature_mismatch"),
    "standard headers, a secret of another form": (BODY, standard_at(NOW), "whsec_?", "signature_mismatch"),
    "standard headers, another body": (BODY + b" ", standard_at(NOW), NEW, "signature_mismatch"),
    "standard headers, another id": (BODY, standard_at(NOW, id="evt_2"), NEW, "signature_mismatch"),
    "standard headers, too old": (BODY, standard_at(NOW - 301), NEW, "timestamp_too_old"),
    "standard headers, in the future": (BODY, standard_at(NOW + 302), NEW, "timestamp_in_future"),
    "standard headers, no id": (BODY, standard_at(NOW, id=""), NEW, "malformed_header"),
    "standard headers, no time": (BODY, standard_at(NOW, timestamp="soon"), NEW, "malformed_header"),
    "standard headers, only version 1a": (BODY, standard_at(NOW, signature="v1a,AAAA"), NEW, "unsupported_version"),
    "standard headers, no base64": (BODY, standard_at(NOW, signature="v1,\ud800"), NEW, "signature_mismatch"),
    "a lone surrogate in the secret": (BODY, GOOD, "\ud800", "signature_mismatch"),
}


@pytest.mark.parametrize("case", CASES)
def test_python_verifies_what_the_service_signs(case: str, waybill_client: Any) -> None:
    body, header, secret, reason = CASES[case]
    if reason is None:
        assert waybill_client.webhooks.verify(body, header, secret, now=NOW)["data"]["detail"] == {"text": "é"}
        return
    with pytest.raises(waybill_client.WebhookVerificationError) as caught:
        waybill_client.webhooks.verify(body, header, secret, now=NOW)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("body", "reason"), [(None, "malformed_body"), ("\ud800", "signature_mismatch")])
def test_a_body_that_is_none_is_refused(body: Any, reason: str, waybill_client: Any) -> None:
    with pytest.raises(waybill_client.WebhookVerificationError) as caught:
        waybill_client.webhooks.verify(body, GOOD, NEW, now=NOW)
    assert caught.value.reason == reason


def test_javascript_verifies_what_the_service_signs(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    cases = [[body.decode(), header, secret] for body, header, secret, _reason in CASES.values()]
    script = (
        f'import {{ verify }} from "{(FILES / "webhooks.mjs").as_uri()}";\n'
        f"for (const [body, header, secret] of {json.dumps(cases)})\n"
        f"  console.log(await verify(body, header, secret, {{ now: {NOW} }})\n"
        "    .then(() => null, (error) => error.reason));\n"
    )
    (tmp_path / "run.mjs").write_text(script, "utf-8")
    found = subprocess.run([node, "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert found.stdout.split() == [str(reason or "null") for *_, reason in CASES.values()], found.stderr
