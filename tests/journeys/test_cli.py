"""The operator's commands beside a running service, and what they say when there is none."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loadtests.kit.service import Service
from loadtests.ports import reserve_port
from tests.harness.api import Api
from tests.harness.service import command, following, new_access, until

pytestmark = pytest.mark.journey

ID = r"[0-9a-z]{26}"


def one_line(text: str) -> bool:
    """An error as an operator likes it: one sentence, no traceback."""
    return text.startswith("Error: ") and text.count("\n") == 1 and "Traceback" not in text


async def test_an_account_with_key_and_domain_is_made_and_sends(service: Service, served: Api) -> None:
    account = command(
        service, "account", "create", "--name", "Shop", "--email", "shop@cli.test", "--plan", "growth", "--daily-cap",
        "9", "--json",
    ).json  # fmt: skip
    key = command(service, "key", "create", "--account", account["accountId"], "--scopes", "all", "--json").json
    added = command(service, "domain", "add", "--account", account["accountId"], "--name", "cli.test", "--json").json
    verified = command(service, "domain", "verify", "--account", account["accountId"], "--name", "cli.test", "--json")
    me = await served.get("/v1/me", key["apiKey"])
    answer = await served.post(
        "/v1/emails", key["apiKey"], {"from": "a@cli.test", "to": "b@people.test", "subject": "s", "text": "t"}
    )

    assert re.fullmatch(f"acc_{ID}", account["accountId"])
    assert len(account["password"]) >= 10
    assert re.fullmatch(r"svc_live_[0-9A-Za-z]{44}", key["apiKey"])
    assert added["status"] == "pending"
    assert {record["type"] for record in added["records"]} >= {"TXT"}
    assert verified.status == 0
    assert verified.json["status"] == "verified"
    assert me.status == 200
    assert answer.status == 202

    revoked = command(service, "key", "revoke", "--account", account["accountId"], key["id"], "--json")
    (listed,) = command(service, "key", "list", "--account", account["accountId"], "--json").json["keys"]
    assert (revoked.status, listed["id"]) == (0, key["id"])
    assert listed["revokedAt"] is not None
    assert key["apiKey"] not in json.dumps(listed)


async def test_what_receives_mail_is_listed(service: Service, served: Api) -> None:
    access = await new_access(service)
    address = f"support@{access.sender.partition('@')[2]}"
    claimed = await served.post("/v1/inbound/addresses", access.key, {"address": address})
    routed = await served.post("/v1/inbound/routes", access.key, {"address": address, "action": "webhook"})
    of_account = ("--account", access.account)

    (listed,) = command(service, "inbound", "addresses", *of_account, "--json").json
    table = command(service, "inbound", "routes", *of_account)

    assert (claimed.status, routed.status) == (201, 201)
    assert (listed["id"], listed["receives"]) == (claimed.json["id"], True)
    assert (table.status, "webhook" in table.out) == (0, True)


async def test_a_domain_of_which_dns_knows_nothing_is_not_verified(service: Service) -> None:
    made = command(service, "account", "create", "--name", "N", "--email", "n@cli.test", "--json").json
    command(service, "domain", "add", "--account", made["accountId"], "--name", "shop.nxdomain.test")
    found = command(
        service, "domain", "verify", "--account", made["accountId"], "--name", "shop.nxdomain.test", "--json"
    )

    assert found.status == 1
    assert found.json["status"] != "verified"


async def test_a_message_is_sent_and_followed_to_the_sink(service: Service) -> None:
    with following(service, "tail") as printed:

        async def is_following() -> bool:
            command(service, "send", "--to", "early@people.test")
            return bool(printed())

        await until(is_following)
        sent = command(service, "send", "--to", "cli@people.test", "--subject", "From the shell", "--json")

        def own() -> list[str]:
            return [event["type"] for event in printed() if event["messageId"] == sent.json["id"]]

        async def is_delivered() -> bool:
            return "delivered" in own()

        await until(is_delivered)
        types = own()
    listed = command(service, "messages", "--limit", "5", "--json")
    shown = command(service, "message", sent.json["id"], "--json")
    sink = command(service, "sink", "--limit", "1000", "--json")

    assert sent.json["status"] == "queued"
    assert listed.json[0]["id"] == sent.json["id"]
    assert shown.json["subject"] == "From the shell"
    assert shown.json["waybill"][0]["type"] == "accepted"
    assert ["cli@people.test"] in [one["to"] for one in sink.json]
    assert types == ["accepted", "attempted", "delivered"]


async def test_content_that_is_not_retained_is_gone_after_the_delivery(service: Service) -> None:
    sent = command(service, "send", "--to", "brief@people.test", "--text", "zebra", "--no-retain", "--json")

    def message() -> dict[str, Any]:
        return dict(command(service, "message", sent.json["id"], "--json").json)

    async def is_delivered() -> bool:
        return str(message()["status"]) == "delivered"

    await until(is_delivered)
    shown = message()
    assert (shown["retainContent"], shown["contentErased"], shown["text"]) == (False, True, None)
    whole = command(service, "message", sent.json["id"], "--all", "--json").json
    assert (whole["contentErased"], whole["text"]) == (True, None)


async def test_a_fresh_installation_has_nothing_to_mend(service: Service) -> None:
    found = command(service, "doctor", "--json")

    assert [one for one in found.json if not one["ok"]] == []
    assert found.status == 0


async def test_settings_are_shown_with_their_origin_and_without_secrets(service: Service) -> None:
    rows = {row["name"]: row for row in command(service, "config", "--json", KEY_PEPPER="ab" * 32).json}

    assert (rows["WAYBILL_LEASE_S"]["value"], rows["WAYBILL_LEASE_S"]["from"]) == ("2.0", "WAYBILL_LEASE_S")
    assert rows["WAYBILL_DRAIN_S"]["from"] == "default"
    assert rows["WAYBILL_KEY_PEPPER"]["value"] == "********"


async def test_migrate_says_that_there_is_nothing_to_do(service: Service) -> None:
    assert command(service, "migrate", "--json").json == {"applied": ["nothing: the database is up to date"]}


@pytest.mark.parametrize("words", [["messages"], ["account", "create"], ["send"]])
async def test_commands_show_their_options(service: Service, words: list[str]) -> None:
    found = command(service, *words, "--help")

    assert found.status == 0
    assert "Usage: ops" in found.out


async def test_people_get_tables_and_sentences(service: Service) -> None:
    sent = command(service, "send", "--to", "people@people.test")
    found = command(service, "messages")

    assert "queued" in sent.out
    assert "people@people.test" in found.out
    assert "{" not in found.out


# -- what goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["key", "create", "--account", "nonsense"], "acc_"),
        (["key", "create", "--account", "msg_01m7xny9c2fhfa9ppkchrhyk4z"], "acc_"),
        (["key", "create", "--account", "acc_01m7xny9c2fhfa9ppkchrhyk4z"], "account"),
        (["key", "revoke", "--account", "acc_01m7xny9c2fhfa9ppkchrhyk4z", "key_01m7xny9c2fhfa9ppkchrhyk4z"], "API key"),
        (["key", "list", "--account", "acc_01m7xny9c2fhfa9ppkchrhyk4z"], "account"),
        (["domain", "verify", "--account", "acc_01m7xny9c2fhfa9ppkchrhyk4z", "--name", "a.test"], "a.test"),
        (
            ["domain", "add", "--account", "acc_01m7xny9c2fhfa9ppkchrhyk4z", "--name", "not a domain"],
            "not a domain name",
        ),
        (["message", "msg_01m7xny9c2fhfa9ppkchrhyk4z"], "404"),
        (["message", "nonsense"], "404"),
        (["send", "--to", "nonsense"], "4"),
        (["send", "--to", "a@people.test", "--key", "svc_live_wrong"], "401"),
        (["tail", "--account", "nonsense", "--seconds", "1"], "acc_"),
    ],
)
async def test_what_can_not_be_done_is_said_in_one_line(service: Service, words: list[str], says: str) -> None:
    found = command(service, *words)

    assert found.status == 1
    assert one_line(found.err), found.err
    assert says in found.err


@pytest.mark.parametrize(
    "words", [["account", "create", "--name", "N", "--email", "e@x.test"], ["tail", "--seconds", "1"], ["migrate"]]
)
async def test_without_a_running_service_commands_say_how_to_start_it(
    service: Service, tmp_path: Path, words: list[str]
) -> None:
    found = command(service, *words, STATE=str(tmp_path / "nothing"))

    assert found.status == 1
    assert one_line(found.err), found.err
    assert "python3 -m ops up" in found.err


async def test_sending_to_a_service_that_is_down_says_so(service: Service, tmp_path: Path) -> None:
    port = str(reserve_port())
    found = command(
        service, "send", "--to", "a@people.test", "--key", "svc_live_x", "--from", "a@b.test",
        STATE=str(tmp_path), API_PORT=port,
    )  # fmt: skip

    assert found.status == 1
    assert one_line(found.err), found.err
    assert "127.0.0.1" in found.err or "refused" in found.err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("API_PORT", "99999", "1 to 65535"), ("LEASE_S", "soon", "must be a number"),
        ("DELIVERY", "perhaps", "local, live"), ("NO_SUCH_THING", "1", "is not a setting"),
    ],
)  # fmt: skip
async def test_a_bad_variable_is_named_with_what_would_be_right(
    service: Service, name: str, value: str, says: str
) -> None:
    for words in (["messages"], ["up"]):
        found = command(service, *words, **{name: value})
        assert found.status == 1
        assert one_line(found.err), found.err
        assert f"WAYBILL_{name}" in found.err
        assert says in found.err
