"""DMARC and TLS reports: whose they are, that each counts once, and on which day."""

import asyncio
import base64
import gzip
import io
import zipfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from engine.base import clock
from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.mail.unpack import MAX_UNPACKED, UnpackBudget, UnpackError, unpacked
from engine.receiving.analytics import dmarc, rules
from engine.receiving.reports import read_reports
from engine.receiving.reports.types import ReportPurpose
from engine.sending.domains import reports as report_addresses
from engine.sending.domains import service as domains
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.patience import PATIENCE_S
from tests.harness.report_mails import add, failed, genuine_token, mail, stored

Record = tuple[str, int, str, str, str]  # IP, messages, disposition, DKIM, SPF
SOME: tuple[Record, ...] = (
    ("192.0.2.1", 7, "none", "pass", "fail"),
    ("192.0.2.1", 3, "none", "pass", "pass"),
    ("2001:DB8:0::5", 2, "quarantine", "fail", "fail"),
    ("198.51.100.9", 5, "reject", "fail", "pass"),
)


def dmarc_xml(
    domain: str, records: Sequence[Record] = SOME, *, report_id: str = "r1", begin: datetime | None = None
) -> bytes:
    """An aggregate report (RFC 7489 Appendix C)."""
    at = int((begin or clock.now()).timestamp())
    rows = "".join(
        f"<record><row><source_ip>{ip}</source_ip><count>{count}</count><policy_evaluated>"
        f"<disposition>{done}</disposition><dkim>{dkim}</dkim><spf>{spf}</spf></policy_evaluated></row>"
        f"<identifiers><header_from>{domain}</header_from></identifiers></record>"
        for ip, count, done, dkim, spf in records
    )
    return (
        f"<feedback><report_metadata><org_name>provider.test</org_name><report_id>{report_id}</report_id>"
        f"<date_range><begin>{at}</begin><end>{at + 86399}</end></date_range></report_metadata>"
        f"<policy_published><domain>{domain}</domain><p>none</p></policy_published>{rows}</feedback>"
    ).encode()


def tls_json(domain: str, *, report_id: str = "t1", begin: datetime | None = None) -> bytes:
    """A TLS report (RFC 8460 4.4)."""
    at = clock.iso(begin or clock.now())
    return orjson.dumps({
        "organization-name": "provider.test",
        "date-range": {"start-datetime": at, "end-datetime": at},
        "contact-info": "x@provider.test",
        "report-id": report_id,
        "policies": [{
            "policy": {"policy-type": "sts", "policy-domain": domain, "mx-host": ["mx.test"]},
            "summary": {"total-successful-session-count": 90, "total-failure-session-count": 10},
            "failure-details": [{"result-type": "certificate-expired", "failed-session-count": 10}],
        }],
    })  # fmt: skip


