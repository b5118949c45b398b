"""The operator's part of the API: who may use it; processes, shards and the queue."""

import msgspec
import pytest
from msgspec import structs

from api.http import auth
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.operators import FIRST_OWNER, is_operator
from engine.base.roles import Role
from engine.base.settings import BadSetting, Settings, load
from engine.delivery.holds import HoldKind
from engine.people.sessions.session_auth import Person
from engine.people.sessions.store import SessionRow
from engine.sending import queue_admin
from engine.sending.queue_commands import QueueCommands
from engine.store.process_registry import ProcessLoad, ProcessRegistration
from ops.commands import person as people
from ops.commands import queue as ops_queue
from shards.overview import overview
from tests.harness.accounts import make_account
from tests.harness.api import refused
from tests.harness.operators import ADDRESS, OperatorWorld
from tests.harness.people import make_person

WHY = "they asked"


# who is an operator ------------------------------------------------------------------------------


def test_operators_are_the_confirmed_people_with_verified_addresses_of_the_setting() -> None:
    named = Settings(operators=("Ann@Example.com",))

    assert is_operator(named, "ann@example.com", is_verified=True, is_confirmed=True)
    assert not is_operator(named, "ann@example.com", is_verified=False, is_confirmed=True)
    assert not is_operator(named, "ann@example.com", is_verified=True, is_confirmed=False)
    assert not is_operator(named, FIRST_OWNER, is_verified=True, is_confirmed=True)


def test_without_the_setting_the_first_owner_of_local_mode_is_one_and_nobody_in_live_mode() -> None:
    assert is_operator(Settings(), FIRST_OWNER, is_verified=True, is_confirmed=True)
    assert not is_operator(Settings(delivery="live"), FIRST_OWNER, is_verified=True, is_confirmed=True)


def test_the_setting_takes_addresses_alone() -> None:
    assert load({"WAYBILL_OPERATORS": "ann@example.com, bob@example.com"}).settings.operators == (
        "ann@example.com", "bob@example.com",
    )  # fmt: skip
    with pytest.raises(BadSetting, match="WAYBILL_OPERATORS names 'ann'"):
        load({"WAYBILL_OPERATORS": "ann"})


@pytest.mark.parametrize(
    ("method", "is_enough"),
    [("password", False), ("identity", False), ("password+totp", True), ("identity+recovery", True), ("passkey", True)],
)
def test_operators_in_live_mode_need_a_session_with_a_second_factor(method: str, *, is_enough: bool) -> None:
    at = clock.now()
    row = SessionRow(
        id=ids.uuid7(), user_id=ids.uuid7(), account_id=ids.uuid7(), method=method, created_at=at, used_at=at,
        role="member", email=ADDRESS, name="", display_name=None, timezone=None, email_verified=True, has_totp=False,
        operator_confirmed=True, account_name="", plan="free", agreed_caps=None, account_status="active",
        is_outdated=False,
    )  # fmt: skip
    person = Person(row.id, row.user_id, row.account_id, Role.MEMBER, 10, ("csrf",), row)
    live = Settings(delivery="live", operators=(ADDRESS,))

    auth.check_operator(structs.replace(live, delivery="local"), person)
    if is_enough:
        auth.check_operator(live, person)
    else:
        with pytest.raises(Refusal, match="sign in again") as caught:
            auth.check_operator(live, person)
        assert caught.value.status == 403


async def test_others_get_one_answer_whatever_they_ask(here: OperatorWorld) -> None:
    api = here.api
    answers = [
        await api.get("/v1/operator/nodes", person=here.owner),
        await api.get(f"/v1/operator/accounts/{here.platform.public_id}", person=here.owner),
        await api.get("/v1/operator/accounts/nonsense", person=here.owner),
        await api.post("/v1/operator/queue/flush", None, {"nonsense": 1}, person=here.owner),
    ]

    assert {(answer.status, answer.body) for answer in answers} == {(404, answers[0].body)}
    assert refused(await api.get("/v1/operator/nodes")) == (401, "unauthorized")
    assert refused(await api.get("/v1/operator/nodes", here.platform.token)) == (403, "forbidden")


@pytest.mark.parametrize("column", ["email_verified_at", "operator_at"])
async def test_an_address_of_the_setting_alone_makes_nobody_an_operator(here: OperatorWorld, column: str) -> None:
    """Anybody can sign up with it, and its owner may open the link in the mail."""
    await here.pool.execute(f"UPDATE users SET {column} = NULL WHERE email = $1", ADDRESS)
    try:
        assert (await here.api.get("/v1/operator/nodes", person=here.operator)).status == 404
        assert (await here.api.get("/v1/auth/me", person=here.operator)).json["operator"] is False
    finally:
        await here.pool.execute(f"UPDATE users SET {column} = now() WHERE email = $1", ADDRESS)


