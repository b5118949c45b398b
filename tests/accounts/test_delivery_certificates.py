"""`GET /v1/messages/{id}/certificate`: what a certificate says, who can verify it, and what it never says again."""

import asyncio
import copy
import gzip
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest
from joserfc import jws
from joserfc.jwk import KeySet, KeySetSerialization

from api.areas.delivery_certificates import key_set
from api.sdk.runtime.certificates import CertificateError, verify_certificate, verify_log
from engine.accounts.delivery_certificates import signing, store
from engine.base import clock, ids
from engine.base.settings import Settings
from engine.retention import erase_address, purge
from engine.retention.erasures import service as erasures
from tests.harness import logbook
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.emails import sent_id
from tests.harness.settling import settle

Json = dict[str, Any]


async def certificate_of(api: Api, account: TestAccount, message: str) -> Json:
    answer = await api.get(f"/v1/messages/{message}/certificate", account.token)
    assert answer.status == 200, answer.body
    found: Json = answer.json
    return found


async def keys_of(pool: asyncpg.Pool) -> Json:
    """The JWK set, past what processes keep of it for seconds."""
    return {"keys": [signing.public_jwk(row) for row in await store.ALL_KEYS.fetch(pool)]}


async def delivered(api: Api, pool: asyncpg.Pool, account: TestAccount, **fields: object) -> str:
    message = await sent_id(api, account, **fields)
    await settle(pool, message)
    return message


async def erased(pool: asyncpg.Pool, settings: Settings, account: TestAccount, address: str) -> None:
    await erasures.request(pool, account.id, address, actor="operator")
    async with asyncio.timeout(60):
        while await pool.fetchval(
            "SELECT count(*) FROM erasures WHERE account_id = $1 AND state <> 'completed'", account.id
        ):
            await erase_address.erase_requested(pool, settings, hold_known_s=0.01)


def said_by(certificate: Json) -> Json:
    found: Json = json.loads(decoded(certificate["payload"]))
    return found


def decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encoded(value: object) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def reason_of(certificate: object, keys: object, **checks: Any) -> str:
    with pytest.raises(CertificateError) as caught:
        verify_certificate(certificate, keys, **checks)  # type: ignore[arg-type]
    return caught.value.reason


