"""PostgreSQL and Redis as an operator runs them: over TCP with TLS, logins with passwords, users without rights."""

import contextlib
import hashlib
import os
import shutil
import string
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from msgspec import Struct

from loadtests.kit.service import make_folder
from loadtests.ports import reserve_port
from ops.host import server_paths, store_servers
from ops.host.postgres_server import PostgresServer
from ops.host.server_paths import ServerPaths
from ops.host.valkey_server import ValkeyServer
from tests.harness.transport import Certified, authority

# Every printable character of ASCII, and a few others.
PASSWORD = string.ascii_letters + string.digits + string.punctuation + " ü€😀"
ENCODED = quote(PASSWORD, safe="")
LOGINS = """
local     all postgres                  trust
hostssl   all certified   127.0.0.1/32  cert
hostssl   all all         127.0.0.1/32  scram-sha-256
"""
# All that Waybill needs; the setting of one database is in ops/runbooks/stores.md.
REDIS_RIGHTS = "resetchannels &* ~* +@all -@admin -@dangerous +info"


class InstalledPostgres(PostgresServer):
    """A PostgreSQL whose programs are in this folder."""

    def __init__(self, state: Path, programs: Path) -> None:
        super().__init__(state, durable=False)
        self._wanted = programs

    def prepare(self) -> None:
        """Use these programs for a new data folder."""
        said = subprocess.run([self._wanted / "postgres", "--version"], check=True, capture_output=True, text=True)
        self._programs, self._major = self._wanted, int(said.stdout.split()[2].partition(".")[0])
        self._compression = "off"
        self.socket_folder()
        if not self.data.exists():
            self._make_data()


class TlsFiles(Struct, frozen=True):
    """The files of a server's certificate for `localhost`, of its authority, and of a client's certificate."""

    authority: Path
    certificate: Path
    key: Path
    client: Path
    client_key: Path


class SecurePostgres(InstalledPostgres):
    """A PostgreSQL on `localhost` that takes only TLS, and passwords by SCRAM-SHA-256 or certificates of clients."""

    def __init__(self, state: Path, programs: Path) -> None:
        super().__init__(state, programs)
        self.port = reserve_port()
        self.files: TlsFiles | None = None

    @property
    def superuser_url(self) -> str:
        """Return the URL of the superuser, over the unix socket."""
        return f"postgresql://postgres@/postgres?host={self.socket_folder()}&port={self.port}"

    def prepare(self) -> None:
        """Make the certificates too."""
        super().prepare()
        self.files = self.files or certificates(self.paths)
        (self.data / "pg_hba.conf").write_text(LOGINS)

    def argv(self) -> list[str]:
        """Listen on loopback too."""
        files = self.files
        assert files is not None
        words = super().argv()
        words[words.index("-p") + 1] = str(self.port)
        for name, value in {
            "listen_addresses": "127.0.0.1", "ssl": "on", "ssl_ca_file": files.authority,
            "ssl_cert_file": files.certificate, "ssl_key_file": files.key, "password_encryption": "scram-sha-256",
        }.items():  # fmt: skip
            words += ["-c", f"{name}={value}"]
        return words


