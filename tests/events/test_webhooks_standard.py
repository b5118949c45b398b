"""Posts with the headers of Standard Webhooks beside ours, verified by the libraries that receivers use."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids, secrets
from engine.base.settings import Settings
from engine.events.webhooks import rules, standard
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks.post_options import PostOptions
from ops.host.process_specs import ROOT
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api
from tests.harness.receiver import Endpoint, Got, Receiver, World, verify

PROGRAMS: Final = ROOT / "tests" / "data" / "webhook_verifiers"
PYTHON_PACKAGES: Final = "TEST_CLIENTS_PYTHONPATH"  # a folder with packages that the tests' environment lacks
URL: Final = "http://127.0.0.1:9/hook"
BOTH: Final = ["waybill", "standard"]
VERIFY_S: Final = 120.0
NEW, OLD = standard.new_secret(), standard.new_secret()
BODY: Final = '{"id":"evt_1","type":"delivered","data":{"detail":{"text":"é"}}}'.encode()


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture
def world_here(settings: Settings, pool: asyncpg.Pool) -> World:
    return World(settings, pool)


# -- the libraries --------------------------------------------------------------------------------


def signed(secret: str, previous: str | None = None, *, at_s: int | None = None) -> dict[str, str]:
    """Return the headers of a post as the service signs it."""
    now = int(clock.machine_now().timestamp()) if at_s is None else at_s
    return rules.headers(
        BODY, event_id=UUID(int=1), attempt=1, secret=secret, previous=previous, at_s=now, signs_standard=True
    )


def cases() -> list[tuple[dict[str, Any], bool]]:
    """Return posts, and whether a verifier accepts them."""
    text, late = BODY.decode(), int(clock.machine_now().timestamp()) - 400
    earlier = standard.SECRET_PREFIX + secrets.random_base62(32)  # as secrets were before
    return [
        ({"body": text, "headers": signed(NEW), "secret": NEW}, True),
        ({"body": text, "headers": signed(earlier), "secret": earlier}, True),
        ({"body": text, "headers": signed(NEW, OLD), "secret": NEW}, True),
        ({"body": text, "headers": signed(NEW, OLD), "secret": OLD}, True),
        ({"body": text, "headers": signed(NEW), "secret": OLD}, False),
        ({"body": text + " ", "headers": signed(NEW), "secret": NEW}, False),
        ({"body": text, "headers": signed(NEW) | {standard.ID: "evt_2"}, "secret": NEW}, False),
        ({"body": text, "headers": signed(NEW, at_s=late), "secret": NEW}, False),
    ]


def said(words: list[str], posts: list[dict[str, Any]], **environ: str) -> Any:
    """Run a program of PROGRAMS with posts; return what it prints as JSON."""
    done = subprocess.run(
        words, input=json.dumps(posts), env=os.environ | environ, capture_output=True, check=False, text=True,
        timeout=VERIFY_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def python_verifier() -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of the Python packages; skip the test without them."""
    environ = {"PYTHONPATH": os.environ.get(PYTHON_PACKAGES, "")}
    check = [sys.executable, "-c", "import standardwebhooks, svix.webhooks"]
    if subprocess.run(check, env=os.environ | environ, capture_output=True, check=False).returncode:
        pytest.skip(f"the Python packages standardwebhooks and svix are not in the folder {PYTHON_PACKAGES}")
    return [sys.executable, str(PROGRAMS / "verify.py")], environ