async def test_a_certificate_says_what_happened_to_each_recipient(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await sent_id(api, account, to=["ann@people.test", "bob@other.test"], bcc=["eve@other.test"])
    await settle(pool, message, ("bob@other.test", 550, "5.1.1 <bob@other.test> unknown, bob"))
    certificate = await certificate_of(api, account, message)
    said = said_by(certificate)
    ann, bob, eve = said["recipients"]
    stored = await pool.fetchrow("SELECT seq, hash FROM account_heads WHERE account_id = $1", account.id)
    assert stored is not None

    assert (said["version"], said["message"], said["account"]) == (1, message, account.public_id)
    assert (ann["kind"], ann["outcome"], ann["server"]["host"]) == ("to", "delivered", "mx.people.test")
    assert (ann["server"]["reply"], ann["server"]["smtpCode"]) == ("250 2.0.0 Ok: queued", 250)
    assert ann["deliveredAt"] == ann["at"]
    assert (bob["outcome"], bob["deliveredAt"], bob["server"]["enhancedCode"]) == ("bounced", None, "5.1.1")
    assert (eve["kind"], eve["outcome"]) == ("bcc", "delivered")
    assert said["missing"] == []
    salt = bytes.fromhex(certificate["salts"]["log"])
    assert said["log"] == {"seq": stored["seq"], "hashSha256": hashlib.sha256(salt + stored["hash"]).hexdigest()}
    assert [one["type"] for one in said["events"]].count("delivered") == 2
    assert not any(word in json.dumps(said) for word in ("ann@", "bob", "eve@"))


async def test_independent_libraries_verify_it(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    certificate = await certificate_of(api, account, await delivered(api, pool, account))
    keys = await keys_of(pool)
    compact = ".".join(certificate[part] for part in ("protected", "payload", "signature"))

    judges = KeySet.import_key_set(cast("KeySetSerialization", keys))
    judged = jws.deserialize_compact(compact, judges, algorithms=["Ed25519"])
    assert json.loads(judged.payload) == said_by(certificate)
    plain = {part: certificate[part] for part in ("protected", "payload", "signature")}
    whole = jws.deserialize_json(cast("jws.FlattenedJSONSerialization", plain), judges, algorithms=["Ed25519"])
    assert whole.payload == judged.payload
    assert judged.headers()["typ"] == "waybill-delivery-certificate"


async def test_the_keys_are_public_and_cacheable(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    certificate = await certificate_of(api, account, await delivered(api, pool, account))
    kid = json.loads(decoded(certificate["protected"]))["kid"]
    async with asyncio.timeout(60):
        while True:
            answer = await api.get("/.well-known/waybill/keys", headers={"Accept-Encoding": "identity"})
            if kid in {one["kid"] for one in answer.json["keys"]}:
                break
            await asyncio.sleep(0.2)
    again = await api.get("/.well-known/waybill/keys", headers={"If-None-Match": answer.headers["etag"]})

    assert answer.headers["cache-control"] == "public, max-age=300"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert again.status == 304
    assert all("d" not in one for one in answer.json["keys"])
    assert verify_certificate(certificate, answer.json).key["kid"] == kid


async def test_the_keys_are_there_before_the_first_certificate(own_pool: asyncpg.Pool, settings: Settings) -> None:
    """A reader may keep the set for minutes: an empty one would make the first certificates unknown."""
    file = await key_set.KeySet(own_pool, settings.pepper)._current()

    assert len(json.loads(gzip.decompress(file.content) if file.packed else file.content)["keys"]) == 1


async def test_each_change_of_a_certificate_is_found(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    certificate = await certificate_of(api, account, await delivered(api, pool, account))
    keys = await keys_of(pool)
    said = said_by(certificate)
    verify_certificate(certificate, keys)

    for name in said:
        values: tuple[object, ...] = (None, "x", [], 7)
        for value in (one for one in values if one != said[name]):
            changed = certificate | {"payload": encoded(said | {name: value})}
            assert reason_of(changed, keys) == "signature_mismatch", name
    for place, text in ((0, "A"), (20, "B"), (85, "w")):
        signature = certificate["signature"]
        other = signature[:place] + ("C" if signature[place] == text else text) + signature[place + 1 :]
        assert reason_of(certificate | {"signature": other}, keys) in {"signature_mismatch", "malformed_certificate"}
    for part in ("payload", "protected", "signature"):
        without = {name: value for name, value in certificate.items() if name != part}
        assert reason_of(without, keys) == "malformed_certificate"
        refused = "signature_mismatch" if part == "payload" else "malformed_certificate"
        assert reason_of(certificate | {part: certificate[part] + "="}, keys) == refused
        assert reason_of(certificate | {part: certificate[part] + "é"}, keys) == refused
        assert reason_of(certificate | {part: 5}, keys) == "malformed_certificate"
    assert reason_of(certificate | {"signature": ""}, keys) == "signature_mismatch"
    assert reason_of("not JSON", keys) == "malformed_certificate"
    assert reason_of("[]", keys) == "malformed_certificate"


@pytest.mark.parametrize("algorithm", ["none", "EdDSA", "ed25519", "HS256", "", None, ["Ed25519"]])
async def test_no_other_algorithm_is_accepted(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings, algorithm: object
) -> None:
    """The signature is genuine: the name alone is refused."""
    certificate = await certificate_of(api, account, await delivered(api, pool, account))
    (key,) = [row for row in await store.ALL_KEYS.fetch(pool) if row.retired_at is None]
    header = {"alg": algorithm, "kid": key.kid, "typ": "waybill-delivery-certificate"}
    protected = encoded(header)
    private = signing.opened(key, settings.pepper)
    forged = {
        "protected": protected, "payload": certificate["payload"],
        "signature": encoded(private.sign(f"{protected}.{certificate['payload']}".encode())),
    }  # fmt: skip

    assert reason_of(forged, await keys_of(pool)) == "unsupported_algorithm"
    assert reason_of(forged | {"signature": ""}, await keys_of(pool)) == "unsupported_algorithm"


async def test_the_key_must_be_one_of_the_set(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    certificate = await certificate_of(api, account, await delivered(api, pool, account))
    keys = await keys_of(pool)
    _, other, _ = signing.new_key(Settings(key_pepper="x" * 40).pepper)
    swapped = copy.deepcopy(keys)
    for one in swapped["keys"]:
        one["x"] = encoded(other)

    assert reason_of(certificate, {"keys": []}) == "unknown_key"
    assert reason_of(certificate, {}) == "unknown_key"
    assert reason_of(certificate, {"keys": [one | {"kid": "other"} for one in keys["keys"]]}) == "unknown_key"
    assert reason_of(certificate, {"keys": [one | {"crv": "X25519"} for one in keys["keys"]]}) == "unknown_key"
    assert reason_of(certificate, {"keys": [one | {"alg": "EdDSA"} for one in keys["keys"]]}) == "unknown_key"
    assert reason_of(certificate, swapped) == "signature_mismatch"


async def test_a_rotated_key_verifies_what_it_signed_and_nothing_later(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings
) -> None:
    message = await delivered(api, pool, account)
    before = await certificate_of(api, account, message)
    first = json.loads(decoded(before["protected"]))["kid"]
    fresh = await store.rotate(pool, settings.pepper, clock.now())
    after = await certificate_of(api, account, message)
    keys = await keys_of(pool)

    assert json.loads(decoded(after["protected"]))["kid"] == fresh != first
    assert verify_certificate(before, keys).key["kid"] == first
    assert verify_certificate(after, keys).key["kid"] == fresh
    assert await pool.fetchval("SELECT sealed_key FROM certificate_keys WHERE kid = $1", first) is None
    long_ago = {"keys": [one | {"retiredAt": "2020-01-01T00:00:00.000Z"} for one in keys["keys"]]}
    assert reason_of(before, long_ago) == "retired_key"


async def test_two_rotations_at_once_leave_one_key_that_signs(pool: asyncpg.Pool, settings: Settings) -> None:
    made = await asyncio.gather(*[store.rotate(pool, settings.pepper, clock.now()) for _ in range(4)])

    assert len(set(made)) == 4
    assert (await store.active_key(pool, settings.pepper, clock.now())).kid in made
    assert await pool.fetchval("SELECT count(*) FROM certificate_keys WHERE retired_at IS NULL") == 1


async def test_a_key_under_an_unknown_pepper_signs_nothing_until_it_is_rotated(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings
) -> None:
    message = await delivered(api, pool, account)
    await certificate_of(api, account, message)
    await pool.execute("UPDATE certificate_keys SET sealed_key = $1 WHERE retired_at IS NULL", bytes(60))
    answer = await api.get(f"/v1/messages/{message}/certificate", account.token)
    await store.rotate(pool, settings.pepper, clock.now())

    assert (answer.status, answer.error["type"]) == (503, "unavailable")
    assert verify_certificate(await certificate_of(api, account, message), await keys_of(pool)).statement


async def test_the_certified_message_is_recognised_as_sent_and_as_received(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await delivered(api, pool, account, subject="Grüße", html="<p>Hello  you</p>", text="Hello\n\n\n")
    certificate, keys = await certificate_of(api, account, message), await keys_of(pool)
    raw = (await api.get(f"/v1/messages/{message}/raw", account.token)).body
    received = b"Return-Path: <x@y.test>\r\nReceived: from a\r\n\tby b; now\r\nDKIM-Signature: v=1\r\n" + raw
    head, _, body = raw.partition(b"\r\n\r\n")
    moved = b"\r\n".join([*reversed(head.split(b"\r\nSubject")[0:1]), b"X-Spam: no"])

    def found(content: bytes) -> str | None:
        return verify_certificate(certificate, keys, message=content).message

    assert said_by(certificate)["content"]["sha256"] == hashlib.sha256(raw).hexdigest()
    assert said_by(certificate)["content"]["sizeBytes"] == len(raw)
    assert found(raw) == found(received) == found(received.replace(b"\r\n", b"\n")) == found(raw + b"\n") == "identical"
    assert found(b"X-Top: 1\r\n" + head + b"\r\nX-Added: below\r\n\r\n" + body) == "same"
    assert reason_of(certificate, keys, message=raw + b"more") == "message_mismatch"
    assert reason_of(certificate, keys, message=raw.replace(b"Hello", b"HELLO")) == "message_mismatch"
    assert reason_of(certificate, keys, message=moved + b"\r\n\r\n" + body) == "message_mismatch"
    assert reason_of(certificate, keys, message=raw.replace(b"ann@people", b"bob@people")) == "message_mismatch"
    assert reason_of(certificate, keys, message=b"") == "message_mismatch"


async def test_the_body_digest_is_that_of_dkim(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    message = await delivered(api, pool, account, text="Hello\r\n\r\n\r\n")
    certificate = await certificate_of(api, account, message)
    said, salt = said_by(certificate), bytes.fromhex(certificate["salts"]["content"])
    raw = (await api.get(f"/v1/messages/{message}/raw", account.token)).body
    relaxed = raw.partition(b"\r\n\r\n")[2].rstrip(b"\r\n") + b"\r\n"

    assert said["content"]["bodySha256"] == hashlib.sha256(salt + hashlib.sha256(relaxed).digest()).hexdigest()


async def test_only_who_knows_salt_and_address_can_name_a_recipient(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    certificate = await certificate_of(api, account, await delivered(api, pool, account, to=["Ann@People.test"]))
    keys = await keys_of(pool)
    without = {name: value for name, value in certificate.items() if name != "salts"}
    entry = verify_certificate(certificate, keys, recipient="ann@people.TEST").recipient
    salt = bytes.fromhex(certificate["salts"]["recipients"][0])

    assert entry is not None
    assert entry["addressSha256"] == hashlib.sha256(salt + b"ann@people.test").hexdigest()
    assert entry["addressSha256"] != hashlib.sha256(b"ann@people.test").hexdigest()
    assert reason_of(certificate, keys, recipient="bob@people.test") == "recipient_mismatch"
    assert verify_certificate(without, keys).statement == said_by(certificate)
    assert reason_of(without, keys, recipient="ann@people.test") == "recipient_mismatch"
    again = await certificate_of(api, account, said_by(certificate)["message"])
    assert again["salts"] != certificate["salts"]


async def test_after_an_erasure_no_certificate_tells_of_the_address(
    api: Api, account: TestAccount, pool: asyncpg.Pool, settings: Settings
) -> None:
    other = "bob@other.test"
    message = await delivered(api, pool, account, to=["ann@people.test", other], subject="For both")
    kept = await certificate_of(api, account, message)
    before = said_by(kept)
    await erased(pool, settings, account, "ann@people.test")
    certificate = await certificate_of(api, account, message)
    said, keys = said_by(certificate), await keys_of(pool)
    text = json.dumps(said) + json.dumps(certificate["salts"])

    assert (said["recipients"][0]["addressSha256"], said["recipients"][0]["server"]) == (None, None)
    assert said["recipients"][0]["outcome"] == "delivered"
    assert certificate["salts"]["recipients"][0] is None
    assert certificate["salts"]["content"] is None
    assert said["content"] is None
    assert all(event["hashSha256"] is None for event in said["events"])
    assert said["missing"] == ["content", "recipients[0].addressSha256", "events"]
    assert verify_certificate(certificate, keys, recipient=other).recipient == said["recipients"][1]
    assert reason_of(certificate, keys, recipient="ann@people.test") == "recipient_mismatch"
    gone = {event["hashSha256"] for event in before["events"]} | {before["recipients"][0]["addressSha256"]}
    rows = await pool.fetch("SELECT hash FROM events WHERE account_id = $1", account.id)
    gone |= {row["hash"].hex() for row in rows}
    assert not any(digest in text for digest in gone)
    assert "people.test" not in text
    assert "erased" not in text
    assert verify_certificate(kept, keys, recipient="ann@people.test").message is None


async def test_an_encrypted_recipient_has_an_outcome_and_no_digest(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    """Verification codes: the service itself can't read whom they went to."""
    made = await logbook.message(pool, account.id, "*@people.test", status="delivered")
    reply = {"recipient": "*@people.test", "diagnostic": "250 2.0.0 Ok", "smtp_code": 250, "mx": "mx.people.test"}
    await logbook.write(pool, account.id, ("accepted", {}), ("delivered", reply), message=made)
    certificate = await certificate_of(api, account, ids.format_id(ids.Kind.MESSAGE, made))
    said = said_by(certificate)

    assert (said["recipients"][0]["outcome"], said["recipients"][0]["addressSha256"]) == ("delivered", None)
    assert said["recipients"][0]["server"]["reply"] == "250 2.0.0 Ok"
    assert certificate["salts"]["recipients"] == [None]
    assert said["missing"] == ["content", "recipients[0].addressSha256"]


async def test_after_retention_the_log_still_speaks_until_nothing_is_left(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await delivered(api, pool, account)
    kept = await certificate_of(api, account, message)
    made = ids.parse_id(ids.Kind.MESSAGE, message)
    await pool.execute("DELETE FROM message_bodies WHERE message_id = $1", made)
    half = said_by(await certificate_of(api, account, message))
    for table, column in (("recipients", "message_id"), ("messages", "id")):
        await pool.execute(f"DELETE FROM {table} WHERE {column} = $1", made)
    log_only = await certificate_of(api, account, message)
    said = said_by(log_only)

    assert (half["missing"], half["content"]) == (["content"], None)
    assert said["missing"] == ["message", "content"]
    assert [(one["outcome"], one["kind"]) for one in said["recipients"]] == [("delivered", None)]
    assert said["recipients"][0]["server"]["host"] == "mx.people.test"
    assert verify_certificate(log_only, await keys_of(pool), recipient="ann@people.test").recipient is not None
    await logbook.purge(pool, account.id, 1)
    assert "events" in said_by(await certificate_of(api, account, message))["missing"]
    await logbook.purge(pool, account.id, 3)
    answer = await api.get(f"/v1/messages/{message}/certificate", account.token)
    assert (answer.status, answer.error["type"]) == (404, "not_found")
    assert verify_certificate(kept, await keys_of(pool)).statement["message"] == message


async def test_the_purge_itself_leaves_nothing_that_contradicts(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await delivered(api, pool, account)
    await purge.purge(pool, clock.now() + timedelta(days=1), everyone=True)

    assert said_by(await certificate_of(api, account, message))["missing"] == []


async def test_an_open_outcome_is_refused_with_its_state(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    queued = await sent_id(api, account)
    scheduled = await sent_id(api, account, scheduledAt=clock.iso(clock.now() + timedelta(hours=2)))
    waiting = await sent_id(api, account, to=["ann@people.test", "bob@other.test"])
    later = ("bob@other.test", 451, "4.7.1 later")
    await settle(pool, waiting, later, again_after=timedelta(minutes=5))
    states = []
    for message in (queued, scheduled, waiting):
        answer = await api.get(f"/v1/messages/{message}/certificate", account.token)
        states.append((answer.status, answer.error["type"], answer.error["state"]))

    assert states == [(409, "invalid_state", state) for state in ("queued", "scheduled", "sending")]


async def test_nothing_is_signed_about_a_log_that_was_changed(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await delivered(api, pool, account)
    await pool.execute(
        "UPDATE events SET payload = replace(payload, 'queued', 'filed') WHERE account_id = $1 AND type = 'delivered'",
        account.id,
    )
    answer = await api.get(f"/v1/messages/{message}/certificate", account.token)

    assert (answer.status, answer.error["type"]) == (409, "conflict")
    assert "event 3" in answer.error["message"]


async def test_an_export_of_the_log_links_the_events_to_the_signed_end(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    message = await delivered(api, pool, account)
    await logbook.many(pool, account.id, 20)
    certificate = await certificate_of(api, account, message)
    said = verify_certificate(certificate, await keys_of(pool))
    await logbook.many(pool, account.id, 20)
    lines = (await api.get("/v1/audit/export", account.token)).body.splitlines()
    shorter = [line for line in lines if b'"seq":10,' not in line]
    other = await make_account(pool)
    await delivered(api, pool, other)
    foreign = (await api.get("/v1/audit/export", other.token)).body.splitlines()

    assert verify_log(said, lines) == 3
    for changed in (
        lines[:12], shorter, foreign, [], [line.replace(b'\\"n\\":12', b'\\"n\\":13') for line in lines],
    ):  # fmt: skip
        with pytest.raises(CertificateError) as caught:
            verify_log(said, changed)
        assert caught.value.reason == "log_mismatch"


async def test_only_the_accounts_own_message_is_found(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    message = await delivered(api, pool, await make_account(pool))
    limited = await add_key(pool, account.id, scopes=["emails:send"])

    def shown(answer: Answer) -> tuple[int, str]:
        return answer.status, answer.error["type"]

    for name in (message, "msg_01m7xmsqwgebmv6bc4n8ss49bj", "x"):
        answer = await api.get(f"/v1/messages/{name}/certificate", account.token)
        assert shown(answer) == (404, "not_found"), name
    assert shown(await api.get(f"/v1/messages/{message}/certificate", limited)) == (403, "forbidden")
    assert shown(await api.get(f"/v1/messages/{message}/certificate")) == (401, "unauthorized")


async def test_the_pdf_shows_it_to_people_and_carries_it(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    message = await delivered(api, pool, account)
    path = f"/v1/messages/{message}/certificate"
    by_query = await api.get(f"{path}?format=pdf", account.token)
    by_header = await api.get(path, account.token, headers={"Accept": "application/pdf"})
    as_json = await api.get(f"{path}?format=json", account.token, headers={"Accept": "application/pdf"})
    start = by_query.body.index(b'{\n  "payload"')
    attached = json.loads(by_query.body[start : by_query.body.index(b"\n}", start) + 2])

    assert by_query.body.startswith(b"%PDF-")
    assert by_query.headers["content-type"] == by_header.headers["content-type"] == "application/pdf"
    assert by_query.headers["content-disposition"] == f'attachment; filename="{message}-certificate.pdf"'
    assert as_json.headers["content-type"] == "application/json"
    assert as_json.headers["cache-control"] == "private, no-store"
    assert verify_certificate(attached, await keys_of(pool)).statement["message"] == message
    assert b"EmbeddedFiles" in by_query.body
