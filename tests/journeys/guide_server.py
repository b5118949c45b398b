"""A server for the guides of operators: their commands run as printed, with every path below one folder.

systemd, certbot and apt need a machine of their own; `NOT_RUN` names the commands that are left out, and why. The
service, PostgreSQL, nginx, DNS and the recipient's mail server are real and listen on loopback.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from loadtests.kit.service import Service
from ops.host.process_specs import ROOT
from ops.local import certificate

HOST = "mail.example.com"
SHELL_S = 120.0
NOT_RUN = {
    r"^hostnamectl\b": "changes the machine",
    r"^apt-get\b": "installs packages",
    r"^git clone\b": "the code is here already",
    r"-m ops bootstrap\b": "installs packages: tests/ops/test_bootstrap.py",
    r"^certbot\b": "asks an authority on the internet",
    r"^nginx -t\b": "the file is served by a real nginx after this step",
}
_ROOTED = re.compile(r"(?<![\w./#])/(etc|usr/lib|usr/local|var)/")
_PROGRAMS = {
    # Accounts and groups of the machine stay as they are: files belong to the user of the tests.
    "install": 'args=(); while (($#)); do if [[ $1 == -g ]]; then shift 2; else args+=("$1"); shift; fi; done\n'
               'exec /usr/bin/install "${args[@]}"',
    "runuser": 'shift 3; exec "$@"',
    "systemd-sysusers": 'command -v /usr/bin/systemd-sysusers >/dev/null &&'
                        ' exec /usr/bin/systemd-sysusers --root="$ROOT"',
    "systemd-tmpfiles": 'command -v /usr/bin/systemd-tmpfiles >/dev/null &&'
                        ' exec /usr/bin/systemd-tmpfiles --root="$ROOT" "$@"',
    # Knows the units that were installed; nothing runs under systemd here.
    "systemctl": 'for name; do\n  case $name in waybill*.*)\n'
                 '    ls "$ROOT"/etc/systemd/system/$name >/dev/null || exit 5;;\n  esac\ndone\n'
                 '[[ " $* " != *" is-active "* ]]',
    "journalctl": 'cat "$UP_LOG"',
    "curl": 'exec /usr/bin/curl --connect-to "$HOST:443:127.0.0.1:$PROXY_PORT" --cacert "$CERTIFICATE" "$@"',
}  # fmt: skip
_DIG = """
import sys
import dns.message, dns.query, dns.reversename
words = [one for one in sys.argv[1:] if one != "+short"]
kind = "A"
if words[0] == "-x":
    name, kind = dns.reversename.from_address(words[1]), "PTR"
else:
    *before, name = words
    kind = before[0] if before else kind
