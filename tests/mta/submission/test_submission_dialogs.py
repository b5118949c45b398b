"""The server side of the dialogues of `tests/dialogs/submission`, over real sockets (see `server_dialogs`).

They begin in one of the states nothing (connected, greeting not read), nothing-in-tls, clear, tls (greeting read), user
(EHLO said and logged in). The names {sender}, {plain} and {password} stand for the account's.
"""

from base64 import b64encode
from pathlib import Path

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.server_dialogs import DialogPlayer, load
from tests.harness.submission import Client, TestRelay, message

FOLDER = Path(__file__).parents[2] / "dialogs" / "submission"
FILES = sorted(FOLDER.glob("*.smtp"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_the_relay_follows_the_dialogue(path: Path, relay: TestRelay, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    dialog = load(path)
    words = {
        "sender": account.sender,
        "plain": b64encode(b"\0apikey\0" + account.token.encode()).decode(),
        "password": b64encode(account.token.encode()).decode(),
    }
    await DialogPlayer(await _begun(dialog.state, relay, account), words, message(account)).play(dialog)


def test_there_are_dialogues() -> None:
    assert len(FILES) > 20


async def _begun(state: str, relay: TestRelay, account: TestAccount) -> Client:
    if state == "user":
        return await relay.logged_in(account)
    client = await relay.client(tls=state in ("tls", "nothing-in-tls"))
    if state == "tls":
        assert (await client.reply()).startswith("220 ")
    return client
