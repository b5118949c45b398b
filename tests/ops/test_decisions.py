"""The index of decisions lists every page, and every number that code or documents cite has a page."""

import re
from pathlib import Path

from ops.host.process_specs import ROOT

DECISIONS = ROOT / "ops" / "decisions"
PAGES = {path.name[:4]: path for path in sorted(DECISIONS.glob("[0-9]*.md"))}
FOLDERS = ("api", "engine", "loadtests", "mta", "ops", "shards", "tests")
CITED = re.compile(r"\bdecisions?[ /](\d{4}(?:(?:, | and )\d{4})*)")
LINKED = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")


def sources() -> list[Path]:
    """Return the files of the repository that may cite a decision."""
    found = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".sql", ".toml"} and path.parent.name != "migrations"  # these never change
    ]
    return [*found, *papers()]


def papers() -> list[Path]:
    """Return the Markdown files whose links are paths in the repository; links of guides are paths of the site."""
    folders = (ROOT / "ops", ROOT / "loadtests")
    return [*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]


def test_the_index_lists_every_decision_once() -> None:
    index = (DECISIONS / "README.md").read_text("utf-8")
    listed = re.findall(r"^- \[\d{4}\]\((\S+)\): \S", index, re.MULTILINE)

    assert sorted(listed) == [path.name for path in PAGES.values()]


def test_a_decision_has_a_number_of_its_own_that_its_title_repeats() -> None:
    assert len(PAGES) == len(list(DECISIONS.glob("[0-9]*.md")))
    for number, path in PAGES.items():
        assert path.read_text("utf-8").startswith(f"# {number} · "), path.name


def test_every_cited_decision_has_a_page() -> None:
    gone = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in sources()
        for numbers in CITED.findall(path.read_text("utf-8"))
        for number in re.findall(r"\d{4}", numbers)
        if number not in PAGES
    }

    assert not gone


def test_links_between_documents_lead_to_files() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in papers()
        for target in LINKED.findall(path.read_text("utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]

    assert not broken
