"""Settings: values from the environment, their display, and equal values in child processes."""

from pathlib import Path

import pytest

from engine.base import settings
from engine.base.settings import BadSetting, HostPort, Settings, load, shown, to_environ
from engine.base.settings.loading import FROM_BASE
from engine.base.settings.values import _PARSERS


def test_an_empty_environment_gives_the_local_defaults() -> None:
    loaded = load({})

    assert loaded.settings == Settings()
    assert loaded.settings.delivery == "local"
    assert set(loaded.origin.values()) == {"default"}


def test_variables_without_the_prefix_are_ignored() -> None:
    assert load({"API_PORT": "1", "PATH": "/bin"}).settings == Settings()


def test_an_empty_value_means_the_default() -> None:
    loaded = load({"WAYBILL_API_PORT": ""})

    assert loaded.settings.api_port == 8080
    assert loaded.origin["api_port"] == "default"


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("WAYBILL_STATE", "/srv/w", "state", Path("/srv/w")),
        ("WAYBILL_API_PORT", "8123", "api_port", 8123),
        ("WAYBILL_DELIVERY", "live", "delivery", "live"),
        ("WAYBILL_ALLOW_PRIVATE_MX", "yes", "allow_private_mx", True),
        ("WAYBILL_ALLOW_PRIVATE_WEBHOOKS", "off", "allow_private_webhooks", False),
        ("WAYBILL_DRAIN_S", "2.5", "drain_s", 2.5),
        ("WAYBILL_RETRY_LADDER_S", "1,2.5", "retry_ladder_s", (1.0, 2.5)),
        (
            "WAYBILL_DNS_SERVERS",
            "127.0.0.1:2653, [::1]:53",
            "dns_servers",
            (HostPort("127.0.0.1", 2653), HostPort("::1", 53)),
        ),
        ("WAYBILL_REDIS_URL", "unix:///run/v.sock", "redis_url", "unix:///run/v.sock"),
    ],
)
def test_a_good_value_is_read_and_its_origin_named(name: str, text: str, field: str, value: object) -> None:
    loaded = load({name: text})

    assert getattr(loaded.settings, field) == value
    assert loaded.origin[field] == name


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("WAYBILL_API_PORT", "eighty", "a whole number"),
        ("WAYBILL_API_PORT", "0", "1 to 65535"),
        ("WAYBILL_PORT_BASE", "65530", "1 to 65500"),
        ("WAYBILL_POLICY_TLS_PORT", "tls", "a whole number"),
        ("WAYBILL_SINK_PORT", "70000", "1 to 65535"),
        ("WAYBILL_API_WORKERS", "0", "at least 1"),
        ("WAYBILL_DELIVERY", "both", "local, live"),
        ("WAYBILL_LOG_LEVEL", "loud", "debug, info, warning, error"),
        ("WAYBILL_ALLOW_PRIVATE_MX", "perhaps", "true or false"),
        ("WAYBILL_DNS_SERVERS", "localhost", "host:port"),
        ("WAYBILL_COMPLAINT_REPORTERS", "FBL.example.com", "lower case"),
        ("WAYBILL_COMPLAINT_REPORTERS", "fbl.example.com,nobody@", "an address or a domain"),
        ("WAYBILL_DNS_SERVERS", "localhost:99999", "host:port"),
        ("WAYBILL_RETRY_LADDER_S", "30,-1", "above 0"),
        ("WAYBILL_DRAIN_S", "soon", "a number"),
        ("WAYBILL_LEASE_S", "nan", "it must be"),
        ("WAYBILL_DATABASE_URL", "mysql://x", "postgresql"),
        ("WAYBILL_DATABASE_URL", "postgresql://waybill:p@ss@db/waybill", "percent-encode it: write %40 instead"),
        ("WAYBILL_DATABASE_URL", "postgresql://waybill:p/ss@db/waybill", "percent-encode it: write %2F instead"),
        ("WAYBILL_DATABASE_URL", "postgresql://waybill:p?ss@db/waybill", "percent-encode it: write %3F instead"),
        ("WAYBILL_DATABASE_URL", "postgresql://waybill:p#ss@db/waybill", "percent-encode it: write %23 instead"),
        ("WAYBILL_DATABASE_READ_URL", "postgresql://waybill:p@ss@db/waybill", "percent-encode it: write %40 instead"),
        ("WAYBILL_DATABASE_READ_URL", "mysql://x", "postgresql"),
        ("WAYBILL_DATABASE_READ_URL", "postgresql:///waybill", "must name the hosts of the replicas"),
        ("WAYBILL_DATABASE_READ_URL", "postgresql://db2/waybill", "WAYBILL_DATABASE_URL"),
        ("WAYBILL_READ_LAG_S", "1", "at least 2"),
        ("WAYBILL_REDIS_URL", "http://x", "redis"),
        ("WAYBILL_PUBLIC_URL", "waybill.test", "https://"),
        ("WAYBILL_SHARDS", "70000", "at most 65536"),
        ("WAYBILL_MAX_MESSAGE_BYTES", "12", "at least"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_what_would_be_right(name: str, text: str, hint: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load({name: text})

    assert name in str(caught.value)
    assert hint in str(caught.value)
    assert "ss@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://waybill:p%40ss%2Fx@db/waybill", "postgresql://postgres@/postgres?host=/srv/a@b/run",
        "postgresql:///waybill?host=/run/a@b", "postgresql://db:5432/waybill?application_name=a@b",
        "postgresql://waybill:pw@a,[::1]:5433/waybill?host=x@y",
    ],
)  # fmt: skip
def test_a_url_with_an_at_sign_in_its_place_is_accepted(url: str) -> None:
    assert load({"WAYBILL_DATABASE_URL": url}).settings.database_url == url