def node_verifier() -> list[str]:
    """Return the command of the npm packages; skip the test without them."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not on PATH")
    check = [found, "-e", "require.resolve('standardwebhooks'); require.resolve('svix')"]
    if subprocess.run(check, capture_output=True, check=False).returncode:
        pytest.skip("the npm packages standardwebhooks and svix are not where Node looks (NODE_PATH)")
    return [found, str(PROGRAMS / "verify.cjs")]


def test_standardwebhooks_and_svix_for_python_verify_our_posts() -> None:
    words, environ = python_verifier()
    known = cases()
    expected = [accepts for _, accepts in known]
    assert said(words, [post for post, _ in known], **environ) == [expected, expected]


def test_standardwebhooks_and_svix_for_node_verify_our_posts() -> None:
    words = node_verifier()
    known = cases()
    expected = [accepts for _, accepts in known]
    assert said(words, [post for post, _ in known]) == [expected, expected]


def test_stripes_library_verifies_our_own_header() -> None:
    """The verifier of the harness is `stripe.WebhookSignature.verify_header`."""
    headers = {name.lower(): value for name, value in signed(NEW, OLD).items()}
    got = Got("/", headers, BODY, clock.now(), 0)
    verify(got, NEW)
    verify(got, OLD, "service-signature-previous")
    with pytest.raises(Exception, match="signature"):
        verify(got, OLD)


# -- the scheme -----------------------------------------------------------------------------------


def test_the_example_of_the_specification_has_its_signature() -> None:
    found = standard.signature(
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",), b'{"test": 2432232314}',
        public_id="msg_p5jXN8AQM9LWM0D4loKWxJek", at_s=1614265330,
    )  # fmt: skip
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_new_secrets_hold_192_random_bits() -> None:
    found = {standard.new_secret() for _ in range(100)}
    assert len(found) == 100
    assert {len(standard.key_of(one) or b"") for one in found} == {24}


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "whsec_AAAA", "whsec_" + "é" * 32, NEW[:-1], NEW.removeprefix("whsec_"), "whsec_" + "A" * 88],
)
def test_a_secret_of_another_form_has_no_key(secret: str) -> None:
    assert standard.key_of(secret) is None


# -- posts ----------------------------------------------------------------------------------------


async def test_posts_have_the_headers_of_both_schemes_and_keep_their_id_over_retries(
    api: Api, world_here: World, account: TestAccount, receiver: Receiver
) -> None:
    new = (await api.post("/v1/webhooks", account.token, {"url": receiver.url, "signatures": BOTH})).json
    endpoint = Endpoint(account, ids.parse_id(ids.Kind.WEBHOOK, new["id"]), new["signingSecret"])
    fresh = await webhooks_service.rotate(world_here.pool, account.id, endpoint.id, pepper=PEPPER, at=clock.now())
    receiver.status = 500
    event = await world_here.event(account)
    async with world_here.posting():
        await world_here.until_attempts(endpoint, event, 1)
        receiver.status = 200
        await world_here.make_due(endpoint)
        await world_here.until_posted(endpoint)

    first, second = receiver.got
    public = ids.format_id(ids.Kind.EVENT, event)
    for got in (first, second):
        verify(got, fresh.secret)
        verify(got, endpoint.secret, "service-signature-previous")
        at_s = int(got.headers["webhook-timestamp"])
        assert got.headers["service-signature"].startswith(f"t={at_s},")
        assert got.headers["webhook-id"] == public == got.headers["service-delivery-id"]
        both = standard.signature((fresh.secret, endpoint.secret), got.body, public_id=public, at_s=at_s)
        assert got.headers["webhook-signature"] == both
        assert len(both.split(" ")) == 2
    shown = (await api.get(f"/v1/webhooks/{new['id']}/deliveries/{public}", account.token)).json["exchanges"]
    for got, exchange in zip((first, second), shown, strict=True):
        sent = {one["name"].lower(): one["value"] for one in exchange["requestHeaders"]}
        assert sent == got.headers
    words, environ = await asyncio.to_thread(python_verifier)
    posts = [
        {"body": got.body.decode(), "headers": got.headers, "secret": secret}
        for got in (first, second)
        for secret in (fresh.secret, endpoint.secret)
    ]
    assert await asyncio.to_thread(said, words, posts, **environ) == [[True] * 4] * 2


async def test_posts_have_our_header_alone_unless_the_endpoint_asks(
    api: Api, world_here: World, account: TestAccount, receiver: Receiver
) -> None:
    new = (await api.post("/v1/webhooks", account.token, {"url": receiver.url})).json
    assert (new["signatures"], new["honorRetryAfter"]) == (["waybill"], False)
    await world_here.event(account)
    async with world_here.posting():
        await world_here.until_posted(Endpoint(account, ids.parse_id(ids.Kind.WEBHOOK, new["id"]), ""))
    assert standard.HEADERS.isdisjoint(receiver.got[0].headers)


async def test_our_headers_replace_own_ones_of_the_same_name_from_before(
    world_here: World, account: TestAccount, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(standard, "HEADERS", frozenset())
        made = await webhooks_service.create(
            world_here.pool, account.id, url=receiver.url, event_types=(), pepper=PEPPER,
            options=PostOptions(headers={"Webhook-Id": "own", "X-A": "1"}, signatures=BOTH),
        )  # fmt: skip
    event = await world_here.event(account)
    async with world_here.posting():
        await world_here.until_posted(Endpoint(account, made.row.id, made.secret))
    [got] = receiver.got
    assert (got.headers["webhook-id"], got.headers["x-a"]) == (ids.format_id(ids.Kind.EVENT, event), "1")
    row = await webhooks_service.change(
        world_here.pool, account.id, made.row.id, url=None, event_types=None, status=None, pepper=PEPPER,
        options=PostOptions(headers={"Webhook-Id": None}),
    )  # fmt: skip
    assert row.header_names == ["X-A"]


# -- the fields of an endpoint --------------------------------------------------------------------


async def test_the_options_are_read_back_changed_and_recorded(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    async def changed(**fields: object) -> Any:
        return (await api.patch(f"/v1/webhooks/{new['id']}", account.token, fields)).json

    new = (
        await api.post("/v1/webhooks", account.token, {"url": URL, "signatures": BOTH, "honorRetryAfter": True})
    ).json
    assert (new["signatures"], new["honorRetryAfter"]) == (BOTH, True)
    same = await changed(description="a note")
    assert (same["signatures"], same["honorRetryAfter"]) == (BOTH, True)
    assert (await changed(signatures=["waybill"]))["signatures"] == ["waybill"]
    assert (await changed(honorRetryAfter=False))["honorRetryAfter"] is False
    assert (await changed(signatures=[*BOTH[::-1]]))["signatures"] == BOTH[::-1]
    again = {"url": URL, "ifExists": "update", "signatures": ["waybill"]}
    assert (await api.post("/v1/webhooks", account.token, again)).json["signatures"] == ["waybill"]
    rows = await pool.fetch(
        "SELECT payload::jsonb -> 'detail' ->> 'signatures' AS signatures,"
        " payload::jsonb -> 'detail' ->> 'honor_retry_after' AS honors FROM events"
        " WHERE account_id = $1 AND type LIKE 'webhook.%' ORDER BY seq",
        account.id,
    )
    assert [tuple(row) for row in rows] == [
        ('["waybill", "standard"]', "true"), (None, None), ('["waybill"]', None), (None, "false"),
        ('["standard", "waybill"]', None), ('["waybill"]', None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"signatures": ["standard"]}, "signatures", "must include `waybill`"),
        ({"signatures": []}, "signatures", ""),
        ({"signatures": ["waybill", "svix"]}, "signatures[1]", ""),
        ({"honorRetryAfter": "yes"}, "honorRetryAfter", ""),
        ({"headers": {"Webhook-Signature": "x"}}, "headers", "can't set it"),
    ],
)
async def test_options_that_can_not_work_are_refused(
    api: Api, account: TestAccount, fields: dict[str, Any], field: str, words: str
) -> None:
    answer = await api.post("/v1/webhooks", account.token, {"url": URL} | fields)
    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)
    assert words in answer.error["message"]


async def test_a_secret_of_another_form_must_be_rotated_first(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    new = (await api.post("/v1/webhooks", account.token, {"url": URL})).json
    webhook = ids.parse_id(ids.Kind.WEBHOOK, new["id"])
    other = secrets.seal(webhooks_service.secret_key(PEPPER), b"whsec_not base64", webhook.bytes)
    await pool.execute("UPDATE webhooks SET sealed_secret = $2 WHERE id = $1", webhook, other)

    path = f"/v1/webhooks/{new['id']}"
    refused = await api.patch(path, account.token, {"signatures": BOTH})
    assert (refused.status, refused.error["type"]) == (409, "conflict")
    assert f"{path}/rotate" in refused.error["message"]
    assert (await api.patch(path, account.token, {"signatures": ["waybill"]})).status == 200
    assert (await api.post(f"{path}/rotate", account.token, body=b"")).status == 200
    assert (await api.patch(path, account.token, {"signatures": BOTH})).json["signatures"] == BOTH


async def test_an_unknown_endpoint_is_not_found(api: Api, account: TestAccount) -> None:
    unknown = ids.format_id(ids.Kind.WEBHOOK, ids.uuid7())
    assert (await api.patch(f"/v1/webhooks/{unknown}", account.token, {"signatures": BOTH})).status == 404
