"""Verifications over the API: every row of their table of states, their limits, and parallel calls."""

import asyncio
import base64
import io
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from PIL import Image

from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.codes.verifications import jobs, rules, service
from engine.codes.verifications.logo import read_logo
from engine.codes.verifications.rules import CodeKeys
from engine.codes.verifications.types import VerificationStatus
from engine.mail.read import bodies
from engine.store import metrics
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.codes import check, code_of, mail_of, other_than, start, text_of, try_start


async def get(api: Api, account: TestAccount, verification: str) -> dict[str, Any]:
    answer = await api.get(f"/v1/verifications/{verification}", account.token)
    assert answer.status == 200, answer
    return dict(answer.json)


async def resend(api: Api, account: TestAccount, verification: str, to: str = "ann@people.test") -> Answer:
    return await api.post(f"/v1/verifications/{verification}/resend", account.token, {"to": to})


async def cancel(api: Api, account: TestAccount, verification: str) -> Answer:
    return await api.post(f"/v1/verifications/{verification}/cancel", account.token)


async def exhaust(api: Api, account: TestAccount, pool: asyncpg.Pool, to: str = "ann@people.test") -> str:
    made = await start(api, account, to)
    wrong = other_than(await code_of(pool, made["messageId"]))
    answers = [await check(api, account, made["id"], wrong) for _ in range(rules.MAX_ATTEMPTS)]
    assert [one.json["attemptsRemaining"] for one in answers] == [4, 3, 2, 1, 0]
    assert [one.json["status"] for one in answers] == ["pending"] * 4 + ["exhausted"]
    return str(made["id"])


async def age(pool: asyncpg.Pool, verification: str, by: timedelta) -> None:
    """Move all times of a verification into the past."""
    await pool.execute(
        "UPDATE verifications SET created_at = created_at - $2::interval, expires_at = expires_at - $2::interval,"
        " finished_at = finished_at - $2::interval, due_at = due_at - $2::interval WHERE id = $1",
        ids.parse_id(ids.Kind.VERIFICATION, verification), by,
    )  # fmt: skip


# -- the table of states --------------------------------------------------------------------------


async def test_a_start_answers_201_and_a_check_200(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    body = {"to": "ann@people.test", "from": account.sender}
    made = await api.post("/v1/verifications", account.token, body)
    code = {"code": await code_of(pool, made.json["messageId"])}

    assert made.status == 201
    assert (await api.post(f"/v1/verifications/{made.json['id']}/check", account.token, code)).status == 200


async def test_a_start_mails_a_code_that_approves_once(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await start(api, account)

    assert made == {
        "id": made["id"], "status": "pending", "attemptsRemaining": 5, "codeLength": 6, "codesSent": 1,
        "messageId": made["messageId"], "createdAt": made["createdAt"], "expiresAt": made["expiresAt"],
        "finishedAt": None,
    }  # fmt: skip
    assert clock.parse_iso(made["expiresAt"]) - clock.parse_iso(made["createdAt"]) == timedelta(minutes=10)
    assert await get(api, account, made["id"]) == made
    address, mime = await mail_of(pool, made["messageId"])
    assert address == "ann@people.test"
    code = await code_of(pool, made["messageId"])
    assert len(code) == 6
    assert b"\r\nSubject: Your verification code\r\n" in mime
    deadline = await pool.fetchval(
        "SELECT deliver_by FROM queue WHERE message_id = $1", ids.parse_id(ids.Kind.MESSAGE, made["messageId"])
    )
    assert clock.iso(deadline) == made["expiresAt"]

    approved = await check(api, account, made["id"], code)
    assert (approved.status, approved.json) == (200, {"id": made["id"], "status": "approved", "attemptsRemaining": 4})
    again = await check(api, account, made["id"], code)
    assert (again.status, again.error["type"], again.error["status"]) == (409, "terminal_state", "approved")
    assert (await get(api, account, made["id"]))["finishedAt"] is not None


@pytest.mark.parametrize("typed", ["{0} {1}", "{0}-{1}", " {0}\u2013{1}\u00a0", "{0}\u200b{1}"])
async def test_blanks_and_hyphens_in_a_code_do_not_matter(
    api: Api, account: TestAccount, pool: asyncpg.Pool, typed: str
) -> None:
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])

    answer = await check(api, account, made["id"], typed.format(code[:3], code[3:]))
    assert answer.json["status"] == "approved"


