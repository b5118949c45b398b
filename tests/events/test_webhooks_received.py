"""Posts of received messages: only along their route, with the bodies that the route includes."""

import orjson

from engine.base import ids
from engine.receiving.inbound_messages import service
from engine.receiving.inbound_messages.bodies import bodies_of
from engine.receiving.inbound_routes.post_bodies import MAX_BYTES, with_included
from engine.receiving.inbound_routes.types import IncludedBody
from engine.receiving.receive import Receiver as MailReceiver
from tests.harness.accounts import make_account
from tests.harness.received_mail import claim, mail, messages_of, receive, route
from tests.harness.receiver import Receiver, World

TEXT = "Thanks!\r\n\r\nOn Mon, Bob wrote:\r\n> How are you?\r\n"


async def test_a_post_includes_what_the_route_says_and_goes_where_it_says(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    account = endpoint.account
    await here.endpoint(receiver.url + "/other", account=account)
    plain, full = await claim(here.pool, account, "plain"), await claim(here.pool, account, "full")
    await route(here.pool, plain, "webhook", webhook_id=endpoint.id)
    await route(here.pool, full, "both", webhook_id=endpoint.id, include=[one.value for one in IncludedBody])
    raw = mail("Hi", TEXT, html="<p>Thanks!</p><script>x</script>")

    async with here.posting():
        await receive(MailReceiver(here.pool, here.settings), plain.recipient(), full.recipient("7"), raw=raw)
        await here.until_posted(endpoint)

    posted = [orjson.loads(got.body) for got in receiver.got]
    bare, complete = sorted(posted, key=lambda one: one["seq"])  # posts to one endpoint may overtake each other
    [first, second] = await messages_of(here.pool, account.id)
    assert [bare["type"], bare["data"]["messageId"]] == ["inbound.received", None]
    assert bare["id"] == ids.format_id(ids.Kind.EVENT, first["event_id"])
    assert "text" not in bare["data"]["detail"]
    detail = complete["data"]["detail"]
    assert (detail["inbound_message_id"], detail["tag"], detail["action"]) == (
        ids.format_id(ids.Kind.RECEIVED, second["id"]), "7", "both",
    )  # fmt: skip
    assert (detail["reply_text"], detail["omitted"]) == ("Thanks!", [])
    assert "How are you?" in detail["text"]
    assert "script" not in detail["html"]
    assert {"name": "Subject", "value": "Hi"} in detail["headers"]
    assert "text" not in await _stored_payload(here, second["event_id"])


async def _stored_payload(here: World, event: object) -> str:
    return str(await here.pool.fetchval("SELECT payload FROM events WHERE id = $1", event))


async def test_a_message_deleted_before_its_post_is_posted_without_bodies(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    address = await claim(here.pool, endpoint.account)
    await route(here.pool, address, "webhook", webhook_id=endpoint.id, include=["text"])
    await receive(MailReceiver(here.pool, here.settings), address.recipient())
    [row] = await messages_of(here.pool, endpoint.account.id)
    await service.delete(here.pool, endpoint.account.id, [row["id"]])

    async with here.posting():
        await here.until_posted(endpoint)

    assert "text" not in orjson.loads(receiver.got[0].body)["data"]["detail"]


async def test_another_account_of_the_same_transaction_gets_no_post(here: World, receiver: Receiver) -> None:
    endpoint = await here.endpoint(receiver.url)
    other = await here.endpoint(receiver.url + "/other", account=await make_account(here.pool))
    mine, theirs = await claim(here.pool, endpoint.account), await claim(here.pool, other.account)
    await route(here.pool, mine, "webhook")

    async with here.posting():
        await receive(MailReceiver(here.pool, here.settings), mine.recipient(), theirs.recipient())
        await here.until_posted(endpoint)

    assert len(receiver.got) == 1


def test_bodies_that_do_not_fit_are_named_and_the_others_posted() -> None:
    found = bodies_of(mail("Hi", "x" * 70 + "\r\n", html=f"<p>{'y' * MAX_BYTES}</p>"))

    payload = with_included('{"type":"t","messageId":null,"detail":{"a":1}}', found, list(IncludedBody))

    detail = orjson.loads(payload)["detail"]
    assert (detail["a"], detail["html"], detail["omitted"]) == (1, None, ["html"])
    assert detail["text"].startswith("xxx")
    assert detail["headers"]
