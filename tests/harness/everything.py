"""An account with one of everything: through the API where there is a door, straight into the tables elsewhere."""

import base64
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct, field

from engine.base import clock, ids
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.receiving.analytics import delivery
from engine.receiving.receive import Receiver
from engine.receiving.types import ReceiveOutcome
from engine.sending.statistics import jobs as figures
from engine.store.caches import bump
from tests.harness.accounts import TestAccount, add_domain, add_key
from tests.harness.api import Answer, Api
from tests.harness.broadcasts import with_stream
from tests.harness.payments import pay
from tests.harness.people import TestPerson, make_person, signed_in
from tests.harness.pictures import picture
from tests.harness.received_mail import ClaimedAddress, mail, messages_of, receive
from tests.harness.unsubscribing import store_link

Ids = dict[str, str]


class Estate(Struct):
    """An account, its people, and the public ids of its things by what they are."""

    account: TestAccount
    owner: TestPerson
    member: TestPerson
    things: Ids = field(default_factory=dict)

    @property
    def needles(self) -> list[str]:
        """Return the strings that identify the account's rows: ids as stored and as shown, and addresses."""
        uuids = {self.account.id, self.owner.id, self.member.id}
        found = {str(one) for one in uuids} | {self.account.public_id, self.owner.email, self.member.email}
        for text in self.things.values():
            found.add(text)
            if (inside := uuid_in(text)) is not None:
                found.add(str(inside))
        return sorted(found)


def uuid_in(text: str) -> UUID | None:
    """The UUID in a public id; None for a slug or an address."""
    for kind in ids.Kind:
        if text.startswith(f"{kind.value}_") and len(text) == len(kind.value) + 27:
            return ids.parse_id(kind, text)
    return None


async def furnish(
    api: Api, pool: asyncpg.Pool, account: TestAccount, settings: Settings, above: Estate | None = None
) -> Estate:
    """Give an account (of a plan that has room) one of everything. `above`: the account it is a sub-account of."""
    owner = above.owner if above else await make_person(pool, account.id, "owner")
    member = above.member if above else await make_person(pool, account.id, "member")
    if above is None:
        await signed_in(pool, member.id, account.id, member.email)
    estate = Estate(account, owner, member)
    await _mail(api, estate)
    await _tools(api, estate)
    await _codes(api, estate)
    await _agent(api, pool, estate)
    if above is None:
        await _people(api, estate)
        await _plan(api, pool, settings, estate)
    else:
        made = await api.post(
            "/v1/api-keys",
            None,
            {"name": "Its own", "scopes": ["emails:send"], "subAccountId": account.public_id},
            person=owner,
        )
        estate.things["key"] = _ok(made)["id"]
    await _audience(api, pool, estate)
    await _policy(api, pool, estate)
    await _receive(pool, settings, estate)
    await _opt_out(api, pool, estate)
    await _behind_the_doors(pool, estate, people=above is None)
    return estate


async def _mail(api: Api, estate: Estate) -> None:
    account, mark = estate.account, ids.encode(estate.account.id)
    recipient = f"reader-{mark}@people.test"
    estate.things["recipient"] = recipient
    _ok(await api.post("/v1/streams", account.token, {"id": f"news-{mark}"}))
    estate.things["stream"] = f"news-{mark}"
    attached = {"filename": f"{mark}.txt", "contentType": "text/plain", "content": base64.b64encode(b"Hi").decode()}
    sent = account.email(
        to=[recipient], tags=[mark], metadata={"order": mark}, idempotencyKey=mark, attachments=[attached],
        stream=f"news-{mark}",
    )  # fmt: skip
    estate.things["message"] = _ok(await api.post("/v1/emails", account.token, sent))["id"]
    later = clock.iso(clock.now() + timedelta(hours=5))
    waiting = _ok(await api.post("/v1/emails", account.token, account.email(to=[recipient], scheduledAt=later)))
    estate.things["scheduled"] = waiting["id"]
    shown = _ok(await api.get(f"/v1/messages/{estate.things['message']}", account.token))
    estate.things["attachment"] = shown["attachments"][0]["id"]
    blocked = f"never-{mark}@people.test"
    _ok(await api.post("/v1/suppressions", account.token, {"address": blocked}))
    estate.things["suppression"] = blocked
    other = {**sent, "listUnsubscribe": "auto", "idempotencyKey": f"{mark}2", "retainContent": False}
    _ok(await api.post("/v1/emails", account.token, other))