def test_digits_of_all_scripts_are_the_same() -> None:
    assert rules.folded("\u0661\u0662\u0663\u0664\uff15\uff16") == "123456"
    assert rules.folded("12a4") == "12a4"


async def test_the_last_wrong_try_burns_the_code(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])
    tries = [other_than(code), "no digits at all", "x" * 32, "0", "9" * 8]
    answers = [await check(api, account, made["id"], text) for text in tries]

    assert [one.json["status"] for one in answers] == ["pending"] * 4 + ["exhausted"]
    late = await check(api, account, made["id"], code)
    assert (late.status, late.error["status"]) == (409, "exhausted")
    assert (await cancel(api, account, made["id"])).status == 409


async def test_a_code_text_over_32_characters_is_refused_without_an_attempt(api: Api, account: TestAccount) -> None:
    made = await start(api, account)

    assert (await check(api, account, made["id"], "1" * 33)).status == 400
    assert (await check(api, account, made["id"], "")).status == 400
    assert (await get(api, account, made["id"]))["attemptsRemaining"] == 5


async def test_a_resend_keeps_deadline_and_attempts_and_kills_the_earlier_code(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account, tags=["login"], metadata={"flow": "a"}, locale="de-AT", link=True)
    first = await code_of(pool, made["messageId"])
    await check(api, account, made["id"], other_than(first))

    answer = await resend(api, account, made["id"], "Ann@People.test")
    again = answer.json
    assert (answer.status, again["codesSent"], again["attemptsRemaining"]) == (200, 2, 4)
    assert again["expiresAt"] == made["expiresAt"]
    assert again["messageId"] != made["messageId"]
    message = (await api.get(f"/v1/messages/{again['messageId']}", account.token)).json
    assert (message["tags"], message["metadata"], message["from"]) == (["login"], {"flow": "a"}, account.sender)
    text = await text_of(pool, again["messageId"])
    assert "Geben Sie diesen Code ein" in text
    assert "/v/" in text
    second = await code_of(pool, again["messageId"])
    if first != second:
        assert (await check(api, account, made["id"], first)).json["status"] == "pending"
    assert (await check(api, account, made["id"], second)).json["status"] == "approved"
    assert (await resend(api, account, made["id"])).error["status"] == "approved"


async def test_a_resend_to_another_address_is_refused(api: Api, account: TestAccount) -> None:
    made = await start(api, account)

    answer = await resend(api, account, made["id"], "bob@people.test")
    assert (answer.status, answer.error["field"]) == (400, "to")
    assert (await get(api, account, made["id"]))["codesSent"] == 1


async def test_a_new_start_cancels_the_pending_one_of_the_address(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    first = await start(api, account)
    code = await code_of(pool, first["messageId"])
    other = await start(api, account, "bob@people.test")
    second = await start(api, account, "ANN@people.test")

    answer = await check(api, account, first["id"], code)
    assert (answer.status, answer.error["status"]) == (409, "cancelled")
    assert (await get(api, account, other["id"]))["status"] == "pending"
    assert (await get(api, account, second["id"]))["status"] == "pending"


async def test_cancelling_is_repeatable_and_ends_it(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])

    for _ in range(2):
        answer = await cancel(api, account, made["id"])
        assert (answer.status, answer.json["status"]) == (200, "cancelled")
    assert (await check(api, account, made["id"], code)).status == 409


async def test_after_ten_minutes_it_is_expired_and_after_48_hours_gone(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])
    await age(pool, made["id"], rules.LIFE)

    late = await check(api, account, made["id"], code)
    assert (late.status, late.error["status"]) == (409, "expired")
    shown = await get(api, account, made["id"])
    assert (shown["status"], shown["finishedAt"]) == ("expired", shown["expiresAt"])
    assert (await cancel(api, account, made["id"])).status == 409
    await jobs.look_after(pool)
    assert (await get(api, account, made["id"]))["status"] == "expired"
    finished = await finished_events(pool, account)
    assert [one["status"] for one in finished] == ["expired"]

    await age(pool, made["id"], timedelta(hours=48))
    assert (await api.get(f"/v1/verifications/{made['id']}", account.token)).status == 404
    await jobs.look_after(pool)
    assert await pool.fetchval("SELECT count(*) FROM verifications WHERE account_id = $1", account.id) == 0


