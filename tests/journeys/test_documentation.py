"""What README and runbooks print to be typed is typed, as it stands, beside a running service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.kit.service import Service
from ops.host.process_specs import ROOT
from tests.harness.documentation import Command, commands, documents
from tests.harness.service import arrived, command, until

pytestmark = pytest.mark.journey

# Why a command of the documentation is not run here; each `ops …` among them is parsed all the same (tests/ops).
NOT_RUN = {
    r"-m ops up\b": "the service runs already",
    r"-m ops test\b": "this is the suite",
    r"-m ops bootstrap\b": "installs packages: tests/ops/test_bootstrap.py",
    r"-m ops restore\b": "needs an empty database: tests/ops/test_backup.py",
    r"ops config --page >": "overwrites a page of the checkout: tests/ops/test_settings_docs.py",
    r"ops cells move acc_": "needs another cell: tests/account_moves",
    r"-m ops blocklists --": "asks lists, and none is set: tests/ops/test_blocklists.py",
    r"^(install|git clone)\b|\bsystemctl\b|/etc/": "needs root, and changes the system",
    r"^(docker\b|printf .*PASSWORD)": "needs Docker, and writes its secrets into the checkout",
    r"^promtool": "belongs to Prometheus: tests/ops/test_deploy.py reads the rules",
}
FOLLOWS = re.compile(r"-m ops tail\b|curl -sN")  # until somebody ends it
FOLLOWED_S = 3
ENDED = {0, 124, 130}  # 124: by timeout(1)
TYPED_S = 60.0


def why_not(one: Command) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, one.text)), None)


FENCED = [one for file in documents() for one in commands(file) if one.fenced]
TYPED = [one for one in FENCED if why_not(one) is None]


class Shell:
    """A shell beside the service: `python3` is this Python, variables that were set stay set."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._said = ""  # assignments so far
        programs = folder / "bin"
        programs.mkdir()
        for name, words in {"python3": "", "ops": "-m ops", "waybill": "-m ops"}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (programs / name).chmod(0o755)

    def type(self, text: str) -> tuple[int, str]:
        """Run one command; its status and all it printed."""
        text = self._here(text)
        if re.match(r"[A-Z_]+=\S", text):
            self._said += f"{text}\n"
        if FOLLOWS.search(text):
            text = f"timeout -s INT {FOLLOWED_S} {text}"
        environ = self._service.environ | {"PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", self._said + text],
            check=False, cwd=ROOT, env=environ, text=True, timeout=TYPED_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _here(self, text: str) -> str:
        """The same on this service's port and folders."""
        text = text.replace("http://127.0.0.1:8080", self._service.base_url)
        text = text.replace("127.0.0.1:2525", f"127.0.0.1:{self._service.settings.mx_port}")
        text = text.replace("127.0.0.1:2587", f"127.0.0.1:{self._service.settings.submission_port}")
        return text.replace(".state/", f"{self._service.state}/").replace("/var/backups", str(self._folder))


@pytest.mark.exhaustive
@pytest.mark.timeout(300)  # some hundred commands
async def test_what_is_printed_to_be_typed_works_as_it_stands(service: Service, tmp_path: Path) -> None:
    sent = command(service, "send", "--to", "typed@people.test", "--json").json["id"]

    async def is_there() -> bool:
        return bool(arrived(service, "typed@people.test"))

    await until(is_there)
    shell = Shell(service, tmp_path)
    for one in TYPED:
        status, printed = shell.type(one.text.replace("msg_…", sent))

        assert status in ENDED if FOLLOWS.search(one.text) else status == 0, f"{one}\n{printed}"
        assert "Traceback" not in printed, f"{one}\n{printed}"
        assert '"error"' not in printed, f"{one}\n{printed}"


def test_each_reason_not_to_run_a_command_is_still_needed() -> None:
    assert len(TYPED) > 10
    for pattern in NOT_RUN:
        assert any(re.search(pattern, one.text) for one in FENCED), pattern


# -- what people read ---------------------------------------------------------------------------

PYTHONIC = re.compile(r"\b(None|True|False)\b|datetime\.|\[\]|\{'|\('|UUID\(|<[A-Z]\w+\.|b'")
READ = """
status; nodes; config; config retry_ladder_s; messages; messages --all; messages --account Local; message {message}
message --all {message}; explain {message}; sink; sink show LAST; tail --seconds 1; account list
account show {account}; account agreement {account}; account create --name P --email p{message}@x.test
key list --account {account}; key create --account {account}; domain add --account {account} --name {domain}
domain verify --account {account} --name {domain}; platform show; person show owner@hello.test; queue
queue --by site; queue suspend --domain held.test --reason read --for 90s; queue; queue resume --domain held.test
queue flush --domain held.test; queue bounce --yes --domain held.test --reason read; site list; site show people.test
site set read.test --per-second 3 --together; site reset read.test; source list; source show 127.0.0.1
source pool set read --ips 127.0.0.1; source pool remove read; shards; shards weight mta-1 1 --dry-run
shards drain mta-1 --dry-run; shards split people.test --parts 2 --dry-run; log level; migrate; purge --dry-run
log level debug --process worker --for 2s; doctor; drill list; --version
"""
# Many commands in one process: most of the time of one is its start.
EACH = """
import json, sys
from ops.cli import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    print(f"\\x1f{status}\\x1e", end="", flush=True)
"""