async def _tools(api: Api, estate: Estate) -> None:
    account, mark = estate.account, ids.encode(estate.account.id)
    layout = {"id": f"brand-{mark}", "html": "<main>{{{content}}}</main>"}
    _ok(await api.post("/v1/layouts", account.token, layout))
    estate.things["layout"] = f"brand-{mark}"
    image = {"filename": f"{mark}.png", "content": picture()}
    estate.things["image"] = _ok(await api.post("/v1/images", account.token, image))["id"]
    template = {"id": f"receipt-{mark}", "subject": "Hello", "text": "Hello", "layout": f"brand-{mark}"}
    _ok(await api.post("/v1/templates", account.token, template))
    estate.things["template"] = f"receipt-{mark}"
    hook = _ok(await api.post("/v1/webhooks", account.token, {"url": f"http://127.0.0.1:9/{mark}"}))
    estate.things["webhook"] = hook["id"]
    tested = await api.post(f"/v1/webhooks/{hook['id']}/test", account.token)
    estate.things["event"] = _ok(tested)["id"]
    listed = _ok(await api.get("/v1/domains", account.token))["data"]
    estate.things["domain"] = listed[0]["id"]
    mailbox = {"address": f"support-{mark}@{account.domain}", "label": mark}
    claimed = _ok(await api.post("/v1/inbound/addresses", account.token, mailbox))
    route = {"address": mailbox["address"], "action": "webhook", "webhookId": hook["id"]}
    routed = _ok(await api.post("/v1/inbound/routes", account.token, route))
    estate.things |= {"inbound_address": claimed["id"], "inbound_route": routed["id"]}
    estate.things["inbound_mailbox"] = mailbox["address"]
    rule = {"kind": "quota_usage", "threshold": 0.8, "enabled": False}
    estate.things["alert_rule"] = _ok(await api.post("/v1/alerts/rules", account.token, rule))["id"]


async def _agent(api: Api, pool: asyncpg.Pool, estate: Estate) -> None:
    """Ask for a person's approval of a send, with a key that needs it."""
    key = await add_key(pool, estate.account.id, scopes=["emails:send"], approval="required")
    asked = await api.post("/v1/agent-sends", key, {"email": estate.account.email(to=[estate.things["recipient"]])})
    estate.things["agent_send"] = _ok(asked)["id"]


async def _broadcast(api: Api, pool: asyncpg.Pool, estate: Estate) -> None:
    """Create a broadcast to the list that has begun to send."""
    account, mark = estate.account, ids.encode(estate.account.id)
    await with_stream(pool, account)
    body = {"name": mark, "from": account.sender, "list": estate.things["list"], "text": mark}
    estate.things["broadcast"] = _ok(await api.post("/v1/broadcasts", account.token, body))["id"]
    broadcast = ids.parse_id(ids.Kind.BROADCAST, estate.things["broadcast"])
    contact = ids.parse_id(ids.Kind.CONTACT, estate.things["contact"])
    for statement, arguments in (
        ("INSERT INTO broadcast_work VALUES ($1, $2, now() + interval '1 day', $3)", (broadcast, account.id, mark)),
        ("INSERT INTO broadcast_recipients VALUES ($1, $2, $3)", (broadcast, contact, f"contact-{mark}@people.test")),
        ("INSERT INTO broadcast_progress (broadcast_id, recipients) VALUES ($1, 1)", (broadcast,)),
        ("INSERT INTO broadcast_outcomes (broadcast_id) VALUES ($1)", (broadcast,)),
        ("INSERT INTO broadcast_watches VALUES ($1, 0, now(), now() + interval '1 day')", (account.id,)),
        ("INSERT INTO broadcast_reviews VALUES ($1, now())", (account.id,)),
    ):
        await pool.execute(statement, *arguments)


async def _audience(api: Api, pool: asyncpg.Pool, estate: Estate) -> None:
    """Create a contact on a list, with a confirmation under way, and a segment."""
    account, mark = estate.account, ids.encode(estate.account.id)
    made = _ok(await api.post("/v1/lists", account.token, {"name": f"News {mark}"}))
    estate.things["list"] = made["id"]
    person = {"email": f"contact-{mark}@people.test", "name": mark, "consent": "customer", "lists": [made["id"]]}
    estate.things["contact"] = _ok(await api.post("/v1/contacts", account.token, person))["id"]
    estate.things["opt_out"] = f"left-{mark}@people.test"
    opted_out = {"addresses": [estate.things["opt_out"]]}
    _ok(await api.post(f"/v1/lists/{made['id']}/opt-outs", account.token, opted_out))
    filter_ = {"property": "list", "value": made["id"]}
    segment = _ok(await api.post("/v1/segments", account.token, {"name": f"Members {mark}", "filter": filter_}))
    estate.things["segment"] = segment["id"]
    await _broadcast(api, pool, estate)
    await pool.execute(
        "INSERT INTO contact_confirmations (id, account_id, contact_id, sender, mailed_at, expires_at)"
        " VALUES ($1, $2, $3, $4, now(), now() + interval '1 day')",
        ids.uuid7(), account.id, ids.parse_id(ids.Kind.CONTACT, estate.things["contact"]), mark,
    )  # fmt: skip