async def finished_events(pool: asyncpg.Pool, account: TestAccount) -> list[dict[str, Any]]:
    rows = await pool.fetch(
        "SELECT payload::jsonb -> 'detail' ->> 'status' AS status, payload::jsonb -> 'detail' ->> 'id' AS id"
        " FROM events WHERE account_id = $1 AND type = 'verification.finished' ORDER BY seq",
        account.id,
    )
    return [dict(row) for row in rows]


async def test_each_end_is_announced_once(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    approved = await start(api, account, "a@people.test")
    await check(api, account, approved["id"], await code_of(pool, approved["messageId"]))
    replaced = await start(api, account, "b@people.test")
    await start(api, account, "b@people.test")

    await asyncio.gather(jobs.look_after(pool), jobs.look_after(pool))
    found = {(one["id"], one["status"]) for one in await finished_events(pool, account)}
    assert found == {(approved["id"], "approved"), (replaced["id"], "cancelled")}
    assert len(await finished_events(pool, account)) == 2


# -- limits ----------------------------------------------------------------------------------------


async def test_three_exhausted_verifications_lock_the_address_for_an_hour(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    for _ in range(2):
        await exhaust(api, account, pool)
    pending = await start(api, account)
    code = await code_of(pool, pending["messageId"])
    assert (await check(api, account, pending["id"], code)).json["status"] == "approved"  # starts the count anew
    for _ in range(3):
        await exhaust(api, account, pool)

    answer = await try_start(api, account)
    assert (answer.status, answer.error["type"]) == (429, "destination_locked")
    assert 3500 <= int(answer.headers["retry-after"]) <= 3600
    assert (await try_start(api, account, "bob@people.test")).status == 201
    stranger = await make_account(pool)
    assert (await try_start(api, stranger)).status == 201
    await pool.execute(
        "UPDATE verification_destinations SET locked_until = now(), sent_at = '{}' WHERE account_id = $1", account.id
    )
    assert (await try_start(api, account)).status == 201


async def test_a_verification_sends_five_codes_and_an_address_gets_ten_an_hour(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account)
    for _ in range(4):
        assert (await resend(api, account, made["id"])).status == 200
    sixth = await resend(api, account, made["id"])
    assert (sixth.status, sixth.error["type"]) == (429, "rate_limited")
    again = await asyncio.gather(*[try_start(api, account) for _ in range(8)])

    assert sorted(one.status for one in again) == [201] * 5 + [429] * 3
    assert {one.error["type"] for one in again if one.status == 429} == {"rate_limited"}
    assert all(0 < int(one.headers["retry-after"]) <= 3600 for one in again if one.status == 429)


async def test_the_month_of_the_plan_is_exact_under_parallel_starts(api: Api, pool: asyncpg.Pool) -> None:
    parent = await make_account(pool, plan="free")
    child = await make_account(pool, plan="free")
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", child.id, parent.id)
    limit, month = CAPS[Plan.FREE].monthly_verifications, clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'verifications', $2, $3)", parent.id, month, limit - 5)

    accounts = [parent, child] * 6
    answers = await asyncio.gather(
        *[try_start(api, one, f"u{number}@people.test") for number, one in enumerate(accounts)]
    )
    refused = [one for one in answers if one.status != 201]
    assert len(refused) == 7
    assert {(one.status, one.error["type"], one.error["resource"]) for one in refused} == {
        (403, "plan_limit_reached", "verifications")
    }
    assert all(int(one.headers["retry-after"]) > 0 for one in refused)
    me = (await api.get("/v1/me", child.token)).json
    assert {"resource": "verifications", "limit": limit, "used": limit} in me["limits"]
    stored = await pool.fetchval("SELECT count(*) FROM messages WHERE account_id = ANY ($1)", [parent.id, child.id])
    assert stored == 5  # a refused start leaves neither a message nor a count behind


async def test_a_refused_start_changes_nothing(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await start(api, account)
    await pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@people.test', 'bounce')", account.id
    )

    answer = await try_start(api, account)
    assert (answer.status, answer.error["type"], answer.error["address"]) == (422, "suppressed", "ann@people.test")
    assert (await get(api, account, made["id"]))["status"] == "pending"
    assert await pool.fetchval("SELECT used FROM plan_usage WHERE account_id = $1", account.id) == 1
    event = await pool.fetchval("SELECT payload FROM events WHERE account_id = $1 AND type = 'suppressed'", account.id)
    assert "ann" not in event


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"to": "ann"}, 422, "to"), ({"to": "Ann <ann@people.test>"}, 422, "to"),
        ({"codeLength": 3}, 400, "codeLength"),
        ({"codeLength": 9}, 400, "codeLength"), ({"from": "shop"}, 400, "from"), ({"locale": "english"}, 400, "locale"),
        ({"stream": "no-such"}, 400, "stream"), ({"brand": "x"}, 400, "brand"), ({"tags": ["a"] * 11}, 400, "tags"),
    ],
)  # fmt: skip
async def test_bad_input_is_refused_by_name(
    api: Api, account: TestAccount, fields: dict[str, object], status: int, field: str
) -> None:
    body = {"to": "ann@people.test", "from": account.sender} | fields
    answer = await api.post("/v1/verifications", account.token, body)

    assert (answer.status, answer.error["field"]) == (status, field), answer
    strange = await try_start(api, account, **{"from": "shop@nobody.test"})
    assert (strange.status, strange.error["type"]) == (403, "domain_not_verified")