def attached(content: bytes, kind: str = "application/gzip") -> bytes:
    """A mail whose only part is the report."""
    return (
        f"From: dmarc@provider.test\r\nSubject: Report\r\nMIME-Version: 1.0\r\nContent-Type: {kind}\r\n"
        "Content-Disposition: attachment; filename=report\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    ).encode() + base64.encodebytes(content).replace(b"\n", b"\r\n")


def zipped(content: bytes) -> bytes:
    folder = io.BytesIO()
    with zipfile.ZipFile(folder, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.xml", content)
    return folder.getvalue()


async def domain_id(pool: asyncpg.Pool, account: TestAccount) -> UUID:
    return UUID(str(await pool.fetchval("SELECT id FROM domains WHERE account_id = $1", account.id)))


async def come(
    pool: asyncpg.Pool,
    settings: Settings,
    account: TestAccount,
    *raws: bytes,
    kind: report_addresses.ReportKind = "dmarc",
    at: datetime | None = None,
) -> list[tuple[str, str]]:
    """Let reports arrive at the domain's report address and be read; return state and result of all that came."""
    key = domains.identity(settings).report_key
    local = report_addresses.report_address(key, kind, await domain_id(pool, account), "x").partition("@")[0]
    await add(pool, *[mail(raw, local=local, purpose=ReportPurpose(kind), host="mail.test", at=at) for raw in raws])
    await asyncio.gather(*[read_reports.read_due(pool, settings, budget_s=PATIENCE_S) for _ in range(2)])
    return [(row["state"], row["result"]) for row in await stored(pool, local)]


PATHS = {"dmarc": "/v1/analytics/dmarc", "tls": "/v1/analytics/tls"}


async def summary(api: Api, account: TestAccount, kind: str = "dmarc", **params: str) -> dict[str, Any]:
    answer = await api.get(PATHS[kind], account.token, params=params)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


@pytest.mark.parametrize("form", ["plain", "gzip", "zip", "in the text"])
async def test_a_report_shows_up_by_source_with_its_sums(
    api: Api, pool: asyncpg.Pool, settings: Settings, form: str
) -> None:
    account = await make_account(pool)
    xml = dmarc_xml(account.domain)
    raw = {
        "plain": attached(xml, "text/xml"), "gzip": attached(gzip.compress(xml)), "zip": attached(zipped(xml)),
        "in the text": b"From: a@b.test\r\n\r\n" + xml,
    }[form]  # fmt: skip
    assert await come(pool, settings, account, raw) == [("applied", "counted")]
    found = await summary(api, account)

    assert (found["messages"], found["aligned"], found["alignmentRate"], found["reports"]) == (17, 15, 0.882353, 1)
    assert found["others"] is None
    assert [(row["sourceIp"], row["messages"]) for row in found["data"]] == [
        ("192.0.2.1", 10), ("198.51.100.9", 5), ("2001:db8::5", 2),
    ]  # fmt: skip
    assert found["data"][0] == {
        "sourceIp": "192.0.2.1", "messages": 10, "aligned": 10, "alignmentRate": 1.0, "spfAligned": 3,
        "dkimAligned": 10, "none": 10, "quarantine": 0, "reject": 0, "headerFrom": [account.domain], "ours": False,
        "failedStreams": [],
    }  # fmt: skip
    today = clock.now().date()
    assert found["from"] == f"{today - timedelta(days=29)}T00:00:00.000Z"
    assert found["until"] == f"{today + timedelta(days=1)}T00:00:00.000Z"


async def test_failures_of_a_source_name_the_streams_of_their_domain_and_day(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    account, at = await make_account(pool), clock.now() - timedelta(days=1)
    await come(pool, settings, account, attached(dmarc_xml(account.domain, begin=at), "text/xml"))
    await pool.executemany(
        "INSERT INTO delivery_groups (account_id, tag, day, domain, stream, from_domain, deliveries, delivered,"
        " bounced, failed, complained) VALUES ($1, '', $2, 'people.test', $3, $4, 1, 1, 0, 0, 0)",
        [
            (account.id, at.date(), "news", account.domain),
            (account.id, at.date(), "alerts", account.domain),
            (account.id, at.date(), "foreign", "other.test"),
            (account.id, at.date() - timedelta(days=1), "earlier", account.domain),
        ],
    )
    found = await dmarc.failed_streams(
        pool, account.id, rules.period(7, clock.now()), ips=["192.0.2.1", "2001:db8::5"], domain=None, names=None
    )

    assert found == {"2001:db8::5": ["alerts", "news"]}, "every message from 192.0.2.1 passed"


async def test_a_report_counts_once_per_reporter_id_and_begin(api: Api, pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    begin = clock.now() - timedelta(days=1)
    xml = dmarc_xml(account.domain, begin=begin)
    other = dmarc_xml(account.domain, begin=begin, report_id="r2")
    results = await come(
        pool, settings, account, attached(xml, "text/xml"), attached(gzip.compress(xml)), attached(zipped(xml)),
        attached(other),
    )  # fmt: skip

    assert sorted(results) == [
        ("applied", "counted"),
        ("applied", "counted"),
        ("ignored", "known"),
        ("ignored", "known"),
    ]
    assert (await summary(api, account))["messages"] == 34


async def test_a_report_about_a_foreign_domain_is_filed_and_one_above_or_below_is_not_foreign(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    results = await come(
        pool, settings, account,
        attached(dmarc_xml("foreign.test")),
        attached(dmarc_xml(f"mail.{account.domain}", report_id="below")),
    )  # fmt: skip

    assert sorted(results) == [("applied", "counted"), ("ignored", "wrong_domain")]
    assert (await summary(api, account))["reports"] == 1
    assert rules.concerns("example.com", "mail.example.com")
    assert not rules.concerns("ample.com", "example.com")
    assert not rules.concerns("", "example.com")


def test_rows_count_on_the_day_of_begin_unless_the_clock_is_wrong() -> None:
    arrival = datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert rules.day_of(datetime(2026, 11, 20, 23, 59, tzinfo=UTC), arrival) == date(2026, 11, 20)
    assert rules.day_of(datetime(2026, 8, 14, tzinfo=UTC), arrival) == date(2026, 8, 14)
    assert rules.day_of(datetime(2026, 8, 13, tzinfo=UTC), arrival) == date(2026, 11, 22)
    assert rules.day_of(datetime(1979, 1, 1, tzinfo=UTC), arrival) == date(2026, 11, 22)
    assert rules.day_of(arrival + timedelta(seconds=1), arrival) == date(2026, 11, 22)
    assert rules.day_of(None, arrival) == date(2026, 11, 22)


async def test_a_report_of_an_old_day_is_outside_the_period(api: Api, pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    await come(pool, settings, account, attached(dmarc_xml(account.domain, begin=clock.now() - timedelta(days=10))))

    assert (await summary(api, account, days="10"))["messages"] == 0
    assert (await summary(api, account, days="11"))["messages"] == 17


@pytest.mark.parametrize(
    "content",
    [
        b"no report",
        b"<feedback><report_metadata>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><feedback/>',
        gzip.compress(b"<feedback>" + b" " * (51 * 1024 * 1024)),
    ],
)
async def test_what_can_not_be_read_is_kept_for_the_operator(
    pool: asyncpg.Pool, settings: Settings, content: bytes
) -> None:
    account = await make_account(pool)
    assert await come(pool, settings, account, attached(content)) == [("unreadable", "no_report")]


async def test_a_token_of_the_other_kind_or_a_forged_one_has_no_effect(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    key = domains.identity(settings).report_key
    domain = await domain_id(pool, account)
    tls = report_addresses.report_address(key, "tls", domain, "x").partition("@")[0]
    forged = report_addresses.report_address(DerivedKey(b"other"), "dmarc", domain, "x").partition("@")[0]
    raw = attached(dmarc_xml(account.domain))
    await add(pool, *[mail(raw, local=one, purpose=ReportPurpose.DMARC) for one in (tls, forged, "dmarc+x")])
    await read_reports.read_due(pool, settings)

    assert [(await stored(pool, one))[-1]["result"] for one in (tls, forged)] == ["no_token", "no_token"]
    assert (await summary(api, account))["alignmentRate"] is None


async def test_sources_beyond_a_hundred_are_summed(api: Api, pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    records = [(f"10.0.{n // 250}.{n % 250}", 1000 - n, "none", "fail", "pass") for n in range(150)]
    await come(pool, settings, account, attached(gzip.compress(dmarc_xml(account.domain, records))))
    found = await summary(api, account)

    assert [row["messages"] for row in found["data"]] == list(range(1000, 900, -1))
    assert found["others"] == {
        "sources": 50, "messages": sum(range(851, 901)), "aligned": sum(range(851, 901)), "alignmentRate": 1.0,
        "spfAligned": sum(range(851, 901)), "dkimAligned": 0, "none": sum(range(851, 901)), "quarantine": 0,
        "reject": 0,
    }  # fmt: skip


async def test_the_largest_rows_of_a_report_are_stored_and_the_rest_as_sums(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    count = rules.MAX_REPORT_ROWS + 500
    records = [(f"10.{n // 250}.0.{n % 250}", count - n, "none", ("pass", "fail")[n % 2], "fail") for n in range(count)]
    xml = dmarc_xml(account.domain, records)
    assert await come(pool, settings, account, attached(gzip.compress(xml))) == [("applied", "counted")]
    found = await summary(api, account)

    rows = await pool.fetchval("SELECT count(*) FROM dmarc_rows WHERE account_id = $1", account.id)
    assert rows == rules.MAX_REPORT_ROWS + 2, "the rest by alignment"
    assert found["messages"] == sum(range(1, count + 1))
    assert found["aligned"] == sum(range(2, count + 1, 2)), "every second row, from the largest"
    assert [row["messages"] for row in found["data"]] == list(range(count, count - 100, -1))
    assert found["others"]["messages"] == sum(range(1, count - 99))


async def test_rows_beyond_the_daily_limit_of_a_domain_are_summed_and_reports_beyond_it_are_ignored(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    await come(pool, settings, account, attached(dmarc_xml(account.domain)))
    fill = "UPDATE dmarc_reports SET stored_rows = $2 WHERE account_id = $1"
    await pool.execute(fill, account.id, rules.MAX_ROWS_DAILY - 1)
    old = clock.now() - timedelta(days=50)
    second = dmarc_xml(account.domain, report_id="r2", begin=old)
    await come(pool, settings, account, attached(second))

    stored_rows = "SELECT messages FROM dmarc_rows WHERE account_id = $1 AND day = $2 AND source_ip {} '0.0.0.0/0'"
    (row,) = await pool.fetch(stored_rows.format("<>"), account.id, old.date())
    assert row["messages"] == 7, "limits count arrivals, whatever day a report is about"
    assert len(await pool.fetch(stored_rows.format("="), account.id, old.date())) == 3
    found = await summary(api, account, days="90")
    assert (found["messages"], found["reports"]) == (34, 2)

    await pool.execute(
        "INSERT INTO dmarc_reports SELECT account_id, domain_id, reporter, n::text, begin_at, end_at, day, received_at"
        " FROM dmarc_reports, generate_series(1, $2::int) n WHERE account_id = $1 AND report_id = 'r2'",
        account.id, rules.MAX_REPORTS_DAILY,
    )  # fmt: skip
    results = await come(pool, settings, account, attached(dmarc_xml(account.domain, report_id="r3")))
    assert results[-1] == ("ignored", "too_many")
    assert (await summary(api, account, days="90"))["messages"] == 34
    await pool.execute("UPDATE dmarc_reports SET received_at = $2 WHERE account_id = $1", account.id, old)
    results = await come(pool, settings, account, attached(dmarc_xml(account.domain, report_id="r4")))
    assert results[-1] == ("applied", "counted"), "each day anew"


async def test_long_texts_of_reports_are_cut_and_stay_distinct(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    makers: dict[report_addresses.ReportKind, Any] = {"dmarc": dmarc_xml, "tls": tls_json}
    for kind, make in makers.items():
        raws = [attached(make(account.domain, report_id="\u4e2d" * 400 + last), "text/x") for last in "ab"]
        assert await come(pool, settings, account, *raws, kind=kind) == [("applied", "counted")] * 2
    for table in ("dmarc_reports", "received_tls_reports"):
        longest = await pool.fetchval(f"SELECT max(length(report_id)) FROM {table} WHERE account_id = $1", account.id)
        assert longest == rules.MAX_TEXT
    many = orjson.loads(tls_json(account.domain, report_id="many"))
    policies = [
        {**many["policies"][0], "policy": {"policy-type": "sts", "policy-domain": f"{n}.{account.domain}"}}
        for n in range(rules.MAX_REPORT_ROWS)
    ]
    await come(pool, settings, account, attached(orjson.dumps({**many, "policies": policies}), "text/x"), kind="tls")
    rows = await pool.fetchval("SELECT count(*) FROM received_tls_rows WHERE account_id = $1", account.id)
    assert rows <= rules.MAX_REPORT_ROWS + 2


async def test_bounces_do_not_wait_for_all_reports_about_domains(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    key = domains.identity(settings).report_key
    local = report_addresses.report_address(key, "dmarc", await domain_id(pool, account), "x").partition("@")[0]
    records = [(f"10.0.{n // 250}.{n % 250}", 1 + n, "none", "pass", "pass") for n in range(3_000)]
    large = [attached(dmarc_xml(account.domain, records, report_id=f"large{n}"), "text/xml") for n in range(8)]
    early = clock.now() - timedelta(minutes=1)
    await add(pool, *[mail(one, local=local, purpose=ReportPurpose.DMARC, host="mail.test", at=early) for one in large])
    bounce = genuine_token(settings)
    await add(pool, mail(failed("ann@people.test"), local=bounce, at=early + timedelta(seconds=30)))

    await read_reports.read_some(pool, settings)
    assert (await stored(pool, bounce))[0]["state"] == "ignored", "read before the older reports about domains"
    waiting = [row["state"] for row in await stored(pool, local)].count("waiting")
    assert waiting >= 7, "about one large report is read after each lot of bounces"
    await pool.execute("DELETE FROM report_mails WHERE local = $1", local)  # else the next test reads them first


async def test_a_domain_of_another_account_is_not_found_and_no_reports_are_no_rate(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, other = await make_account(pool), await make_account(pool)
    await come(pool, settings, other, attached(dmarc_xml(other.domain)))

    for path in PATHS.values():
        answer = await api.get(path, account.token, params={"domain": other.domain})
        assert (answer.status, answer.error["type"]) == (404, "not_found")
        assert (await api.get(path, account.token, params={"domain": "a b"})).status == 400
        assert (await api.get(path, account.token, params={"days": "91"})).status == 400
    found = await summary(api, account)
    assert (found["messages"], found["alignmentRate"], found["data"], found["reports"]) == (0, None, [], 0)
    assert (await summary(api, other, domain=other.domain.upper()))["messages"] == 17


async def test_a_key_limited_to_domains_sees_the_reports_of_those_only(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    await come(pool, settings, account, attached(dmarc_xml(account.domain)))
    await come(pool, settings, account, attached(tls_json(account.domain), "application/tlsrpt+json"), kind="tls")
    await pool.execute("UPDATE api_keys SET domains = '{other.test}' WHERE account_id = $1", account.id)
    limited = TestAccount(account.id, account.token, account.domain)

    assert (await summary(api, limited))["messages"] == 0
    assert (await summary(api, limited, "tls"))["sessions"] == 0
    answer = await api.get("/v1/analytics/dmarc", account.token, params={"domain": account.domain})
    assert answer.status == 404
    assert (await api.get("/v1/analytics/tls", account.token, params={"domain": account.domain})).status == 404


async def test_a_tls_report_shows_up_by_policy_and_counts_once(
    api: Api, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(pool)
    content = tls_json(account.domain)
    raws = attached(gzip.compress(content), "application/tlsrpt+gzip"), attached(content, "application/tlsrpt+json")
    assert sorted(await come(pool, settings, account, *raws, kind="tls")) == [
        ("applied", "counted"), ("ignored", "known"),
    ]  # fmt: skip
    found = await summary(api, account, "tls", domain=account.domain)

    assert (found["sessions"], found["failures"], found["successRate"], found["reports"]) == (100, 10, 0.9, 1)
    assert found["lastReportAt"] is not None
    assert found["data"] == [{
        "domain": account.domain, "policyType": "sts", "policyDomain": account.domain, "sessions": 100,
        "failures": 10, "failureTypes": [{"resultType": "certificate-expired", "failures": 10}],
    }]  # fmt: skip
    foreign = attached(tls_json("foreign.test", report_id="t2"), "application/tlsrpt+json")
    assert ("ignored", "wrong_domain") in await come(pool, settings, account, foreign, kind="tls")


async def test_report_rows_are_deleted_after_a_hundred_days(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    await come(pool, settings, account, attached(dmarc_xml(account.domain)))
    await come(pool, settings, account, attached(tls_json(account.domain), "application/tlsrpt+json"), kind="tls")
    tables = ("dmarc_rows", "dmarc_reports", "received_tls_rows", "received_tls_reports")

    async def counts(days: int) -> list[int]:
        for table in tables:
            await pool.execute(
                f"UPDATE {table} SET day = current_date - $2::int WHERE account_id = $1", account.id, days
            )
        await read_reports.forget_old(pool, clock.now())
        return [
            int(await pool.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", account.id))
            for table in tables
        ]

    assert 0 not in await counts(100)
    assert await counts(101) == [0, 0, 0, 0]


async def test_a_removed_domains_reports_are_ignored(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    await pool.execute("UPDATE domains SET deleted_at = now() WHERE account_id = $1", account.id)

    assert await come(pool, settings, account, attached(dmarc_xml(account.domain))) == [("ignored", "no_domain")]


def test_attachments_of_one_mail_share_the_limit_on_unpacked_octets() -> None:
    half = gzip.compress(bytes(MAX_UNPACKED // 2 + 1))
    budget = UnpackBudget()
    assert sum(map(len, unpacked(half, budget))) == MAX_UNPACKED // 2 + 1
    with pytest.raises(UnpackError, match="unpacks to more than"):
        list(unpacked(half, budget))
    with pytest.raises(UnpackError, match="unpacks to more than"):
        next(unpacked(b"<feedback>", budget))