async def _codes(api: Api, estate: Estate) -> None:
    """Start a verification, and brand its mail."""
    account, to = estate.account, f"code-{ids.encode(estate.account.id)}@people.test"
    _ok(await api.put("/v1/verifications/settings", account.token, {"brandName": "Everything"}))
    made = _ok(await api.post("/v1/verifications", account.token, {"to": to, "from": account.sender}))
    estate.things["verification"] = made["id"]


async def _policy(api: Api, pool: asyncpg.Pool, estate: Estate) -> None:
    """Host an MTA-STS policy for the verified domain, with a certificate."""
    domain = estate.account.domain
    answer = await api.put(f"/v1/inbound/mta-sts/{domain}", estate.account.token, {"mode": "testing"})
    assert answer.status == 200, answer.body
    await pool.execute(
        "INSERT INTO tls_certificates (host, domain_id, due_at) SELECT 'mta-sts.' || name, id, now() FROM domains"
        " WHERE name = $1",
        domain,
    )


async def _receive(pool: asyncpg.Pool, settings: Settings, estate: Estate) -> None:
    """Receive a message with an attachment at the claimed address, and queue it to be forwarded."""
    address = estate.things["inbound_mailbox"]
    claimed = ClaimedAddress(
        ids.parse_id(ids.Kind.INBOUND_ADDRESS, estate.things["inbound_address"]), estate.account.id, address
    )
    mark = ids.encode(estate.account.id)
    raw = mail(f"For {mark}", To=address, files=[(f"{mark}.txt", "text/plain", b"Hi")])
    assert await receive(Receiver(pool, settings), claimed.recipient(), raw=raw) is ReceiveOutcome.STORED
    [row] = await messages_of(pool, estate.account.id)
    estate.things["received"] = ids.format_id(ids.Kind.RECEIVED, row["id"])
    estate.things["received_attachment"] = orjson.loads(row["attachments"])[0]["id"]
    await pool.execute(
        "INSERT INTO inbound_forwards (message_id, account_id, forward_to, due_at)"
        " VALUES ($1, $2, 'ann@people.test', now())", row["id"], estate.account.id,
    )  # fmt: skip
    await pool.execute(
        "INSERT INTO inbound_forgets (message_id, account_id, event_id, look_at) VALUES ($1, $2, $3, now())",
        row["id"], estate.account.id, row["event_id"],
    )  # fmt: skip


async def _opt_out(api: Api, pool: asyncpg.Pool, estate: Estate) -> None:
    """Let a person opt out of a topic, through the page."""
    token = await store_link(pool, estate.account, estate.things["recipient"], topic=ids.uuid7())
    answer = await api.request("POST", f"/u/{token}?choice=topic")
    assert answer.status == 200, answer.body


async def _plan(api: Api, pool: asyncpg.Pool, settings: Settings, estate: Estate) -> None:
    """Buy a plan, and return to the one before: tests rely on its limits."""
    before = await pool.fetchval("SELECT plan FROM accounts WHERE id = $1", estate.account.id)
    profile = {"legalName": f"Name {ids.encode(estate.account.id)}", "country": "DE"}
    order = {"plan": "scale", "profile": profile}
    opened = _ok(await api.post("/v1/billing/checkout", None, order, person=estate.owner))
    await pay(api, settings, opened)
    [invoice] = _ok(await api.get("/v1/billing/invoices", person=estate.owner))["data"]
    estate.things |= {"checkout": opened["id"], "invoice": invoice["id"]}
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("UPDATE accounts SET plan = $2 WHERE id = $1", estate.account.id, before)
        await bump(connection, "keys")


