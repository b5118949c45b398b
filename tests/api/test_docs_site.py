"""The documentation as served: every page small, whole and linked, with its Markdown copy; guides that compile."""

import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from shutil import which
from urllib.parse import urldefrag

import pytest

from api.console.assets import FILES as CONSOLE
from api.docs.error_texts import ERROR_TEXTS
from api.docs.guides import FOLDER, guide, guides
from api.docs.markdown import render
from api.docs.samples import FOREIGN
from api.docs.site import CHANGELOG, DEPLOY, DocumentationSite, SiteBuilder
from api.http.client_names import client_method, python_name
from api.http.service_addresses import filled
from api.http.static_files import PAGE_POLICY
from api.routes import client_document
from engine.base.errors import ErrorType
from engine.base.settings import Settings, load
from tests.harness.api import Api

BASE = "https://waybill.test"
DEFAULT_PORT = re.compile(r"(?<![\d.,])(?:8080|2525|2587|2465|9090|2600|2653)(?![\d,])")
MAX_PAGE_BYTES = 45_000  # compressed
CHECKERS = {"php": ["php", "-l"], "ruby": ["ruby", "-c"]}
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site() -> DocumentationSite:
    settings = load({"WAYBILL_PUBLIC_URL": BASE, "WAYBILL_PORT_BASE": "18080"}).settings
    return SiteBuilder(client_document(settings), settings).build()


