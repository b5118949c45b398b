"""Every setting is documented, in one place, and the page made from it is up to date."""

import re

import pytest

from engine.base.settings import Settings, load
from engine.base.settings_docs import READERS, documented
from engine.base.settings_groups import FIELDS
from ops.commands.config import settings_page
from ops.host.process_specs import ROOT


def test_every_setting_has_a_sentence_and_readers() -> None:
    found = documented()

    assert list(found) == list(Settings.__struct_fields__)
    for field, one in found.items():
        assert re.fullmatch(r"[A-Z`].{10,}\.", one.meaning), field
        assert set(one.readers) <= set(READERS), field
        assert one.kind, field


def test_every_setting_belongs_to_one_group() -> None:
    grouped = [field for fields in FIELDS.values() for field in fields]

    assert sorted(grouped) == sorted(Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("field", "kind", "default", "readers"),
    [
        ("api_port", "TCP port", "8080", ("api", "front")),
        ("drain_s", "seconds", "20.0", ("all",)),
        ("retry_ladder_s", "list of seconds", "30,60,120,300,900,1800,3600,7200,14400,28800", ("mta",)),
        ("max_message_bytes", "bytes", str(40 * 2**20), ("api", "front", "relay")),
        ("delivery", "local or live", "local", ("all",)),
        ("allow_private_webhooks", "true or false", "unset", ("api", "worker")),
        ("dns_servers", "list of host:port", "unset", ("api", "mx", "mta", "worker")),
    ],
)
def test_type_unit_default_and_readers_are_told(field: str, kind: str, default: str, readers: tuple[str, ...]) -> None:
    one = documented()[field]

    assert (one.kind, one.default, one.readers) == (kind, default, readers)


def test_the_page_of_settings_is_up_to_date() -> None:
    written = (ROOT / "ops" / "runbooks" / "settings.md").read_text("utf-8")

    assert written == settings_page(), "run `python3 -m ops config --page > ops/runbooks/settings.md`"


def test_a_misspelt_variable_names_its_neighbour() -> None:
    with pytest.raises(ValueError, match="Did you mean WAYBILL_API_PORT"):
        load({"WAYBILL_API_PROT": "1"})
    with pytest.raises(ValueError, match=re.escape("settings.md lists them")):
        load({"WAYBILL_" + "Q" * 20: "1"})