@pytest.mark.exhaustive
async def test_no_command_speaks_python_to_people(service: Service) -> None:
    message = command(service, "send", "--to", "read@people.test", "--json").json["id"]

    async def is_there() -> bool:
        return bool(arrived(service, "read@people.test"))

    await until(is_there)
    filled = READ.format(message=message, account=service.first_run["accountId"], domain=f"{message[4:]}.test")
    lines = [line.strip() for line in re.split("[;\n]", filled) if line.strip()]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps([line.split() for line in lines])],
        check=False, cwd=ROOT, env=service.environ, text=True, timeout=2 * TYPED_S,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip

    printed = done.stdout.split("\x1e")[:-1]
    assert len(printed) == len(lines), done.stdout[-2_000:]
    for line, text in zip(lines, printed, strict=True):
        shown, _, status = text.rpartition("\x1f")
        assert status == "0", f"ops {line}\n{shown}"
        assert not PYTHONIC.search(shown), f"ops {line}\n{shown}"


async def test_mail_of_every_account_is_found_by_its_id_and_by_the_accounts_name(service: Service) -> None:
    made = service.first_run
    other = command(service, "account", "create", "--name", "Other & Co", "--email", "o@mail.test", "--json").json
    key = command(service, "key", "create", "--account", other["accountId"], "--json").json
    command(service, "domain", "add", "--account", other["accountId"], "--name", "other.test", "--verified")
    theirs = command(
        service, "send", "--key", key["apiKey"], "--from", "a@other.test", "--to", "x@people.test", "--json"
    ).json["id"]
    ours = command(service, "send", "--to", "y@people.test", "--json").json["id"]

    everybodys = command(service, "messages", "--all", "--limit", "100", "--json").json
    named = command(service, "messages", "--account", "other & co", "--json").json
    opened = command(service, "message", "--all", theirs, "--json").json

    assert {(theirs, other["accountId"]), (ours, made["accountId"])} <= {
        (one["id"], one["accountId"]) for one in everybodys
    }
    assert [(one["id"], one["to"]) for one in named] == [(theirs, ["x@people.test"])]
    assert (opened["accountId"], opened["waybill"][0]["type"]) == (other["accountId"], "accepted")
    assert command(service, "message", "--account", made["accountId"], theirs).status == 1
    unknown = command(service, "messages", "--account", "Nobody")
    assert (unknown.status, unknown.err) == (
        1, "Error: No account is named 'Nobody'. `ops account list` shows names and ids.\n"
    )  # fmt: skip


async def test_a_mail_of_the_sink_is_shown_with_its_links(service: Service) -> None:
    html = '<p>Go <a href="https://a.example/x?y=1&amp;z=2">here</a></p>'
    text = "See https://b.example/confirm?token=abc. Bye"
    command(service, "send", "--to", "links@people.test", "--subject", "Wörds", "--text", text, "--html", html)

    async def is_there() -> bool:
        return bool(arrived(service, "links@people.test"))

    await until(is_there)
    (entry,) = arrived(service, "links@people.test")
    shown = command(service, "sink", "show", entry.id, "--json").json
    read = command(service, "sink", "show", entry.id).out

    assert shown["links"] == ["https://b.example/confirm?token=abc", "https://a.example/x?y=1&z=2"]
    assert {"name": "Subject", "value": "Wörds"} in shown["headers"]
    assert shown["envelope"]["to"] == ["links@people.test"]
    assert text in read
    assert "  https://a.example/x?y=1&z=2\n" in read
    missing = command(service, "sink", "show", "nothing")
    assert (missing.status, "LAST" in missing.err) == (1, True)


@pytest.mark.exhaustive
async def test_a_log_level_is_changed_while_it_runs_and_ends_by_itself(service: Service) -> None:
    log = service.state / "log" / "worker.log"

    def jobs() -> int:
        return log.read_text().count('"event":"job done"')

    async def is_debugging() -> bool:
        return jobs() > before

    async def is_over() -> bool:
        rows = command(service, "log", "level", "--json").json
        return [row["level"] for row in rows if row["process"] == "worker"] == ["default"]

    before = jobs()
    changed = command(service, "log", "level", "debug", "--process", "worker", "--for", "4s", "--json").json
    await until(is_debugging)
    await until(is_over)

    levels = {row["process"]: row["level"] for row in changed}
    assert levels["worker"] == "debug"
    assert {level for name, level in levels.items() if name != "worker"} == {"default"}
    refused = command(service, "log", "level", "debug", "--process", "wrker")
    assert (refused.status, "There are: api, relay-1" in refused.err) == (1, True)