async def test_another_account_can_do_nothing(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await start(api, account)
    stranger = await make_account(pool)
    code = await code_of(pool, made["messageId"])

    assert (await check(api, stranger, made["id"], code)).status == 404
    assert (await resend(api, stranger, made["id"])).status == 404
    assert (await cancel(api, stranger, made["id"])).status == 404
    assert (await get(api, account, made["id"]))["attemptsRemaining"] == 5


async def test_a_repeated_key_answers_with_the_first_verification(api: Api, account: TestAccount) -> None:
    answers = await asyncio.gather(*[try_start(api, account, idempotencyKey="one") for _ in range(6)])

    assert sorted(one.status for one in answers) == [200] * 5 + [201]
    assert len({one.json["id"] for one in answers}) == 1
    later = await try_start(api, account, "bob@people.test", idempotencyKey="one")
    assert (later.status, later.json["id"]) == (200, answers[0].json["id"])


# -- parallel calls --------------------------------------------------------------------------------


async def guesses(pool: asyncpg.Pool, account: TestAccount, verification: str, codes: list[str]) -> list[object]:
    named, keys = ids.parse_id(ids.Kind.VERIFICATION, verification), CodeKeys(PEPPER)
    work = [service.check(pool, keys, account.id, named, code) for code in codes]
    return list(await asyncio.gather(*work, return_exceptions=True))


def evaluated(results: list[object]) -> list[VerificationStatus]:
    return [one[0] for one in results if isinstance(one, tuple)]


async def test_of_200_parallel_guesses_exactly_five_are_evaluated(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account)
    wrong = other_than(await code_of(pool, made["messageId"]))

    results = await guesses(pool, account, made["id"], [wrong] * 200)
    assert sorted(evaluated(results)) == ["exhausted"] + ["pending"] * 4


async def test_evaluated_guesses_are_counted_by_result(
    api: Api, account: TestAccount, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "TALLY", metrics.Tally())
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])
    for guess in ([other_than(code)] * 2, [code], [code]):
        await guesses(pool, account, made["id"], guess)
    other = await start(api, account, "bob@people.test")
    await guesses(pool, account, other["id"], [other_than(await code_of(pool, other["messageId"]))] * 6)

    counts = metrics.TALLY._counts
    found = {labels[0]: count for (counter, labels), count in counts.items() if counter is metrics.CODES_CHECKED}
    assert found == {"approved": 1, "wrong": 6, "exhausted": 1}


async def test_the_right_code_among_parallel_guesses_wins_at_most_once(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account)
    code = await code_of(pool, made["messageId"])

    results = await guesses(pool, account, made["id"], [code] * 30)
    assert evaluated(results) == ["approved"]
    other = await start(api, account, "bob@people.test")
    right = await code_of(pool, other["messageId"])
    mixed = evaluated(await guesses(pool, account, other["id"], [right, *[other_than(right)] * 40]))
    assert mixed.count(VerificationStatus.APPROVED) + mixed.count(VerificationStatus.EXHAUSTED) == 1
    assert len(mixed) <= 5


