"""Other people's mail servers, each started for a test with a configuration of its own: it takes all mail for its
domain and keeps every message in a folder.

Postfix, Exim and OpenSMTPD are looked for on the PATH and in /usr/sbin and need root (they change users);
`smtp-server` and Haraka are looked for by Node, so NODE_PATH may name where they lie.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import textwrap
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.harness.patience import PATIENCE_S

DOMAIN = "peer.test"
MAX_BYTES = 20_000_000
START_S = 60.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


class Peer(ABC):
    """A mail server: `start` it on an address, then `stored` is what it has taken."""

    name = ""
    utf8 = True  # takes SMTPUTF8

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mail = folder / "mail"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, address: str, port: int) -> None:
        """Listen; skips the test where the server is not installed."""
        self.folder.chmod(0o755)
        self.mail.mkdir()
        self._run(self.command(address, port))
        await self._until_it_greets(address, port)

    @abstractmethod
    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """Write the configuration and return the command that starts the server in the foreground."""

    async def stop(self) -> None:
        """End it and its children."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)

    def stored(self) -> list[bytes]:
        """Every message it keeps, with CRLF line ends."""
        kept = [path.read_bytes() for path in sorted(self.mail.rglob("new/*")) if path.is_file()]
        return [one.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for one in kept]

    @property
    def told(self) -> str:
        """The last of what it logged."""
        return "\n".join(
            path.read_text("utf-8", "replace")[-3000:] for path in sorted(self.folder.rglob("*log")) if path.is_file()
        )

    def owned(self, folder: Path, user: str) -> Path:
        """A folder that belongs to this user."""
        folder.mkdir(parents=True, exist_ok=True)
        known = pwd.getpwnam(user)
        os.chown(folder, known.pw_uid, known.pw_gid)
        return folder

    def _run(self, command: Sequence[str | Path]) -> None:
        with (self.folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    async def _until_it_greets(self, address: str, port: int) -> None:
        ends = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < ends:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    reader, writer = await asyncio.open_connection(address, port)
                    try:
                        if (await reader.readline()).startswith(b"220"):
                            return
                    finally:
                        writer.close()
            await asyncio.sleep(0.1)
        raise AssertionError(f"{self.name} does not greet:\n{self.told}")


class Postfix(Peer):
    """Its own instance beside one of the system; virtual(8) keeps Maildirs."""

    name = "postfix"

    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """`master -d` stays in the foreground."""
        program = _program("postfix")
        _needs_root()
        nobody = pwd.getpwnam("nobody")
        home = subprocess.run([_program("postconf"), "-dh", "daemon_directory"], capture_output=True, check=True)
        queue = self.folder / "queue"
        queue.mkdir()
        self.owned(self.mail, "nobody")
        self.owned(self.folder / "data", "postfix")
        self._write("main.cf", f"""
            compatibility_level = 3.6
            queue_directory = {queue}
            data_directory = {self.folder}/data
            maillog_file = {self.folder}/postfix.log
            maillog_file_prefixes = {self.folder}
            myhostname = mx.{DOMAIN}
            inet_interfaces = 127.0.0.1
            inet_protocols = ipv4
            mynetworks = 127.0.0.0/8
            mydestination =
            alias_maps =
            local_recipient_maps =
            smtputf8_enable = yes
            virtual_mailbox_domains = {DOMAIN}
            virtual_mailbox_maps = static:box/
            virtual_mailbox_base = {self.mail}
            virtual_minimum_uid = 1
            virtual_uid_maps = static:{nobody.pw_uid}
            virtual_gid_maps = static:{nobody.pw_gid}
            virtual_mailbox_limit = 0
            mailbox_size_limit = 0
            message_size_limit = {MAX_BYTES}
            smtpd_client_connection_count_limit = 0
            smtpd_tls_security_level = none
        """)  # fmt: skip
        services = ["cleanup", "bounce", "trivial-rewrite", "proxymap", "virtual", "error", "anvil", "postlogd"]
        names = {"trivial-rewrite": "rewrite", "postlogd": "postlog"}
        kinds = {"cleanup": "unix n - n - 0", "postlogd": "unix-dgram n - n - 1", "virtual": "unix - n n - -"}
        rows = [
            f"{address}:{port} inet n - n - - smtpd",
            "qmgr unix n - n 300 1 qmgr",
            "defer unix - - n - 0 bounce",
            "trace unix - - n - 0 bounce",
            *[f"{names.get(one, one)} {kinds.get(one, 'unix - - n - -')} {one}" for one in services],
        ]
        self._write("master.cf", "\n".join(rows))
        checked = subprocess.run([program, "-c", self.folder, "check"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}{self.told}"
        return [Path(home.stdout.decode().strip()) / "master", "-c", self.folder, "-d"]

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(text).lstrip() + "\n")


class Exim(Peer):
    """The packaged one with a small configuration; appendfile keeps a Maildir."""

    name = "exim"

    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """`-bdf` stays in the foreground."""
        program = _program("exim4", "exim")
        _needs_root()
        user = next((name for name in ("Debian-exim", "exim", "mail") if _exists(name)), "mail")
        for name in ("spool", "log"):
            self.owned(self.folder / name, user)
        self.owned(self.mail, user)
        configuration = self.folder / "exim.conf"
        configuration.write_text(textwrap.dedent(f"""
            exim_path = {program}
            spool_directory = {self.folder}/spool
            log_file_path = {self.folder}/log/%slog
            primary_hostname = mx.{DOMAIN}
            local_interfaces = {address}
            daemon_smtp_ports = {port}
            tls_advertise_hosts =
            host_lookup =
            rfc1413_query_timeout = 0s
            smtputf8_advertise_hosts = *
            allow_utf8_domains = true
            message_size_limit = {MAX_BYTES}
            smtp_accept_max = 200
            smtp_accept_queue_per_connection = 0
            deliver_drop_privilege = true
            acl_smtp_rcpt = accept
            acl_smtp_data = accept
            begin routers
            all:
              driver = accept
              transport = store
            begin transports
            store:
              driver = appendfile
              directory = {self.mail}
              maildir_format
            begin retry
            * * F,1h,1m
        """).lstrip())  # fmt: skip
        return [program, "-bdf", "-q1m", "-C", configuration]


class OpenSmtpd(Peer):
    """The packaged one; `mail.maildir` keeps the messages. It knows no SMTPUTF8."""

    name = "opensmtpd"
    utf8 = False

    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """`-d` stays in the foreground."""
        program = _program("smtpd")
        _needs_root()
        if not Path("/usr/libexec/opensmtpd/mail.maildir").exists() and not Path("/usr/lib/opensmtpd").exists():
            pytest.skip("smtpd on the PATH is not OpenSMTPD's")
        self.owned(self.mail, "nobody")
        configuration = self.folder / "smtpd.conf"
        configuration.write_text(textwrap.dedent(f"""
            smtp max-message-size "{MAX_BYTES}"
            table boxes {{ "@" = "nobody" }}
            listen on {address} port {port} hostname mx.{DOMAIN}
            action "keep" maildir "{self.mail}" virtual <boxes> user "nobody"
            match from any for domain "{DOMAIN}" action "keep"
        """).lstrip())  # fmt: skip
        configuration.chmod(0o600)
        return [program, "-d", "-f", configuration]


class SmtpServer(Peer):
    """The npm package of that name, with a script of ours that keeps what arrives."""

    name = "smtp-server"

    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """Node in the foreground."""
        node = _program("node", "nodejs")
        found = subprocess.run([node, "-e", "require('smtp-server')"], capture_output=True, check=False)
        if found.returncode:
            pytest.skip("the npm package smtp-server is not where Node looks (NODE_PATH)")
        kept = self.mail / "new"
        kept.mkdir()
        script = self.folder / "peer.js"
        script.write_text(textwrap.dedent(f"""
            const {{ SMTPServer }} = require('smtp-server');
            const fs = require('fs');
            let number = 0;
            new SMTPServer({{
              name: 'mx.{DOMAIN}', disabledCommands: ['AUTH', 'STARTTLS'], size: {MAX_BYTES}, logger: false,
              onData(stream, session, done) {{
                const file = {str(kept)!r} + '/' + String(++number).padStart(6, '0');
                const out = fs.createWriteStream(file + '.part');
                stream.pipe(out);
                out.on('finish', () => fs.rename(file + '.part', file, done));
              }},
            }}).listen({port}, '{address}');
        """).lstrip())  # fmt: skip
        return [node, script]

    def stored(self) -> list[bytes]:
        """Without those half written."""
        return [path.read_bytes() for path in sorted(self.mail.glob("new/*")) if path.suffix != ".part"]


class Haraka(Peer):
    """The npm package of that name, with a plugin of ours that takes all recipients and keeps what arrives."""

    name = "haraka"

    def command(self, address: str, port: int) -> Sequence[str | Path]:
        """Node in the foreground."""
        node = _program("node", "nodejs")
        wanted = "console.log(require.resolve('Haraka/bin/haraka'))"
        found = subprocess.run([node, "-e", wanted], capture_output=True, text=True, check=False)
        if found.returncode:
            pytest.skip("the npm package Haraka is not where Node looks (NODE_PATH)")
        kept = self.mail / "new"
        kept.mkdir()
        for folder in ("config", "plugins"):
            (self.folder / folder).mkdir()
        files = {
            "config/smtp.ini": f"listen={address}:{port}\n",
            # By itself it breaks lines beyond 992 octets, dots that were doubled included; RFC 5321 allows 998.
            "config/connection.ini": f"""
                [main]
                smtputf8=true
                [haproxy]
                hosts[] =
                [headers]
                max_lines=1000
                max_received=100
                [max]
                bytes={MAX_BYTES}
                mime_parts=1000
                line_length=512
                data_line_length=2000
                [message]
                [uuid]
                banner_chars=6
                deny_chars=0
            """,
            "config/me": f"mx.{DOMAIN}\n",
            "config/log.ini": "[main]\nlevel=WARN\n",
            "config/plugins": "keep\n",
            "plugins/keep.js": f"""
                const fs = require('fs');
                let number = 0;
                exports.hook_rcpt = (next) => next(OK);
                exports.hook_queue = (next, connection) => {{
                  const file = {str(kept)!r} + '/' + String(++number).padStart(6, '0');
                  const out = fs.createWriteStream(file + '.part');
                  connection.transaction.message_stream.pipe(out, {{ line_endings: '\\r\\n' }});
                  out.on('finish', () => fs.rename(file + '.part', file, () => next(OK)));
                }};
            """,
        }
        for name, text in files.items():
            (self.folder / name).write_text(textwrap.dedent(text).lstrip())
        return [node, found.stdout.strip(), "-c", self.folder]

    def stored(self) -> list[bytes]:
        """Without those half written."""
        return [path.read_bytes() for path in sorted(self.mail.glob("new/*")) if path.suffix != ".part"]


PEERS: Sequence[type[Peer]] = (Postfix, Exim, OpenSmtpd, SmtpServer, Haraka)


@contextlib.asynccontextmanager
async def running(make: type[Peer], address: str, port: int) -> AsyncIterator[Peer]:
    """Started in a folder that its users can pass through; both end with the context."""
    folder = Path(tempfile.mkdtemp(prefix="waybill-peer-"))
    peer = make(folder)
    try:
        await peer.start(address, port)
        yield peer
    finally:
        await peer.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name, path=_PATH)
        if found is not None:
            return str(Path(found).resolve())
    pytest.skip(f"{names[0]} is not installed")


def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("this server changes users and must be started by root")


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