async def test_only_a_person_with_a_proven_address_is_confirmed_as_an_operator(here: OperatorWorld) -> None:
    ann = await make_person(here.pool, here.customer.id, "member")
    for column, value in (("email_verified_at", "NULL"), ("verified_by_link", "true")):
        await here.pool.execute(f"UPDATE users SET {column} = {value} WHERE id = $1", ann.id)
        with pytest.raises(Refusal, match="isn't proven"):
            await people.operator(here.pool, here.settings, email=ann.email, revoked=False)
    await here.pool.execute(
        "UPDATE users SET email_verified_at = now(), verified_by_link = false WHERE id = $1", ann.id
    )
    shown = await people.operator(here.pool, here.settings, email=ann.email, revoked=False)

    assert (shown["operator"], shown["namedBySetting"]) == (True, False)
    assert (await here.last_change())["action"] == "operator.confirmed"
    shown = await people.operator(here.pool, here.settings, email=ann.email, revoked=True)
    assert shown["operator"] is False
    assert (await here.last_change())["action"] == "operator.revoked"


async def test_the_session_says_whether_its_person_is_an_operator(here: OperatorWorld) -> None:
    me = await here.api.get("/v1/auth/me", person=here.operator)
    other = await here.api.get("/v1/auth/me", person=here.owner)

    assert (me.json["operator"], other.json["operator"]) == (True, False)


async def test_an_operator_of_a_suspended_account_can_still_act(here: OperatorWorld) -> None:
    await here.pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", here.platform.id)
    try:
        body = {"kind": "domain", "target": "calm.test"}
        assert (await here.api.post("/v1/operator/queue/flush", None, body, person=here.operator)).status == 200
    finally:
        await here.pool.execute("UPDATE accounts SET status = 'active' WHERE id = $1", here.platform.id)


# processes and shards ----------------------------------------------------------------------------


async def test_processes_of_all_hosts_are_listed_with_the_readiness_of_this_one(here: OperatorWorld) -> None:
    process = ProcessRegistration(here.pool, kind="mta", name="mta-7", figures=lambda: ProcessLoad(16, 3, 1.5))
    await process.show()
    found = (await here.api.get("/v1/operator/nodes", person=here.operator)).json
    (mta,) = [one for one in found["processes"] if one["name"] == "mta-7"]

    assert (mta["kind"], mta["state"], mta["shards"], mta["inHand"], mta["rate"]) == ("mta", "here", 16, 3, 1.5)
    assert (found["hosts"], found["gone"]) == (1, 0)
    assert found["readiness"]["status"] == "ready"
    assert set(found["readiness"]["checks"]) == {"postgres", "redis", "queue", "partitions", "disk"}


async def test_shards_are_shown_as_ops_shows_them(here: OperatorWorld) -> None:
    found = (await here.api.get("/v1/operator/shards?limit=3", person=here.operator)).json

    assert found == msgspec.to_builtins(await overview(here.pool, here.settings, limit=3))
    assert [one["member"] for one in found["members"]] == ["north:mta-1", "south:mta-1"]
    assert len(found["shards"]) == 3


async def test_a_shard_is_moved_and_the_platform_log_names_the_operator(here: OperatorWorld) -> None:
    body = {"shards": [3], "to": "south", "reason": WHY}
    dry = await here.api.post("/v1/operator/shards/move", None, body | {"dryRun": True}, person=here.operator)
    assert await here.pool.fetchval("SELECT count(*) FROM shard_pins") == 0
    done = await here.api.post("/v1/operator/shards/move", None, body, person=here.operator)

    assert dry.json["steps"] == done.json["steps"]
    assert {"shard": 3, "from": "north:mta-1", "to": "south:mta-1", "rate": 0.0} in done.json["steps"]
    assert await here.pool.fetchval("SELECT target FROM shard_pins WHERE shard = 3") == "south"
    change = await here.last_change()
    assert (change["action"], change["pin"], change["to"]) == ("move_shards", [3], "south")
    assert (change["reason"], change["actor"]) == (WHY, here.actor)
    unpinned = {"shards": [3], "to": None}
    assert (await here.api.post("/v1/operator/shards/move", None, unpinned, person=here.operator)).status == 200
    assert await here.pool.fetchval("SELECT count(*) FROM shard_pins") == 0