async def test_without_the_claim_more_than_five_guesses_would_be_evaluated(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    """The race of the test above is real: a check that reads the attempts and writes them back evaluates more."""
    made = await start(api, account)
    named = ids.parse_id(ids.Kind.VERIFICATION, made["id"])
    looks = 0

    async def naive() -> None:
        nonlocal looks
        left = await pool.fetchval("SELECT attempts_left FROM verifications WHERE id = $1", named)
        if left > 0:
            looks += 1
            await pool.execute("UPDATE verifications SET attempts_left = $2 WHERE id = $1", named, left - 1)

    await asyncio.gather(*[naive() for _ in range(200)])
    assert looks > rules.MAX_ATTEMPTS


async def test_a_start_that_supersedes_races_with_checks_of_the_old_code(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    for number in range(5):
        to = f"race{number}@people.test"
        old = await start(api, account, to)
        code = await code_of(pool, old["messageId"])
        answer, fresh = await asyncio.gather(check(api, account, old["id"], code), try_start(api, account, to))

        status = (await get(api, account, old["id"]))["status"]
        assert (answer.status, status) in {(200, "approved"), (409, "cancelled")}
        assert fresh.status == 201
        pending = await pool.fetchval(
            "SELECT count(*) FROM verifications WHERE account_id = $1 AND status = 'pending'", account.id
        )
        assert pending == number + 1


async def test_parallel_resends_send_one_code_each_or_refuse(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account)

    answers = await asyncio.gather(*[resend(api, account, made["id"]) for _ in range(6)])
    sent = sum(one.status == 200 for one in answers)
    assert {one.status for one in answers} <= {200, 429}
    row = await get(api, account, made["id"])
    assert row["codesSent"] == 1 + sent <= rules.MAX_CODES
    code = await code_of(pool, row["messageId"])
    assert (await check(api, account, made["id"], code)).json["status"] == "approved"


# -- the link -------------------------------------------------------------------------------------


async def link_of(pool: asyncpg.Pool, message: str) -> str:
    found = re.search(r"https?://\S+(/v/\S+)", await text_of(pool, message))
    assert found is not None
    return found[1]


async def test_a_link_approves_by_post_and_get_changes_nothing(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await brand(api, account, brandName="Ann & Co")
    made = await start(api, account, link=True)
    link = await link_of(pool, made["messageId"])

    shown = await api.get(link, headers={"Accept-Language": "de"})
    assert shown.status == 200
    assert "Bestätigen</button>" in shown.body.decode()
    assert "Ann &amp; Co" in shown.body.decode()
    await api.request("HEAD", link)
    assert (await get(api, account, made["id"]))["status"] == "pending"
    for _ in range(2):
        done = await api.request("POST", link)
        assert (done.status, "Your address is confirmed" in done.body.decode()) == (200, True)
        assert "set-cookie" not in done.headers
    row = await get(api, account, made["id"])
    assert (row["status"], row["attemptsRemaining"]) == ("approved", 5)


async def test_links_of_replaced_mails_and_forged_ones_are_unknown(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await start(api, account, link=True)
    old = await link_of(pool, made["messageId"])
    again = (await resend(api, account, made["id"])).json
    fresh = await link_of(pool, again["messageId"])
    plain = await start(api, account, "bob@people.test")
    without = CodeKeys(PEPPER).link(ids.parse_id(ids.Kind.VERIFICATION, plain["id"]), 1)

    forged = fresh[:-1] + ("0" if fresh[-1] != "0" else "1")
    for link in (old, forged, fresh[:-1], fresh[:-1] + "%C3%A9", "/v/x", f"/v/{without}"):
        assert (await api.request("POST", link)).status == 404, link
    assert (await get(api, account, made["id"]))["status"] == "pending"
    await cancel(api, account, made["id"])
    ended = await api.request("POST", fresh)
    assert (ended.status, "This link has ended" in ended.body.decode()) == (200, True)


# -- branding --------------------------------------------------------------------------------------


def picture(kind: str, size: tuple[int, int] = (40, 20), **how: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, kind, **how)
    return out.getvalue()


async def brand(api: Api, account: TestAccount, **fields: object) -> Answer:
    return await api.put("/v1/verifications/settings", account.token, fields)


def logo(content: bytes) -> dict[str, str]:
    return {"content": base64.b64encode(content).decode()}


@pytest.mark.parametrize(("kind", "media"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
async def test_a_logo_is_encoded_anew_and_served_with_its_own_policy(
    api: Api, account: TestAccount, pool: asyncpg.Pool, kind: str, media: str
) -> None:
    answer = await brand(api, account, logo=logo(picture(kind, (1200, 400)) + b"<script>alert(1)</script>"))

    shown = answer.json["logo"]
    assert (answer.status, shown["contentType"], shown["width"], shown["height"]) == (200, media, 600, 200)
    served = await api.get(urlsplit(shown["url"]).path)
    assert (served.status, served.headers["content-type"], len(served.body)) == (200, media, shown["sizeBytes"])
    assert served.headers["x-content-type-options"] == "nosniff"
    assert served.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert b"script" not in served.body
    made = await start(api, account)
    html = bodies((await mail_of(pool, made["messageId"]))[1]).html
    assert html is not None
    assert f'src="{shown["url"]}"' in html
    assert (await brand(api, account, logo=None)).json["logo"] is None


def test_a_logo_stands_upright_without_its_metadata() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: show it turned by 90 degrees (EXIF 2.3, 4.6.4)
    content = base64.b64encode(picture("JPEG", (40, 20), exif=turned)).decode()

    made = read_logo(content)
    assert (made.width, made.height) == (20, 40)
    assert b"Exif" not in made.content


def animated() -> bytes:
    return picture("PNG", save_all=True, append_images=[Image.new("RGB", (40, 20), "blue")])


@pytest.mark.parametrize(
    "content",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'/>", picture("GIF"), picture("PNG", (2001, 1)), animated(),
        picture("PNG")[:60], b"\x89PNG\r\n\x1a\n" + bytes(40), picture("BMP"), b"",
    ],
    ids=["svg", "gif", "large", "animated", "cut", "garbage", "bmp", "empty"],
)  # fmt: skip
async def test_other_logos_are_refused(api: Api, account: TestAccount, content: bytes) -> None:
    answer = await brand(api, account, logo=logo(content))

    assert answer.status == 400, answer
    assert answer.error["field"].startswith("logo")
    assert (await api.get("/v1/verifications/settings", account.token)).json["logo"] is None


async def test_an_omitted_setting_stays_and_null_clears_it(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    assert (await brand(api, account, brandName="Ann & <Co>", codeLength=8)).status == 200
    made = await start(api, account)
    assert made["codeLength"] == len(await code_of(pool, made["messageId"])) == 8
    _, mime = await mail_of(pool, made["messageId"])
    assert "Ann &amp; &lt;Co&gt;" in (bodies(mime).html or "")
    assert (await start(api, account, codeLength=4))["codeLength"] == 4
    assert (await brand(api, account, codeLength=None)).json == {
        "brandName": "Ann & <Co>", "codeLength": None, "logo": None,
    }  # fmt: skip
    assert (await brand(api, account, brandName="a\nb")).status == 400
    assert (await api.get("/v1/verifications/settings", account.token)).json["brandName"] == "Ann & <Co>"


# -- what is never shown ----------------------------------------------------------------------------


async def test_no_reader_shows_the_address_or_the_code(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    to = "zebra.privat@people.test"
    made = await start(api, account, to, tags=["otp"])
    code, message = await code_of(pool, made["messageId"]), made["messageId"]

    shown = (await api.get(f"/v1/messages/{message}", account.token)).json
    assert (shown["source"], shown["to"], shown["text"], shown["html"]) == ("verification", [], None, None)
    assert [(one["address"], one["kind"]) for one in shown["recipients"]] == [("*@people.test", "to")]
    assert shown["subject"] == "Your verification code"
    assert (await api.get(f"/v1/messages/{message}/raw", account.token)).status == 404
    for path in (
        f"/v1/messages/{message}", f"/v1/emails/{message}", "/v1/messages", "/v1/messages?tag=otp",
        "/v1/events?after=0", f"/v1/verifications/{made['id']}", "/v1/audit/events", "/v1/account",
    ):  # fmt: skip
        body = (await api.get(path, account.token)).body.decode()
        assert "zebra" not in body, path
        assert code not in re.sub(r"[0-9a-f]{64}|[0-9a-z]{26}|[0-9T:.-]{20,}", "", body), path
    for search in ("zebra", to, code):
        assert (await api.get("/v1/messages", account.token, params={"search": search})).json["data"] == []
    assert (await api.get("/v1/messages", account.token, params={"to": to})).json["data"] == []
