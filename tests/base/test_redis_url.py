"""Valid and invalid values of WAYBILL_REDIS_URL, and their error messages."""

import pytest

from engine.base.redis_url import RedisTopology, parse
from engine.base.settings import BadSetting, load, shown


@pytest.mark.parametrize(
    ("text", "kind", "urls"),
    [
        ("redis://cache", RedisTopology.SINGLE, ("redis://cache:6379",)),
        (
            "rediss://u:p@cache:7000/2?ssl_ca_certs=/a,b",
            RedisTopology.SINGLE,
            ("rediss://u:p@cache:7000/2?ssl_ca_certs=/a,b",),
        ),
        ("unix:///run/v.sock?db=3", RedisTopology.SINGLE, ("unix:///run/v.sock?db=3",)),
        ("redis://:p@a,b:7000/1", RedisTopology.PRIMARY, ("redis://:p@a:6379/1", "redis://:p@b:7000/1")),
        ("redis://a, redis://b", RedisTopology.PRIMARY, ("redis://a:6379", "redis://b:6379")),
        ("rediss+cluster://a,[::1]:7000", RedisTopology.CLUSTER, ("rediss://a:6379", "rediss://[::1]:7000")),
        (
            "redis://u:p@[::1],[2001:DB8::1]:7000/1",
            RedisTopology.PRIMARY,
            ("redis://u:p@[::1]:6379/1", "redis://u:p@[2001:db8::1]:7000/1"),
        ),
        ("redis+cluster://a/0", RedisTopology.CLUSTER, ("redis://a:6379/0",)),
    ],
)
def test_a_url_says_which_servers_there_are_and_how_they_belong_together(
    text: str, kind: RedisTopology, urls: tuple[str, ...]
) -> None:
    assert (found := parse(text)).kind is kind
    assert found.urls == urls


def test_a_url_of_sentinels_says_who_they_are_and_how_to_reach_the_servers_that_they_name() -> None:
    found = parse("rediss+sentinel://u:p@s1,s2:7000/my%2Fmaster/2?sentinel_password=q&ssl_ca_certs=/a")

    assert found.kind is RedisTopology.SENTINEL
    assert found.urls == ("rediss://:q@s1:26379?ssl_ca_certs=/a", "rediss://:q@s2:7000?ssl_ca_certs=/a")
    assert found.primary_name == "my/master"
    assert found.watched_url("[::1]:6379") == "rediss://u:p@[::1]:6379/2?ssl_ca_certs=/a"
    assert parse("redis+sentinel://s1/mymaster").watched_url("a:1") == "redis://a:1"
    [slash] = parse("redis+sentinel://s1/mymaster?sentinel_username=u&sentinel_password=p/a%3Ass").urls
    assert slash == "redis://u:p%2Fa%3Ass@s1:26379"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("http://cache", "begins with redis://"),
        ("cache:6379", "begins with redis://"),
        ("redis://", "a list of hosts"),
        ("redis://a,,b", "a list of hosts"),
        ("redis://a:port", "a list of hosts"),
        ("redis://a:65536", "a list of hosts"),
        ("redis://[::1", "a list of hosts"),
        ("redis://b[::1]", "a list of hosts"),
        ("redis://[fe80]:6379", "a list of hosts"),
        ("redis://a,a:6379", "all different"),
        ("redis://a,rediss://b", "all have one scheme"),
        ("redis://x:hunter2@a,y:hunter3@b", "before the first host only"),
        ("redis+cluster://a,b/2", "database 0 only"),
        ("redis+cluster://a?db=2", "database 0 only"),
        ("redis+sentinel://:hunter2@a,b", "the name of the primary"),
        ("redis+sentinel://:hunter2@a,b/", "the name of the primary"),
        ("redis+sentinel://:hunter2@a,b/mymaster/0/1", "the name of the primary"),
        ("redis+sentinel://:hunter2@a,b/mymaster/one", "a number as the database"),
        ("redis+sentinel://a,,b/mymaster", "a list of hosts"),
        ("redis+sentinel://a/mymaster?sentinel_timeout=hunter2", "no options of sentinels but"),
        ("redis+sentinel://a/mymaster?sentinel_username=hunter2", "a sentinel_password beside"),
        ("redis+sentinel://a/mymaster?sentinel_password=hunter:2@b", "percent-encoded"),
    ],
)
def test_a_url_that_can_not_be_meant_is_refused_without_being_repeated(text: str, hint: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load({"WAYBILL_REDIS_URL": text})

    assert "WAYBILL_REDIS_URL" in str(caught.value)
    assert hint in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_the_password_of_several_servers_is_masked() -> None:
    rows = {
        name: text for name, text, _ in shown(load({"WAYBILL_REDIS_URL": "redis+cluster://u:hunter2@a,[::1]:7000"}))
    }

    assert rows["WAYBILL_REDIS_URL"] == "redis+cluster://u:********@a,[::1]:7000"


def test_the_password_of_sentinels_is_masked_too() -> None:
    url = "redis+sentinel://:hunter2@a/mymaster?sentinel_username=u&sentinel_password=hunter3"
    rows = {name: text for name, text, _ in shown(load({"WAYBILL_REDIS_URL": url}))}

    assert rows["WAYBILL_REDIS_URL"] == (
        "redis+sentinel://:********@a/mymaster?sentinel_username=u&sentinel_password=********"
    )