async def test_a_member_is_drained_and_weighed(here: OperatorWorld) -> None:
    api, who = here.api, here.operator
    drained = await api.post("/v1/operator/shards/drain", None, {"name": "north:mta-1"}, person=who)
    last = await api.post("/v1/operator/shards/drain", None, {"name": "south"}, person=who)
    assert drained.json["plan"] == {
        "place": "north:mta-1", "weight": 1.0, "draining": True, "shardsToMove": here.settings.shards,
    }  # fmt: skip
    assert (last.status, last.error["field"]) == (400, "name")
    body = {"name": "north:mta-1", "undo": True}
    assert (await api.post("/v1/operator/shards/drain", None, body, person=who)).json["plan"]["draining"] is False
    weighed = await api.post("/v1/operator/shards/weight", None, {"name": "south", "weight": 3}, person=who)

    assert weighed.json["plan"]["weight"] == 3.0
    assert await here.pool.fetchval("SELECT weight FROM shard_places WHERE name = 'south'") == 3.0
    await api.post("/v1/operator/shards/weight", None, {"name": "south", "weight": 1}, person=who)


async def test_a_domain_is_split_and_merged(here: OperatorWorld) -> None:
    api, who = here.api, here.operator
    split = await api.post("/v1/operator/shards/split", None, {"domain": "Hot.test", "parts": 4}, person=who)
    assert (split.json["plan"]["domain"], split.json["plan"]["parts"]) == ("hot.test", 4)
    listed = (await api.get("/v1/operator/shards", person=who)).json["splits"]
    assert [(one["domain"], one["parts"], one["whose"]) for one in listed] == [("hot.test", 4, "operator")]
    merged = await api.post("/v1/operator/shards/merge", None, {"domain": "hot.test", "byRule": True}, person=who)

    assert (merged.status, merged.json["plan"]["parts"]) == (200, 1)
    unknown = await api.post("/v1/operator/shards/merge", None, {"domain": "a.test", "byRule": True}, person=who)
    assert (unknown.status, unknown.error["field"]) == (400, "domain")


async def test_shards_are_balanced_by_count_and_not_by_a_load_that_nobody_measured(here: OperatorWorld) -> None:
    by_load = await here.api.post("/v1/operator/shards/balance", None, {"by": "load"}, person=here.operator)
    by_count = await here.api.post("/v1/operator/shards/balance", None, {"by": "count"}, person=here.operator)

    assert (by_load.status, by_load.error["field"]) == (400, "by")
    assert by_count.json["plan"]["balance"] == "by count"


# queue -------------------------------------------------------------------------------------------


async def queued(here: OperatorWorld, domain: str) -> str:
    """Send a message to a domain; nothing delivers it."""
    made = await here.api.post("/v1/emails", here.customer.token, here.customer.email(to=f"ann@{domain}"))
    assert made.status == 202, made.body
    return str(made.json["id"])


async def test_mail_is_held_listed_and_released(here: OperatorWorld) -> None:
    api, who, target = here.api, here.operator, {"kind": "domain", "target": "Held.test"}
    messages = sorted([await queued(here, "held.test") for _ in range(3)])
    laid = await api.post("/v1/operator/queue/suspend", None, target | {"reason": WHY, "forSeconds": 3_600}, person=who)
    assert (laid.json["target"], laid.json["rows"], laid.json["complete"]) == ("held.test", 3, True)
    assert laid.json["until"] is not None
    assert (await here.last_change()) | {"until": ""} == {
        "action": "suspend_queue", "kind": "domain", "target": "held.test", "reason": WHY, "until": "",
        "actor": here.actor,
    }  # fmt: skip

    first = (await api.get("/v1/operator/queue/held?limit=2", person=who)).json
    rest = (await api.get(f"/v1/operator/queue/held?limit=2&after={first['nextCursor']}", person=who)).json
    assert [one["messageId"] for one in (*first["data"], *rest["data"])] == messages
    assert rest["nextCursor"] is None
    assert first["data"][0]["hold"]["reason"] == WHY
    found = (await api.get("/v1/operator/queue?by=domain&limit=1000", person=who)).json
    (group,) = [one for one in found["waiting"] if one["name"] == "held.test"]
    assert (group["rows"], group["held"]) == (3, 3)
    assert [one["target"] for one in found["holds"]] == ["held.test"]
    by_ops = await ops_queue.depths(here.pool, here.settings, by="domain", limit=1_000)
    assert by_ops["rows"] == found["rows"]
    assert [one["target"] for one in by_ops["holds"]] == ["held.test"]

    released = await api.post("/v1/operator/queue/resume", None, target, person=who)
    assert (released.json["rows"], released.json["complete"]) == (3, True)
    again = await api.post("/v1/operator/queue/resume", None, target, person=who)
    assert refused(again) == (409, "invalid_state")


@pytest.mark.parametrize("by", ["account", "shard", "site"])
async def test_the_queue_is_shown_in_each_grouping(here: OperatorWorld, by: str) -> None:
    await queued(here, "grouped.test")
    found = (await here.api.get(f"/v1/operator/queue?by={by}&limit=1000", person=here.operator)).json

    assert found["by"] == by
    assert sum(one["rows"] for one in found["waiting"]) == found["rows"] > 0
    if by == "account":
        assert [one["name"] for one in found["waiting"]] == [here.customer.public_id]


