"""Servers with TLS and passwords: the server's certificate is checked, every password works, no password is shown."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from engine.base.settings import BadSetting, load
from engine.store import postgres
from engine.store import redis as redis_store
from engine.store.database_errors import DatabaseError, DatabaseLoginRefused, ServerUntrusted
from engine.store.postgres_hosts import NoPrimary
from loadtests.ports import reserve_port
from ops.host.prepare import NotPrepared, patiently
from tests.harness.own_servers import ENCODED, PASSWORD, SecureServers, secure_servers
from tests.harness.patience import PATIENCE_S
from tests.store.redis_servers import unhurried

SECRET = "hunter2"
_NAMES = {"WAYBILL_DATABASE_URL": "postgresql://u:{}@db.test/waybill", "WAYBILL_REDIS_URL": "redis://u:{}@cache.test/0"}


@pytest.fixture(scope="module")
def secure() -> Iterator[SecureServers]:
    """Both servers for these tests."""
    with secure_servers() as started:
        yield started


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A handshake takes its time on a busy machine."""
    with unhurried():
        yield


@pytest.fixture(scope="module")
async def user(secure: SecureServers) -> str:
    """A role that may log in."""
    for name in ("waybill", "certified"):
        await secure.make_user(name)
    return "waybill"


async def who(url: str) -> str:
    """Return the user of a session."""
    connection = await postgres.connect(url, name="test")
    try:
        return str(await connection.fetchval("SELECT current_user"))
    finally:
        connection.terminate()


async def stored(url: str) -> bytes:
    """Write to a Redis and read it back."""
    redis = redis_store.connect(url, timeout_s=PATIENCE_S)
    try:
        await redis.one("SET", "a", "b", "EX", 60)
        return bytes(await redis.one("GET", "a"))
    finally:
        await redis.aclose()


# -- PostgreSQL ------------------------------------------------------------------------------------


async def test_a_password_of_every_character_opens_a_session_over_tls(secure: SecureServers, user: str) -> None:
    url = secure.database_url(user, "postgres")
    connection = await postgres.connect(url, name="test")
    try:
        assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    finally:
        connection.terminate()
    kept = "SELECT 1 / (rolpassword LIKE 'SCRAM-SHA-256$%')::int FROM pg_authid WHERE rolname = 'waybill'"
    await secure.superuser(kept)

    pool = await postgres.open_pool(url, name="test", largest=1)
    assert await pool.fetchval("SELECT current_user") == user
    await postgres.close_pool(pool)


async def test_a_url_of_several_servers_keeps_the_password_and_checks_each(secure: SecureServers, user: str) -> None:
    url = secure.database_url(user, "postgres")
    here = f"localhost:{secure.postgres.port}"
    several = url.replace(here, f"{here},localhost:{reserve_port()}")
    assert await who(several) == user
    with pytest.raises(NoPrimary, match=r"certificate is not valid for '127\.0\.0\.1'"):
        await who(several.replace(here, f"127.0.0.1:{secure.postgres.port}"))


async def test_another_name_or_authority_is_refused_in_words_and_at_once(secure: SecureServers, user: str) -> None:
    url = secure.database_url(user, "postgres")
    assert secure.postgres.files is not None
    assert secure.redis.files is not None
    other_authority = url.replace(str(secure.postgres.files.authority), str(secure.redis.files.authority))
    for wrong, why in (
        (secure.database_url(user, "postgres", host="127.0.0.1"), "certificate is not valid for '127.0.0.1'"),
        (other_authority, "certificate in certificate chain"),
    ):
        with pytest.raises(ServerUntrusted, match=why) as refused:
            await who(wrong)
        assert "Correct the host name or sslrootcert in WAYBILL_DATABASE_URL" in str(refused.value)
        with pytest.raises(NotPrepared, match="certificate is not accepted"):
            await patiently(lambda wrong=wrong: who(wrong))  # type: ignore[misc]


async def test_a_certificate_of_the_client_is_a_login(secure: SecureServers, user: str) -> None:
    files = secure.postgres.files
    assert files is not None
    url = f"postgresql://certified@localhost:{secure.postgres.port}/postgres"
    url += f"?sslmode=verify-full&sslrootcert={files.authority}"
    assert await who(f"{url}&sslcert={files.client}&sslkey={files.client_key}") == "certified"
    with pytest.raises(DatabaseLoginRefused, match="certificate"):
        await who(url)


