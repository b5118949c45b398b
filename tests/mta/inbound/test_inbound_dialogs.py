"""The server side of the dialogues of `tests/dialogs/inbound`, over real sockets (see `server_dialogs`).

They begin in one of the states nothing (connected, greeting not read), clear (greeting read), ehlo (EHLO said). The
name {address} is claimed, {local} and {domain} are its parts; {disabled}, {closing} and {full} are claimed addresses
that take no mail.
"""

from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock
from engine.base.plans import CAPS, Plan
from tests.harness.accounts import TestAccount, make_account, set_status
from tests.harness.inbound import TestMx, mail
from tests.harness.server_dialogs import DialogPlayer, load
from tests.harness.submission import Client

FOLDER = Path(__file__).parents[2] / "dialogs" / "inbound"
FILES = sorted(FOLDER.glob("*.smtp"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_mx_follows_the_dialogue(path: Path, mx: TestMx, account: TestAccount, pool: asyncpg.Pool) -> None:
    dialog = load(path)
    address = await mx.claim(account)
    words = {"address": address, "local": "support", "domain": account.domain}
    if path.stem == "refused-recipients":
        words |= await _refused(mx, account, pool)
    await DialogPlayer(await _begun(dialog.state, mx), words, mail(address, subject=path.stem)).play(dialog)


def test_there_are_dialogues() -> None:
    assert len(FILES) > 15


async def _refused(mx: TestMx, account: TestAccount, pool: asyncpg.Pool) -> dict[str, str]:
    closing, full = await make_account(pool), await make_account(pool)
    found = {
        "disabled": await mx.claim(account, "disabled"),
        "closing": await mx.claim(closing),
        "full": await mx.claim(full),
    }
    await _disable(pool, account.id, found["disabled"])
    await set_status(pool, closing.id, "closing")
    limit = CAPS[Plan.GROWTH].monthly_received
    month = clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'received_messages', $2, $3)", full.id, month, limit)
    return found


async def _disable(pool: asyncpg.Pool, account: UUID, address: str) -> None:
    changed = await pool.execute(
        "UPDATE inbound_addresses SET enabled = false WHERE account_id = $1 AND address = $2", account, address
    )
    assert changed == "UPDATE 1"


async def _begun(state: str, mx: TestMx) -> Client:
    if state == "ehlo":
        return await mx.greeted()
    client = await mx.client()
    if state == "clear":
        assert (await client.reply()).startswith("220 ")
    return client