async def test_waiting_deliveries_are_flushed_and_bounced(here: OperatorWorld) -> None:
    api, who, target = here.api, here.operator, {"kind": "domain", "target": "slow.test"}
    message = await queued(here, "slow.test")
    await here.pool.execute("UPDATE queue SET due_at = now() + interval '1 hour' WHERE domain = 'slow.test'")
    flushed = await api.post("/v1/operator/queue/flush", None, target | {"note": "they are back"}, person=who)
    assert (flushed.json["rows"], flushed.json["complete"]) == (1, True)
    assert await here.pool.fetchval("SELECT due_at < now() + interval '1 minute' FROM queue WHERE domain = 'slow.test'")
    bounced = await api.post("/v1/operator/queue/bounce", None, target | {"reason": "closed"}, person=who)

    assert bounced.json["rows"] == 1
    assert (await api.get(f"/v1/messages/{message}", here.customer.token)).json["status"] == "rejected"
    change = await here.last_change()
    assert (change["action"], change["reason"], change["actor"]) == ("bounce_queue", "closed", here.actor)


async def test_holding_an_accounts_mail_is_in_that_accounts_log(here: OperatorWorld) -> None:
    other = await make_account(here.pool)
    body = {"kind": "account", "target": other.public_id, "reason": WHY}
    assert (await here.api.post("/v1/operator/queue/suspend", None, body, person=here.operator)).status == 200
    (laid,) = await here.events(other.id, "delivery.suspended")
    end = {"kind": "account", "target": other.public_id}
    assert (await here.api.post("/v1/operator/queue/resume", None, end, person=here.operator)).status == 200
    (ended,) = await here.events(other.id, "delivery.resumed")

    assert (laid["reason"], laid["actor"], ended["actor"]) == (WHY, here.actor, here.actor)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "domain", "target": "not a domain", "reason": WHY}, "target"),
        ({"kind": "account", "target": "msg_1", "reason": WHY}, "target"),
        ({"kind": "domain", "target": "a.test", "reason": "  "}, "reason"),
        ({"kind": "domain", "target": "a.test", "reason": "a\0b"}, "reason"),
        ({"kind": "site", "target": "a\0b", "reason": WHY}, "target"),
        ({"kind": "domain", "target": "a.test", "reason": "a\u200db"}, "reason"),
        ({"kind": "domain", "target": "a.test", "reason": WHY, "forSeconds": 1}, "forSeconds"),
    ],
)
async def test_a_wrong_target_or_reason_is_named(here: OperatorWorld, body: object, field: str) -> None:
    answer = await here.api.post("/v1/operator/queue/suspend", None, body, person=here.operator)

    assert (answer.status, answer.error.get("field")) == (400, field)


async def test_rows_without_time_are_left_to_the_background(here: OperatorWorld) -> None:
    await queued(here, "many.test")
    commands = QueueCommands(here.pool, here.settings, None, here.actor, rows_within_s=0.0)
    laid = await commands.suspend(HoldKind.DOMAIN, "many.test", reason=WHY, for_s=None)
    assert (laid.rows, laid.complete) == (None, False)
    assert "many.test" in {one.target for one in await queue_admin.holds_in_force(here.pool)}
    ended = await commands.resume(HoldKind.DOMAIN, "many.test", note=None)
    assert (ended.rows, ended.complete) == (None, False)
    assert "many.test" not in {one.target for one in await queue_admin.holds_in_force(here.pool)}
    await queue_admin.finish(here.pool)

    assert await here.pool.fetchval("SELECT count(*) FROM holds WHERE target = 'many.test'") == 0


async def test_a_change_by_ops_is_in_the_same_log(here: OperatorWorld) -> None:
    await QueueCommands(here.pool, here.settings).flush(HoldKind.DOMAIN, "ops.test", note=None)
    change = await here.last_change()

    assert (change["action"], change["target"], change["actor"]) == ("flush_queue", "ops.test", "operator")


@pytest.mark.parametrize("cursor", ["x", "0.0.a", f"{'0' * 32}.{'0' * 32}.a%00b"])
async def test_a_wrong_cursor_is_refused(here: OperatorWorld, cursor: str) -> None:
    answer = await here.api.get(f"/v1/operator/queue/held?after={cursor}", person=here.operator)

    assert (answer.status, answer.error["field"]) == (400, "after")


async def test_a_person_with_the_role_of_owner_on_the_platform_account_is_no_operator(here: OperatorWorld) -> None:
    owner = await make_person(here.pool, here.platform.id, "owner")

    assert (await here.api.get("/v1/operator/nodes", person=owner)).status == 404