found = dns.query.udp(dns.message.make_query(name, kind), "127.0.0.1", timeout=5, port={port})
print(*[rdata.to_text() for rrset in found.answer for rdata in rrset], sep="\\n")
"""


class GuideServer:
    """The folder that stands for the server's root, its service, and a shell in which variables stay set."""

    def __init__(self, folder: Path, *, dns_port: int, smtp_port: int) -> None:
        self.root = folder / "root"
        self.service = Service(folder)
        self._dns_port, self._smtp_port = dns_port, smtp_port
        self._environ = {"ROOT": str(self.root), "UP_LOG": str(self.service.output), "HOST": HOST}
        self._variables = folder / "variables"
        self._variables.touch()
        for name in ("etc/nginx/conf.d", "etc/nginx/sites-enabled", "etc/prometheus", "etc/systemd/system",
                     "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "usr/local/bin", "var/lib", "etc/waybill",
                     "var/backups/waybill"):  # fmt: skip
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._write_programs(self.root / "usr" / "local" / "bin")
        self._copy_deploy_files()
        issued = certificate.ensure(self.root / "issued", HOST)
        live = self.root / "etc" / "letsencrypt" / "live" / HOST
        live.mkdir(parents=True)
        for file, name in zip(issued, ("fullchain.pem", "privkey.pem"), strict=True):
            shutil.copy(file, live / name)
        self.set("CERTIFICATE", str(live / "fullchain.pem"))
        self.set("SSL_CERT_FILE", str(live / "fullchain.pem"))  # what `ops doctor` trusts

    def set(self, name: str, value: str) -> None:
        """Set an environment variable of the programs above."""
        self._environ[name] = value

    def run(self, text: str) -> tuple[int, str]:
        """Run one block of a guide; return its status and what it printed."""
        lines = [line for line in text.splitlines() if not is_left_out(line)]
        kept = f'declare -p ACCOUNT KEY >> "{self._variables}" 2>/dev/null'
        script = f'. "{self._variables}"\n{self.here(chr(10).join(lines))}\nstatus=$?; {kept}; exit $status'
        path = f"{self.root}/usr/local/bin:{os.environ['PATH']}:/usr/sbin"
        done = subprocess.run(
            ["bash", "-c", script], check=False, env={**os.environ, **self._environ, "PATH": path}, text=True,
            timeout=SHELL_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def here(self, text: str) -> str:
        """Return a command or file with the paths and ports of this server."""
        text = text.replace("/opt/waybill/ops/deploy", f"{self.root}/opt/deploy").replace("/opt/waybill", str(ROOT))
        text = text.replace("/var/lib/waybill", str(self.service.state))
        text = text.replace("gmail-smtp-in.l.google.com/25", f"127.0.0.1/{self._smtp_port}")
        return _ROOTED.sub(rf"{self.root}/\1/", text)

    def start(self) -> None:
        """Start the service with the settings of `waybill.env`, on free ports, towards DNS and mail server of the test.

        Then the file has these settings, for `ops`.
        """
        file = self.root / "etc" / "waybill" / "waybill.env"
        for name, value in _settings(file).items():
            if not name.endswith(("_PORT", "_HOST")) or name == "MAIL_HOST":
                self.service.set(name, self.here(value))
        for name, value in self._closed_network().items():
            self.service.set(name, value)
        self.service.start()
        environ = self.service.environ
        kept = {name: environ[name] for name in environ if name.startswith("WAYBILL_") and name != "WAYBILL_STATE"}
        file.write_text("".join(f"{name}='{value}'\n" for name, value in kept.items()))

    def back_up(self) -> tuple[int, str]:
        """Run the command of the backup unit, as its timer does."""
        unit = (self.root / "etc" / "systemd" / "system" / "waybill-backup.service").read_text()
        found = re.search(r"^ExecStart=/bin/sh -c '(.+)'$", unit, re.MULTILINE)
        assert found
        environ = "set -a; . /etc/waybill/waybill.env; WAYBILL_STATE=/var/lib/waybill; cd /opt/waybill; "
        return self.run(environ + found[1].replace("%%", "%"))

    def _closed_network(self) -> Mapping[str, str]:
        """Return settings without which the service would leave this machine."""
        return {
            "DNS_SERVERS": f"127.0.0.1:{self._dns_port}", "SMTP_PORT": str(self._smtp_port), "ALLOW_PRIVATE_MX": "true",
            "SOURCE_IPS": "127.0.0.1",
        }  # fmt: skip

    def _write_programs(self, folder: Path) -> None:
        for name, text in _PROGRAMS.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "dig").write_text(f"#!{sys.executable}\n{_DIG.format(port=self._dns_port)}")
        (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        for file in folder.iterdir():
            file.chmod(0o755)

    def _copy_deploy_files(self) -> None:
        """Copy `ops/deploy`; the scripts in it name paths of this server."""
        copied = self.root / "opt" / "deploy"
        shutil.copytree(ROOT / "ops" / "deploy", copied)
        for name in ("systemd/waybill-ops", "certificates/certbot-hook", "systemd/waybill-backup.service"):
            (copied / name).write_text(self.here((copied / name).read_text()))


def is_left_out(line: str) -> bool:
    """Return True for a command that is not run here."""
    return any(re.search(one, line) for one in NOT_RUN) or (
        line.startswith("promtool") and shutil.which("promtool") is None
    )


def _settings(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line.startswith("WAYBILL_")]
    pairs = (line.split("=", 1) for line in lines)
    return {name.removeprefix("WAYBILL_"): value.strip("'") for name, value in pairs}