async def _people(api: Api, estate: Estate) -> None:
    mark = ids.encode(estate.account.id)
    scopes = sorted(SCOPES)
    key = await api.post("/v1/api-keys", None, {"name": "Another", "scopes": scopes}, person=estate.owner)
    estate.things["key"] = _ok(key)["id"]
    invited = f"guest-{mark}@people.test"
    invite = await api.post("/v1/team/invites", None, {"email": invited, "role": "member"}, person=estate.owner)
    estate.things |= {"invite": _ok(invite)["id"], "invited": invited}
    view = {"page": "messages", "name": mark, "query": "status=bounced", "shared": True}
    estate.things["view"] = _ok(await api.post("/v1/views", None, view, person=estate.owner))["id"]
    child = await api.post("/v1/sub-accounts", None, {"name": f"Below {mark}"}, person=estate.owner)
    estate.things["sub_account"] = _ok(child)["id"]
    for name, person in (("owner", estate.owner), ("member", estate.member)):
        estate.things[name] = person.public_id
        estate.things[f"{name}_session"] = ids.format_id(ids.Kind.SESSION, person.session_id)


async def _behind_the_doors(pool: asyncpg.Pool, estate: Estate, *, people: bool) -> None:
    """Rows that background work or the world outside makes."""
    account = estate.account.id
    message, hook, event = (uuid_in(estate.things[name]) for name in ("message", "webhook", "event"))
    domain = uuid_in(estate.things["domain"])
    await figures.count_ahead(pool, everything=True)
    await delivery.count_ahead(pool, everything=True)
    async with pool.acquire() as connection, connection.transaction():
        for statement, arguments in (
            ("INSERT INTO account_days (account_id, day, delivered) VALUES ($1, '2026-01-01', 1)", (account,)),
            (
                "INSERT INTO delivery_providers VALUES ($1, '2026-01-01', 'google', 's', 'x.test', 1, 0, 0, 0, '')",
                (account,),
            ),
            (
                "INSERT INTO delivery_waits VALUES ($1, '2026-01-01Z', 'other', 's', 'x.test', 1, 0,0,0,0,0,0,0,0, 1)",
                (account,),
            ),
            ("INSERT INTO simulated_days (account_id, day, messages) VALUES ($1, '2026-01-01', 1)", (account,)),
            ("INSERT INTO plan_usage VALUES ($1, 'received_messages', '2026-01-01', 1)", (account,)),
            (
                "INSERT INTO address_check_reservations VALUES ($2, $1, '2026-01-01', 1, now() + interval '1 day')",
                (account, ids.uuid7()),
            ),
            ("INSERT INTO tail_slots VALUES ($1, 1, $2, now())", (account, ids.uuid7())),
            ("INSERT INTO cloudflare_tokens (account_id, sealed_token) VALUES ($1, '\\x00')", (account,)),
            ("INSERT INTO account_standings (account_id) VALUES ($1) ON CONFLICT DO NOTHING", (account,)),
            ("INSERT INTO outcome_quarters VALUES ($1, 1, 1, 0, 0)", (account,)),
            ("INSERT INTO complaint_sources VALUES ($1, 'provider.test', 'people.test', 1)", (account,)),
            ("INSERT INTO outcome_days VALUES ($1, '2026-01-01', 1, 0, 0)", (account,)),
            (
                (
                    "INSERT INTO alert_events VALUES"
                    " ($1, $2, $3, 'quota_usage', 0.9, 0.8, 1, '{}', '{}', now() - interval '1 hour', now())"
                ),
                (ids.uuid7(), account, uuid_in(estate.things["alert_rule"])),
            ),
            (
                (
                    "INSERT INTO renewal_charges"
                    " VALUES ($1, now(), $2, 'starter', 'month', 'EUR', 1, 0, 0, '0', false, 1, '{}')"
                ),
                (account, ids.uuid7()),
            ),
            (
                (
                    "INSERT INTO blocklist_listings SELECT 'domain', name, $2, '127.0.0.2', now(), now()"
                    " FROM domains WHERE account_id = $1"
                ),
                (account, estate.account.public_id),
            ),
            ("INSERT INTO erasures (id, account_id, requested_at) VALUES ($2, $1, now())", (account, ids.uuid7())),
            ("INSERT INTO erasure_keys VALUES ($1, '\\x00')", (account,)),
            ("INSERT INTO erased_suppressions VALUES ($1, '\\x00', 'bounce', now())", (account,)),
            ("INSERT INTO kept_retentions VALUES ($1, 90, now())", (account,)),
            ("INSERT INTO limit_mails VALUES ($1, 'daily_limit_reached', '2026-01-01', 50)", (account,)),
            ("INSERT INTO source_pools VALUES ('everything', '[]') ON CONFLICT DO NOTHING", ()),
            ("INSERT INTO source_assignments VALUES ('transactional', $1, 'everything')", (account,)),
            (
                (
                    "INSERT INTO report_mails (id, purpose, local, host, envelope_from, remote_ip, received_at,"
                    " size_bytes, digest, due_at, account_id)"
                    " VALUES ($1, 'bounce', 'b+x', 'b.test', '', '192.0.2.1', now(), 0, $2, now(), $3)"
                ),
                (ids.uuid7(), account.bytes, account),
            ),
            (
                "INSERT INTO dmarc_reports VALUES ($1, $2, 'a', 'b', now(), now(), '2026-01-01', now())",
                (account, domain),
            ),
            (
                "INSERT INTO dmarc_rows VALUES ($1, $2, '2026-01-01', '192.0.2.1', 'b.test', true, true, 'none', 1)",
                (account, domain),
            ),
            (
                "INSERT INTO received_tls_reports VALUES ($1, $2, 'a', 'b', now(), '2026-01-01', now())",
                (account, domain),
            ),
            (
                "INSERT INTO received_tls_rows VALUES ($1, $2, '2026-01-01', 'sts', 'b.test', '', 1, 0)",
                (account, domain),
            ),
            (
                "INSERT INTO api_requests VALUES ($1, $2, null, null, 'GET', '/v1/me', 200, 900, 'x', null)",
                (ids.uuid7(), account),
            ),
            ("INSERT INTO suspensions VALUES ($1, 'operator', 'test', now())", (account,)),
            ("INSERT INTO leads VALUES ($1, $2, null, 'x@people.test', null, 'Hello', now())", (ids.uuid7(), account)),
            (
                "INSERT INTO holds (id, kind, target, reason) VALUES ($1, 'message', $2, 'test')",
                (ids.uuid7(), estate.things["message"]),
            ),
            (
                "INSERT INTO tls_reports VALUES ('2026-01-01', $1, '{}', $2)",
                (f"{ids.encode(account)}.test", message),
            ),
            (
                (
                    "INSERT INTO webhook_attempts (id, webhook_id, event_id, seq, attempt, started_at, delivered) "
                    "VALUES ($1, $2, $3, 1, 1, now(), false)"
                ),
                (ids.uuid7(), hook, event),
            ),
            ("INSERT INTO webhook_hours VALUES ($1, now(), 1, 0, now(), null, 'test', 5)", (hook,)),
        ):
            await connection.execute(statement, *arguments)
        if people:
            await _secrets_of(connection, estate)