def test_a_misspelt_variable_is_refused() -> None:
    with pytest.raises(BadSetting, match="WAYBILL_API_PROT"):
        load({"WAYBILL_API_PROT": "8080"})


def test_a_port_base_moves_every_port_of_our_servers_that_is_not_set_itself() -> None:
    loaded = load({"WAYBILL_PORT_BASE": "18080", "WAYBILL_MX_PORT": "25"})
    found = loaded.settings
    default = Settings()

    moved = {field: getattr(found, field) for field in FROM_BASE if field != "mx_port"}
    assert sorted(moved.values()) == [18080, 18081, 18082, 18084, 18085, 18086]
    assert {loaded.origin[field] for field in moved} == {"WAYBILL_PORT_BASE"}
    assert (found.mx_port, loaded.origin["mx_port"]) == (25, "WAYBILL_MX_PORT")
    assert found.public_url == "http://127.0.0.1:18080"
    kept = load({"WAYBILL_PORT_BASE": "18080", "WAYBILL_MX_PORT": str(default.mx_port)}).settings
    assert load(to_environ(kept)).settings.mx_port == default.mx_port  # in a child process too
    of_other_hosts = {"policy_port", "smtp_port"}
    own = {name for name in Settings.__struct_fields__ if name.endswith("_port") and getattr(default, name) is not None}
    assert own - of_other_hosts == set(FROM_BASE)


def test_every_kind_of_setting_can_be_set() -> None:
    kinds: set[object] = set(Settings.__annotations__.values())
    assert {kind for kind in kinds if "Literal[" not in str(kind)} <= set(_PARSERS)
    assert load({"WAYBILL_POLICY_TLS_PORT": "443"}).settings.policy_tls_port == 443


def test_the_public_url_follows_the_api_port_unless_given() -> None:
    assert load({"WAYBILL_API_PORT": "8123"}).settings.public_url == "http://127.0.0.1:8123"
    given = load({"WAYBILL_API_PORT": "8123", "WAYBILL_PUBLIC_URL": "https://mail.example"})
    assert given.settings.public_url == "https://mail.example"


def test_shown_settings_hide_secrets_and_keep_hosts() -> None:
    rows = {
        name: text
        for name, text, _ in shown(
            load(
                {
                    "WAYBILL_DATABASE_URL": "postgresql://waybill:hunter2@db.example/waybill",
                    "WAYBILL_REDIS_URL": "redis://:s3cret@cache.example:6379/0",
                    "WAYBILL_KEY_PEPPER": "salt-and-pepper-and-more",
                    "WAYBILL_KEY_PEPPER_PREVIOUS": "an older pepper, but still one",
                }
            )
        )
    }

    assert rows["WAYBILL_DATABASE_URL"] == "postgresql://waybill:********@db.example/waybill"
    assert rows["WAYBILL_REDIS_URL"] == "redis://:********@cache.example:6379/0"
    assert rows["WAYBILL_KEY_PEPPER"] == "********"
    assert not any(word in text for text in rows.values() for word in ("hunter2", "s3cret", "pepper"))


def test_every_setting_is_shown_with_where_it_came_from() -> None:
    rows = shown(load({"WAYBILL_MX_PORT": "2526"}))

    assert [name for name, _, _ in rows] == [settings.variable(f) for f in Settings.__struct_fields__]
    assert ("WAYBILL_MX_PORT", "2526", "WAYBILL_MX_PORT") in rows
    assert ("WAYBILL_STATE", ".state", "default") in rows


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WAYBILL_API_PORT": "8123"},
        {
            "WAYBILL_STATE": "/srv/way bill",
            "WAYBILL_DATABASE_URL": "postgresql://postgres@/postgres?host=/srv/way%20bill/run",
            "WAYBILL_REDIS_URL": "unix:///srv/run/valkey.sock",
            "WAYBILL_KEY_PEPPER": "ab" * 32,
            "WAYBILL_KEY_PEPPER_PREVIOUS": "cd" * 32,
            "WAYBILL_DNS_SERVERS": "127.0.0.1:2653,[::1]:2653",
            "WAYBILL_ALLOW_PRIVATE_MX": "true",
            "WAYBILL_DRAIN_S": "0",
            "WAYBILL_RETRY_LADDER_S": "1,2,3.5",
            "WAYBILL_DELIVERY": "live",
            "WAYBILL_PUBLIC_URL": "https://mail.example",
        },
    ],
)
def test_a_child_reads_the_very_same_settings(environ: dict[str, str]) -> None:
    parent = load(environ).settings

    assert load(to_environ(parent)).settings == parent