async def test_wrong_logins_are_refused_without_the_password(secure: SecureServers, user: str) -> None:
    url = secure.database_url(user, "postgres")
    for wrong in (url.replace(ENCODED, SECRET), url.replace("verify-full", "disable").replace(ENCODED, SECRET)):
        with pytest.raises(DatabaseLoginRefused) as refused:
            await who(wrong)
        assert SECRET not in str(refused.value)
    with pytest.raises(DatabaseError, match="`sslmode` parameter must be one of") as unknown:
        await who(url.replace("verify-full", "verify"))
    assert type(unknown.value) is DatabaseError  # a wrong URL is no outage: the start does not wait for it


# -- Redis -----------------------------------------------------------------------------------------


async def test_a_redis_user_of_few_rights_logs_in_over_tls(secure: SecureServers) -> None:
    assert await stored(secure.redis.tls_url()) == b"b"
    several = secure.redis.tls_url().replace(
        f"localhost:{secure.redis.port}", f"localhost:{secure.redis.port},localhost:{reserve_port()}"
    )
    assert await stored(several) == b"b"


async def test_a_redis_that_is_not_trusted_or_does_not_trust_us_gets_nothing(secure: SecureServers) -> None:
    url = secure.redis.tls_url()
    assert secure.postgres.files is not None
    assert secure.redis.files is not None
    plain = f"?ssl_ca_certs={secure.redis.files.authority}"
    for wrong, why in (
        (secure.redis.tls_url(host="127.0.0.1"), "certificate is not valid for '127.0.0.1'"),
        (url.replace(str(secure.redis.files.authority), str(secure.postgres.files.authority)), "certificate chain"),
        (url.partition("?")[0] + plain, "certificate"),
        (url.replace(ENCODED, SECRET), "invalid username-password pair"),
    ):
        with pytest.raises(redis_store.RedisUnavailable, match=why) as refused:
            await stored(wrong)
        assert SECRET not in str(refused.value)


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", sorted(set(PASSWORD)))
def test_a_character_of_a_password_is_taken_as_it_is_or_refused_with_advice(character: str) -> None:
    for name, url in _NAMES.items():
        load({name: url.format(f"{SECRET}{quote(character, safe='')}x")})
        raw = {name: url.format(f"{SECRET}{character}x")}
        if character not in "@[]/?#":
            load(raw)
            continue
        with pytest.raises(BadSetting, match=name) as refused:
            load(raw)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("WAYBILL_DATABASE_URL", "postgresql://u:hunter2@db:99999/x", "with ports up to 65535"),
        ("WAYBILL_DATABASE_URL", "postgresql://u:hunter2@db:5432,db2:x/x", "must name hosts such as"),
        ("WAYBILL_DATABASE_URL", "postgresql://u:hunter2@[::1/x", "must name hosts such as"),
        ("WAYBILL_DATABASE_URL", "postgresql://u:hunter2@/x?host=/run&port=y", "must name hosts such as"),
        ("WAYBILL_DATABASE_URL", "postgresql://u:hun[ter2@db/x", "has [ in its user name or password"),
        ("WAYBILL_DATABASE_URL", "postgresql://u:hunter2@db/x?sslrootcert=/no/ca.pem", "/no/ca.pem, which does not ex"),
        ("WAYBILL_DATABASE_URL", "mysql://u:hunter2@db/x", "must be a URL that begins with postgresql"),
        ("WAYBILL_REDIS_URL", "redis://u:hun]ter2@cache/0", "has ] in its user name or password"),
        ("WAYBILL_REDIS_URL", "redis://u:hunter2@cache/first", "whose path is the number of a database"),
        ("WAYBILL_REDIS_URL", "rediss://u:hunter2@cache/0?ssl_ca_certs=/no/ca.pem", "/no/ca.pem, which does not exist"),
        ("WAYBILL_REDIS_URL", "http://u:hunter2@cache/0", "must be a URL that begins with redis"),
    ],
)
def test_a_wrong_url_is_refused_at_the_start_without_its_password(name: str, url: str, words: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load({name: url})
    assert words in str(refused.value)
    assert name in str(refused.value)
    assert "ter2" not in str(refused.value)


def test_an_unknown_option_of_a_redis_url_is_named() -> None:
    with pytest.raises(BadSetting, match=r"the unknown option ssl_ca_cert$"):
        redis_store.connect(f"rediss://u:{SECRET}@cache.test/0?ssl_ca_cert=/etc/ca.pem")