async def _secrets_of(connection: asyncpg.pool.PoolConnectionProxy, estate: Estate) -> None:
    user, email = estate.member.id, estate.member.email
    passkey = ids.uuid7()
    estate.things["passkey"] = ids.format_id(ids.Kind.PASSKEY, passkey)
    for statement, arguments in (
        (
            "INSERT INTO passkeys VALUES ($1, $2, $3, '\\x00', 0, 'Phone', '{}', false, false, now(), null, null)",
            (passkey, user, passkey.bytes),
        ),
        ("INSERT INTO recovery_codes VALUES ($1, $2)", (user, user.bytes)),
        (
            "INSERT INTO notice_marks SELECT account_id, user_id, 'test', false, now() FROM members WHERE user_id = $1",
            (user,),
        ),
        ("INSERT INTO code_tries (user_id, place, failed, failed_at) VALUES ($1, '127.0.0.1', 1, now())", (user,)),
        ("INSERT INTO identities VALUES ($1, $2, 'https://id.test', $3, now(), now())", (ids.uuid7(), user, email)),
        (
            "INSERT INTO identity_steps (id, kind, user_id, expires_at) VALUES ($1, 'test', $2, now())",
            (ids.uuid7(), user),
        ),
        (
            "INSERT INTO single_use_tokens VALUES ($1, 'verify_email', $2, $3, now(), now())",
            (user.bytes, user, email),
        ),
        (
            (
                "INSERT INTO system_mail (id, kind, address, detail, due_at, created_at)"
                " VALUES ($1, 'password_changed', $2, '{}', now() + interval '1 day', now())"
            ),
            (ids.uuid7(), email),
        ),
    ):
        await connection.execute(statement, *arguments)


async def with_domain(pool: asyncpg.Pool, account: TestAccount) -> TestAccount:
    """The account with a verified domain, for one that was opened without."""
    await add_domain(pool, account.id, account.domain)
    return account


def _ok(answer: Answer) -> dict[str, Any]:
    assert answer.status < 300, (answer.status, answer.body)
    found: dict[str, Any] = answer.json
    return found
