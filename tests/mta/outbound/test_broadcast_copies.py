"""Copies of a broadcast as they arrive at a recipient's mail server."""

from email import message_from_bytes
from email.policy import SMTP

import dkim

from engine.base import ids
from tests.harness.broadcasts import broadcasting, make_list, with_stream
from tests.harness.domains import Place
from tests.harness.outbound import World


async def test_copies_of_a_list_carry_its_list_id_under_the_signature(here: World, place: Place) -> None:
    domain = await place.verified(here.account, f"{ids.encode(ids.uuid7())}.test")
    await with_stream(here.pool, here.account)
    people = ["ann@peer.test", "bob@peer.test"]
    news = await make_list(here.pool, here.account, people)
    await here.mta()
    async with broadcasting(here.settings) as broadcasts:
        for _ in range(2):
            await broadcasts.sent(here.account, news, sender=f"News <news@{domain.name}>")
            await broadcasts.runner.run_due()
    await here.until(lambda: here.sink.count == 4)

    published = {one.host: one.value.encode() for one in await place.wanted(domain) if one.type == "TXT"}
    expected = f"<{ids.format_id(ids.Kind.LIST, news)}.{domain.name}>"
    for copy in here.sink.messages:
        assert message_from_bytes(copy.content, policy=SMTP).get_all("List-Id") == [expected]
        forged = copy.content.replace(b"<lst_", b"<lst-", 1)
        for content, verifies in ((copy.content, True), (forged, False)):
            mail = dkim.DKIM(content)
            assert mail.verify(dnsfunc=lambda at, timeout: published[at.decode().rstrip(".")]) is verifies
