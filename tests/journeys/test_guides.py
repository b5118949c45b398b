"""Every sample of the guides that says `run` is run beside the running service, guide after guide."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from api.http import service_addresses
from engine.base.scopes import SCOPES
from loadtests.kit.service import Service
from tests.harness.accounts import make_account
from tests.harness.guides import GuideSample, GuideText, guides

pytestmark = pytest.mark.journey

GUIDE_S = 60.0
PROGRAMS = {"python": ("py", sys.executable), "js": ("mjs", "node"), "php": ("php", "php")}
MARK = "\x1e"
# A sample ends with the first command that fails; an answer of the API that is an error is a failure.
PREAMBLE = 'set -euo pipefail\ncurl() { command curl --fail-with-body --max-time 20 "$@"; }\n'


def runnable(sample: GuideSample) -> bool:
    return sample.runs and (sample.language == "sh" or shutil.which(PROGRAMS[sample.language][1]) is not None)


class GuideShell:
    """A shell beside the service, in a folder of its own, in which `python3` is this Python."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python3").chmod(0o755)
        self._environ = os.environ | {
            "KEY": str(service.first_run["apiKey"]),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(python_client(service, folder)),
            "NO_PROXY": "*",
        }
        self._settings = service.settings

    def run(self, samples: list[GuideSample], **environ: str) -> tuple[int, list[str]]:
        """Run the samples of one guide in one shell, so that variables stay; return its status and what each
        printed.
        """
        commands = [f"{self._command(place, sample)}\nprintf '{MARK}'\n" for place, sample in enumerate(samples)]
        done = subprocess.run(
            ["bash", "-c", PREAMBLE + "".join(commands)],
            check=False, cwd=self._folder, env=self._environ | environ, text=True, timeout=GUIDE_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout.split(MARK)

    async def run_as_another_account(
        self, pool: asyncpg.Pool, samples: list[GuideSample], *, plan: str = "scale", scopes: Collection[str] = SCOPES
    ) -> tuple[int, list[str]]:
        """Run the samples with a key and a domain of a new account of its own."""
        account = await make_account(pool, plan=plan, scopes=scopes, pepper=self._settings.pepper)
        own = [structs.replace(one, text=one.text.replace("hello.test", account.domain)) for one in samples]
        return await asyncio.to_thread(self.run, own, KEY=account.token)

    def _command(self, place: int, sample: GuideSample) -> str:
        text = service_addresses.filled(sample.text, self._settings)
        if sample.language == "sh":
            return text
        ending, program = PROGRAMS[sample.language]
        file = self._folder / f"{sample.guide}-{place}.{ending}"
        file.write_text(text)
        return f'"{program}" "{file}"'


def python_client(service: Service, folder: Path) -> Path:
    """Download the wheel of the Python client, which Python can import from as it is."""
    with urllib.request.urlopen(f"{service.base_url}/sdk/simple/waybill-client/", timeout=GUIDE_S) as answer:
        found = re.search(r'href="([^"#]+/([^"/#]+\.whl))', answer.read().decode())
    assert found
    with urllib.request.urlopen(f"{service.base_url}/sdk/{found[2]}", timeout=GUIDE_S) as answer:
        (folder / found[2]).write_bytes(answer.read())
    return folder / found[2]


@pytest.mark.exhaustive
def test_each_sample_runs_and_answers_what_the_guide_shows(service: Service, tmp_path: Path) -> None:
    shell = GuideShell(service, tmp_path)
    for guide in guides().values():
        samples = [one for one in guide.samples if runnable(one)]
        if not samples:
            continue
        status, printed = shell.run(samples)
        assert status == 0, f"{samples[min(len(printed), len(samples)) - 1]}\n{printed[-1]}"
        answers = dict(zip(samples, printed, strict=False))
        for sample, shown in shown_answers(guide.samples):
            if sample in answers:
                missing = paths(json.loads(shown.text)) - paths(last_json(answers[sample]))
                assert not missing, f"{shown}: the answer has no {missing}\n{answers[sample]}"


@pytest.mark.exhaustive
async def test_the_first_sample_runs_on_the_free_plan_or_the_guide_says_what_it_needs(
    service: Service, tmp_path: Path
) -> None:
    shell = GuideShell(service, tmp_path)
    async with asyncpg.create_pool(service.database_url, min_size=1, max_size=1) as pool:
        for guide in guides().values():
            for first in with_a_key(guide)[:1]:
                status, printed = await shell.run_as_another_account(pool, [first], plan="free")
                needs = opening(guide)
                assert status == 0 or "Free" in needs, f"{first} needs a larger plan, and does not say so: {printed}"


@pytest.mark.exhaustive
@pytest.mark.timeout(400)  # it runs the samples of all guides
async def test_the_scopes_that_a_guide_asks_for_are_enough_for_its_samples(service: Service, tmp_path: Path) -> None:
    shell = GuideShell(service, tmp_path)
    async with asyncpg.create_pool(service.database_url, min_size=1, max_size=1) as pool:
        for guide in guides().values():
            scopes = SCOPES.intersection(re.findall(r"`([a-z]+:[a-z]+)`", opening(guide)))
            if scopes:
                status, printed = await shell.run_as_another_account(pool, with_a_key(guide), scopes=scopes)
                assert status == 0, f"{guide.slug}.md asks for {sorted(scopes)}: {printed}"


def opening(guide: GuideText) -> str:
    """Return the text before the first sample, which says what the reader needs."""
    return guide.text.partition("```")[0]


def with_a_key(guide: GuideText) -> list[GuideSample]:
    """Return the samples to run, without SMTP: its connections without a login are of the first run's account."""
    return [one for one in guide.samples if runnable(one) and "smtp://" not in one.text]


def shown_answers(samples: list[GuideSample]) -> Iterator[tuple[GuideSample, GuideSample]]:
    """Pairs of a sample in shell and the JSON right after it, which shows the end of what it prints.

    JSON with the word `event` shows what a webhook gets.
    """
    last: GuideSample | None = None
    for sample in samples:
        if "event" in sample.words:
            continue
        if sample.language == "json" and last is not None:
            yield last, sample
        last = sample if sample.runs and sample.language == "sh" else None if sample.language == "json" else last


def last_json(printed: str) -> Any:
    """The last JSON value of several that were printed one after the other."""
    decoder, text, found = json.JSONDecoder(), printed.strip(), None
    while text:
        found, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
    return found


def paths(value: Any, above: str = "") -> set[str]:
    """The names of all members, each with the names above it."""
    if isinstance(value, dict):
        return {path for name, one in value.items() for path in {f"{above}.{name}", *paths(one, f"{above}.{name}")}}
    if isinstance(value, list):
        return {path for one in value for path in paths(one, f"{above}[]")}
    return set()


def test_most_guides_have_a_sample_that_runs() -> None:
    without = {slug for slug, guide in guides().items() if not any(sample.runs for sample in guide.samples)}
    # Frameworks, operators' guides and test-your-emails have tests of their own; dns-providers is about other services,
    # and reliability has the figures of a proof.
    assert without <= {
        "django", "dns-providers", "errors", "express", "fastapi", "flask", "glossary", "go", "incidents", "index",
        "laravel", "nextjs", "operating", "production", "rails", "reliability", "second-host", "spring",
        "test-your-emails",
    }  # fmt: skip
