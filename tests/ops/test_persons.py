"""Help of the operator for people without access: codes and sessions end, and the log records it."""

import asyncpg
import pytest

from ops.commands import person as people
from tests.harness.account_log import logged
from tests.harness.accounts import make_account
from tests.harness.people import TestPerson, make_person


async def person_of(pool: asyncpg.Pool) -> TestPerson:
    account = await make_account(pool)
    return await make_person(pool, account.id)


async def sessions(pool: asyncpg.Pool, ann: TestPerson) -> int:
    return int(await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id))


async def test_a_lost_authenticator_is_asked_for_no_more(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await pool.execute(
        "UPDATE users SET totp_sealed = 'x', totp_enabled_at = now(), totp_last_step = 1 WHERE id = $1",
        ann.id,
    )
    await pool.execute("INSERT INTO recovery_codes (user_id, digest) VALUES ($1, 'y')", ann.id)

    shown = await people.reset_factor(pool, email=ann.email)

    assert (shown["secondFactorDropped"], shown["twoFactor"]) == (True, False)
    assert await sessions(pool, ann) == 0
    assert await pool.fetchval("SELECT count(*) FROM recovery_codes WHERE user_id = $1", ann.id) == 0
    assert await pool.fetchval("SELECT kind FROM system_mail WHERE address = $1", ann.email) == "second_factor_disabled"
    kind, detail = (await logged(pool, ann.account_id))[-1]
    assert (kind, detail) == ("member.second_factor_disabled", {"id": ann.public_id, "actor": "operator"})


async def test_where_no_code_was_asked_for_nothing_changes(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    shown = await people.reset_factor(pool, email=ann.email)

    assert shown["secondFactorDropped"] is False
    assert await sessions(pool, ann) == 1


async def test_the_operator_signs_a_person_out_everywhere(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    shown = await people.sign_out(pool, email=ann.email.upper())

    assert shown["sessionsEnded"] == 1
    assert await sessions(pool, ann) == 0
    assert (await logged(pool, ann.account_id))[-1] == (
        "member.signed_out", {"id": ann.public_id, "sessions": 1, "actor": "operator"},
    )  # fmt: skip


async def test_an_address_of_nobody_is_said_to_be_that(pool: asyncpg.Pool) -> None:
    with pytest.raises(ValueError, match="No person signs in with"):
        await people.shown(pool, email="nobody@people.test")


async def test_a_person_is_shown_with_their_accounts(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    shown = await people.shown(pool, email=ann.email)

    assert shown["id"] == ann.public_id
    assert [one["role"] for one in shown["accounts"]] == ["owner"]
