"""Checklists and guides of operators state what the code does: warm-up, records to publish, times, commands."""

import re
from pathlib import Path

import click
import pytest

from api.docs.guides import FOLDER
from engine.base.plans import DAILY_ALLOWANCES
from engine.base.settings import Settings
from engine.ledger import quota
from engine.sending.domains.types import DEFAULT_RETURN_PATH_LABEL
from tests.harness.documentation import commands
from tests.harness.guides import guides, names_in
from tests.ops.test_documented_commands import parse

SETTINGS = Settings()
HOSTS = ("Cloudflare", "Route 53", "GoDaddy", "Namecheap", "IONOS", "OVHcloud", "Hetzner", "Gandi")
FILLED = {"ACCOUNT_ID": "acc_x", "DOMAIN": "people.test", "/var/backups/waybill/move": "DIR"}  # what the reader has
NAME_FIELDS = re.compile(r"^(?:Name|Record name|Host|Host name|Sub-domain): +(\S+)$", re.MULTILINE)


def test_the_warm_up_calendar_has_the_steps_of_the_code() -> None:
    rows = [row[1] for row in guides()["deliverability-checklist"].rows("day, at the earliest")]

    assert rows == [f"{cap:,}" for cap in DAILY_ALLOWANCES]
    assert f"at least {quota.USED_TO_RISE * 100:g}% of the limit" in guides()["deliverability-checklist"].text


def test_each_dns_host_has_the_required_record_and_the_return_path() -> None:
    text = guides()["dns-providers"].text
    parts = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    named = {name for row in guides()["dns-providers"].rows("record") for name in names_in(row[2])}

    assert set(HOSTS) <= set(parts)
    assert named == {"wb1._domainkey", DEFAULT_RETURN_PATH_LABEL, "_dmarc"}
    for host in HOSTS:
        assert NAME_FIELDS.findall(parts[host]) == ["wb1._domainkey", DEFAULT_RETURN_PATH_LABEL], host
        assert re.search(r"^Source: \[[^]]+\]\(https://[^)]+\)", parts[host], re.MULTILINE), host


def test_the_table_of_incidents_has_the_times_of_the_settings() -> None:
    text = guides()["incidents"].text

    assert f"within {SETTINGS.lease_s:g} seconds" in text
    assert f"retried for {SETTINGS.give_up_s / 3600:g} hours" in text


@pytest.mark.parametrize("slug", ["production", "second-host", "incidents"])
def test_a_command_of_a_guide_for_operators_is_one_that_the_command_line_takes(slug: str, tmp_path: Path) -> None:
    found = [words for one in commands(FOLDER / f"{slug}.md") for words in one.calls]
    wrong = []
    for words in found:
        try:
            parse([FILLED.get(word, word) for word in words], tmp_path)
        except click.UsageError as error:
            wrong.append(f"ops {' '.join(words)}: {error.format_message()}")

    assert len(found) > 4
    assert wrong == []