class SecureRedis(ValkeyServer):
    """A Redis or Valkey on `localhost` that takes only TLS with a client's certificate, and logins of one user."""

    def __init__(self, state: Path, program: Path) -> None:
        super().__init__(state, durable=False)
        self._with_tls = program
        self.port = reserve_port()
        self.files: TlsFiles | None = None

    def prepare(self) -> None:
        """Make the certificates and the list of users too."""
        super().prepare()
        self._program = self._with_tls
        self.files = self.files or certificates(self.paths)
        digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
        users = self.paths.base / "users.acl"
        users.write_text(f"user default on nopass ~* &* -@all +ping\nuser waybill on #{digest} {REDIS_RIGHTS}\n")
        users.chmod(0o644)

    def argv(self) -> list[str]:
        """Listen on loopback with TLS too; the unix socket tells when it is ready."""
        files = self.files
        assert files is not None
        options = {
            "bind": "127.0.0.1", "tls-port": self.port, "tls-ca-cert-file": files.authority,
            "tls-cert-file": files.certificate, "tls-key-file": files.key, "tls-auth-clients": "yes",
            "aclfile": self.paths.base / "users.acl",
        }  # fmt: skip
        return [*super().argv(), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

    def tls_url(self, *, host: str = "localhost", more: str = "") -> str:
        """Return the URL of the user, who checks the server and shows a certificate."""
        files = self.files
        assert files is not None
        return (
            f"rediss://waybill:{ENCODED}@{host}:{self.port}/0?ssl_ca_certs={files.authority}"
            f"&ssl_certfile={files.client}&ssl_keyfile={files.client_key}{more}"
        )


class SecureServers(Struct, frozen=True):
    """Both servers."""

    postgres: SecurePostgres
    redis: SecureRedis

    def database_url(self, user: str, database: str, *, host: str = "localhost", more: str = "") -> str:
        """Return the URL of a database, whose server is checked."""
        files = self.postgres.files
        assert files is not None
        return (
            f"postgresql://{user}:{ENCODED}@{host}:{self.postgres.port}/{database}"
            f"?sslmode=verify-full&sslrootcert={files.authority}{more}"
        )

    async def superuser(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser."""
        connection = await asyncpg.connect(self.postgres.superuser_url.replace("/postgres?", f"/{database}?", 1))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def make_user(self, name: str) -> None:
        """Make a role that may log in with PASSWORD, and nothing else."""
        secret = PASSWORD.replace("'", "''")
        await self.superuser(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{secret}'")


@contextlib.contextmanager
def secure_servers() -> Iterator[SecureServers]:
    """Start both; skip the test if there are none with TLS. Main thread only."""
    programs, redis = _programs_with_tls()
    if programs is None or redis is None:
        pytest.skip("no PostgreSQL and Redis with TLS are installed (Debian's postgresql-15 and redis-server)")
    folders = [make_folder("waybill-secure-") for _ in range(2)]
    servers = SecureServers(SecurePostgres(folders[0], programs), SecureRedis(folders[1], redis))
    try:
        servers.postgres.start()
        servers.redis.start()
        yield servers
    finally:
        servers.redis.end()
        servers.postgres.end()
        for path in (*folders, servers.postgres.paths.base, servers.redis.paths.base):
            shutil.rmtree(path, ignore_errors=True)


def _programs_with_tls() -> tuple[Path | None, Path | None]:
    """Return the folder of a PostgreSQL and a Redis that were built with TLS: those of the tests, else installed ones.

    The embedded ones have none.
    """
    paths = server_paths.find_paths(make_folder("waybill-probe-"))
    try:
        folders = [server_paths.postgres_programs(paths)[0], *server_paths._postgres_of_system()]
        programs = [server_paths.valkey_program(paths), store_servers.find("Redis 7.0")]
        postgres = next((one for one in folders if _has_tls(one / "postgres")), None)
        return postgres, next((one for one in programs if one is not None and _has_tls(one)), None)
    finally:
        for path in {paths.state, paths.base}:
            shutil.rmtree(path, ignore_errors=True)


def _has_tls(program: Path) -> bool:
    files = (program, program.with_suffix(store_servers.REAL))
    return any(b"SSL_CTX_new" in one.read_bytes() for one in files if one.is_file())


def certificates(paths: ServerPaths) -> TlsFiles:
    """Make an authority, a server's certificate for `localhost`, and a client's for the user `certified`."""
    folder = server_paths.own_folder(paths, "tls")
    folder.chmod(0o755)
    root = authority()
    server, client = root.leaf("localhost"), root.leaf("certified")
    files = TlsFiles(
        root.pem(folder), server.pem(folder, "server"), _key(server, folder / "server.key"),
        client.pem(folder, "client"), _key(client, folder / "client.key"),
    )  # fmt: skip
    if paths.identity is not None:
        os.chown(files.key, paths.identity.uid, paths.identity.gid)
    return files


def _key(one: Certified, path: Path) -> Path:
    path.write_bytes(one.secret)
    path.chmod(0o600)
    return path