class Page(HTMLParser):
    """The anchors, links and first-level headings of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: list[str] = []
        self.links: list[str] = []
        self.headings = 0
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.headings += tag == "h1"
        if known.get("id"):
            self.anchors.append(str(known["id"]))
        if tag == "a" and known.get("href"):
            self.links.append(str(known["href"]))
        if tag == "script":
            self.scripts.append(known.get("src") or "inline")


@pytest.fixture(scope="module")
def pages(site: DocumentationSite) -> dict[str, Page]:
    return {path: Page(file.plain.decode()) for path, file in site.files.items() if file.media.startswith("text/html")}


@pytest.mark.exhaustive
def test_every_page_is_small_and_has_one_title(site: DocumentationSite, pages: dict[str, Page]) -> None:
    assert len(pages) > 60
    assert {path: page.headings for path, page in pages.items() if page.headings != 1} == {}
    assert {path for path in pages if len(site.files[path].content) > MAX_PAGE_BYTES} == set()


def test_every_anchor_is_unique_and_every_link_of_the_site_leads_somewhere(
    site: DocumentationSite, pages: dict[str, Page]
) -> None:
    for path, page in pages.items():
        assert len(set(page.anchors)) == len(page.anchors), path
        assert page.scripts == [one for one in page.scripts if one.startswith("/docs-files/")], path
        for link in page.links:
            target, anchor = urldefrag(link)
            if target.startswith((BASE + "/v1", "http", "mailto:", "/console")):
                continue
            assert (target or path) in site.files, f"{path} links to {link}"
            if anchor:
                assert anchor in pages[target or path].anchors, f"{path} links to {link}"


def test_every_page_has_a_copy_in_markdown_and_stands_in_the_lists(
    site: DocumentationSite, pages: dict[str, Page]
) -> None:
    listed = site.files["/llms.txt"].plain.decode()
    whole = site.files["/llms-full.txt"].plain.decode()
    for path in pages:
        twin = "/docs/index.md" if path == "/docs" else f"{path}.md"
        text = site.files[twin].plain.decode()
        assert text.startswith("# "), twin
        if not path.startswith(("/docs/decisions/", "/docs/not-found")):
            assert f"({BASE}{twin})" in listed, twin
            assert text.strip() in whole, twin


def test_the_search_index_has_the_sections_by_their_address(site: DocumentationSite, pages: dict[str, Page]) -> None:
    found = json.loads(site.files["/docs/search.json"].plain)
    for number, title, *names in found["sections"]:
        anchor = re.sub(r"[^a-z0-9]+", "-", names[1].lower()).rstrip("-") if len(names) > 1 else names[0]
        path = found["pages"][number][0]
        assert path in pages, title
        assert not anchor or anchor in pages[path].anchors, (path, title)


def test_pages_name_the_ports_of_the_running_service(site: DocumentationSite) -> None:
    past_or_defaults = (
        "/docs/decisions/", "/docs/operating/settings", "/docs/search.json", "/llms", "/docs/llms", "/docs/deploy/",
        "/docs/changelog",
    )  # fmt: skip
    texts = {path: file.plain.decode("utf-8", "replace") for path, file in site.files.items()}
    wrong = {path: found[0] for path, text in texts.items()
             if not path.startswith(past_or_defaults) and (found := DEFAULT_PORT.search(text))}  # fmt: skip
    assert not wrong
    assert "smtp://127.0.0.1:18081" in texts["/docs/smtp.md"]
    assert 'smtplib.SMTP("127.0.0.1", 18081' in texts["/docs/smtp.md"]
    assert "smtp://127.0.0.1:18083" in texts["/docs/inbound.md"]
    assert "--server 127.0.0.1:18083" in texts["/docs/operating/inbound.md"]


def test_the_changelog_is_a_page_with_dated_versions(site: DocumentationSite, pages: dict[str, Page]) -> None:
    text = site.files["/docs/changelog.md"].plain.decode()
    versions = re.findall(r"^## (\S+) \((\d{4}-\d{2}-\d{2})\)$", text, re.MULTILINE)

    assert versions
    assert versions == re.findall(r"^## (\S+) \((\S+)\)$", CHANGELOG.read_text("utf-8"), re.MULTILINE)
    assert any("changelog" in link for link in pages["/docs/api-conventions"].links)


def test_the_files_for_an_installation_are_served_as_text(site: DocumentationSite) -> None:
    served = {path: file for path, file in site.files.items() if path.startswith("/docs/deploy/")}
    kept = [one for one in DEPLOY.rglob("*") if one.is_file() and one.suffix != ".md"]

    assert len(served) == len(kept) > 20
    for one in kept:
        file = served[f"/docs/deploy/{one.relative_to(DEPLOY).as_posix()}"]
        assert (file.media, file.plain) == ("text/plain; charset=utf-8", one.read_bytes())


def test_the_console_names_no_default_port() -> None:
    files = [path for path in (CONSOLE / "app").rglob("*") if path.suffix in {".js", ".css", ".html"}]
    assert len(files) > 100
    assert not [path.name for path in files if DEFAULT_PORT.search(path.read_text("utf-8"))]


def test_every_type_of_error_is_explained(pages: dict[str, Page]) -> None:
    assert set(ERROR_TEXTS) == set(ErrorType)
    assert {kind.value for kind in ErrorType} <= set(pages["/docs/errors"].anchors)


def test_a_section_of_the_reference_is_found_by_its_path_and_by_its_name(pages: dict[str, Page]) -> None:
    assert {"post-v1-emails", "sendEmail"} <= set(pages["/docs/api/emails"].anchors)


def test_operations_have_different_names_in_the_clients() -> None:
    named: dict[tuple[str, str], str] = {}
    for path, methods in json.loads(client_document(Settings(public_url=BASE)))["paths"].items():
        for method, described in methods.items():
            if {"apiKey": []} in described["security"] and not path.startswith(FOREIGN):
                name = client_method(method.upper(), path)
                assert name.method.isidentifier(), path
                assert name not in named, f"{method} {path} and {named[name]}"
                named[name] = f"{method} {path}"
    assert client_method("POST", "/v1/emails") == ("emails", "send")
    assert client_method("POST", "/v1/domains/{id}/verify") == ("domains", "verify")
    assert client_method("GET", "/v1/inbound/messages/{id}") == ("inbound_messages", "get")
    assert (python_name("from"), python_name("scheduledAt")) == ("from_", "scheduled_at")


def test_markup_in_a_text_is_shown_and_never_interpreted() -> None:
    html = render("# <b>x</b> \n\n<script>alert(1)</script> [a](javascript:alert)\n", lambda target: None).html
    assert "<script" not in html
    assert "<b>" not in html
    assert 'href="javascript' not in html


def test_a_guide_without_its_facts_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with title"):
        guide("x", "---\ntitle: X\n---\ntext\n")


def fences() -> Iterator[tuple[str, str, str]]:
    for one in guides():
        for language, code in FENCE.findall(filled(one.text, Settings(public_url=BASE))):
            yield f"{one.slug}.md", language, code


def test_the_samples_of_the_guides_can_be_read() -> None:
    """Python compiles, JSON loads, shell and JavaScript parse; so do PHP and Ruby, where they are installed."""
    javascript: list[str] = []
    for place, language, code in fences():
        if language == "python":
            compile(code, place, "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT
        elif language == "json":
            json.loads(code)
        elif language == "sh":
            parsed = subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True, check=False)
            assert parsed.returncode == 0, f"{place}: {parsed.stderr}"
        elif language == "js":
            javascript.append(code)
        elif language in CHECKERS and which(CHECKERS[language][0]):
            parsed = subprocess.run(CHECKERS[language], input=code, text=True, capture_output=True, check=False)
            assert parsed.returncode == 0, f"{place}: {parsed.stdout}{parsed.stderr}"
    assert javascript
    if which("node"):
        for code in javascript:
            parsed = subprocess.run(
                ["node", "--check", "--input-type=module", "-"], input=code, text=True, capture_output=True, check=False
            )
            assert parsed.returncode == 0, f"{code}\n{parsed.stderr}"


def test_guides_are_named_by_their_address() -> None:
    assert all(re.fullmatch(r"[a-z0-9-]+\.md", path.name) for path in FOLDER.iterdir())


async def test_pages_are_served_with_their_policy_and_asked_for_by_their_tag(api: Api) -> None:
    answer = await api.get("/docs/errors")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert answer.headers["cache-control"] == "no-cache"
    again = await api.get("/docs/errors", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status == 304
    twin = await api.get("/docs/errors.md")
    assert twin.headers["content-type"] == "text/markdown; charset=utf-8"
    assert (await api.get("/llms.txt")).status == 200
    missing = await api.get("/docs/nothing-here")
    assert missing.status == 404
    assert missing.headers["content-type"].startswith("text/html")


async def test_every_refusal_names_its_explanation(api: Api) -> None:
    for path in ("/v1/messages", "/v1/nothing"):
        answer = await api.get(path)
        error = answer.json["error"]
        assert error["docs"].endswith(f"/docs/errors#{error['type']}")


def test_the_colours_are_those_of_the_console() -> None:
    def tokens(path: str) -> dict[str, str]:
        return dict(
            re.findall(r"^\s*(--[\w-]+): ([^;]+);", (FOLDER.parents[1] / path).read_text("utf-8"), re.MULTILINE)
        )

    console, docs = tokens("console/files/app/console.css"), tokens("docs/files/docs.css")
    assert docs.items() <= console.items()
