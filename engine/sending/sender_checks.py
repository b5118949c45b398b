"""Read what is known of a sender, and check a composed message against the requirements of mailbox providers."""

from datetime import date, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from engine.base.settings import Settings
from engine.mail.received import summarise
from engine.mail.received_header import read_header
from engine.sending.domains import records, verification
from engine.sending.domains import store as domains
from engine.sending.sender_requirements import RATE_DAYS, OneClick, SendChecks, SenderFacts, checked
from engine.sending.streams.store import TRANSACTIONAL
from engine.store.queries import Conn, Queries

_POST_VALUE: Final = b"list-unsubscribe=one-click"  # RFC 8058 3.1


class RateSums(Struct, frozen=True):
    """The outcomes from which the complaint rate follows."""

    settled: int
    complained: int


_SQL = Queries.beside(__file__, "sender_checks.sql")
_RATE = _SQL.rows("rate_sums", RateSums)


async def sender_facts(connection: Conn, settings: Settings, account: UUID, domain: str, today: date) -> SenderFacts:
    """Return what is known of a sender, from the last checks of its records and its outcomes."""
    row = await domains.READ.first(connection, account, domain)
    (sums,) = await _RATE.fetch(connection, account, today - timedelta(days=RATE_DAYS))
    bounces = records.bounce_domain(settings.mail_host)
    if row is None:
        return SenderFacts(
            domain=domain, is_verified=False, return_path=bounces, has_spf=None, has_dmarc=None,
            settled=sums.settled, complained=sums.complained,
        )  # fmt: skip
    keys = await domains.PUBLISHED.fetch(connection, row.id)
    found = {
        (one.wanted.type, one.wanted.host): one.finding.status
        for one in verification.known_records(settings, row, keys)
    }
    return SenderFacts(
        domain=domain,
        is_verified=row.status == "verified",
        return_path=row.return_path_host if row.return_path == "verified" else bounces,
        has_spf=None if row.findings is None else found.get(("TXT", bounces)) == "ok",
        has_dmarc=None if row.findings is None else found.get(("TXT", f"_dmarc.{domain}")) == "ok",
        settled=sums.settled,
        complained=sums.complained,
    )


def check_message(sender: SenderFacts, mime: bytes, stream: str) -> SendChecks:
    """Return the checks of a composed message; only the transactional `stream` needs no one-click unsubscribe."""
    header = read_header(mime)
    post = header.first(b"list-unsubscribe-post") or b""
    one_click = OneClick(
        has_list_unsubscribe=header.first(b"list-unsubscribe") is not None,
        has_post=post.strip().lower() == _POST_VALUE,
        needed=stream != TRANSACTIONAL,
    )
    return checked(sender, one_click, summarise(mime))
