"""The search of the documentation: plain queries find the page that answers them, in the script that readers run."""

import json
import subprocess
from shutil import which
from typing import Any

import pytest

from api.docs.guides import guides
from api.docs.search_index import IndexedPage, IndexedSection, index
from api.docs.site import FILES, DocumentationSite, SiteBuilder
from api.routes import client_document
from engine.base.settings import load
from tests.harness.docs_queries import queries, wrong

MAX_INDEX_BYTES = 66_000  # compressed, about 1 KB per guide: the console loads it too, when somebody searches
NODE = which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node runs the script; tests/browser runs it in Chromium")
_RUN = """
import { readFileSync } from "node:fs";
const { nearly, searcher, stem } = await import(process.argv[1]);
const { index, texts, words, pairs } = JSON.parse(readFileSync(0, "utf8"));
const search = searcher(index);
console.log(JSON.stringify({
  found: texts.map((text) => search(text)),
  stems: words.map(stem),
  near: pairs.map(([one, other]) => nearly(one, other)),
}));
"""


@pytest.fixture(scope="module")
def site() -> DocumentationSite:
    settings = load({"WAYBILL_PUBLIC_URL": "https://waybill.test"}).settings
    return SiteBuilder(client_document(settings), settings).build()


def run(found: bytes, **given: Any) -> dict[str, Any]:
    """Return what the script makes of texts, words and pairs of words."""
    assert NODE
    told = {"index": json.loads(found), "texts": [], "words": [], "pairs": [], **given}
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", _RUN, (FILES / "search.js").as_uri()],
        input=json.dumps(told), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def page(slug: str, title: str, *sections: IndexedSection, group: str = "Send") -> IndexedPage:
    return IndexedPage(f"/docs/{slug}", title, "A page.", group, (IndexedSection("", title, ""), *sections))


def first(pages: list[IndexedPage], *texts: str) -> list[str | None]:
    found = run(index(pages), texts=list(texts))["found"]
    return [results[0]["address"] if results else None for results in found]


@needs_node
def test_each_plain_query_finds_its_page_first(site: DocumentationSite) -> None:
    asked = queries()
    assert len(asked) >= 60
    found = run(site.files["/docs/search.json"].plain, texts=list(asked))["found"]
    assert wrong(asked, dict(zip(asked, found, strict=True))) == {}


def test_queries_name_pages_of_the_site_and_spread_over_all_guides(site: DocumentationSite) -> None:
    named = {page for pages in queries().values() for page in pages}
    assert {guide.slug for guide in guides()} - named <= {"index"}
    unanswered = [text for text, pages in queries().items()
                  if not any(f"/docs/{page}" in site.files for page in pages)]  # fmt: skip
    assert unanswered == []


def test_the_index_is_small(site: DocumentationSite) -> None:
    assert len(site.files["/docs/search.json"].content) <= MAX_INDEX_BYTES


@needs_node
def test_forms_of_a_word_share_a_stem() -> None:
    families = [
        ["verify", "verifies", "verified", "verification", "verifying"], ["retry", "retries", "retried"],
        ["suppress", "suppression", "suppressions", "suppressed"], ["migrate", "migration", "migrating"],
        ["bounce", "bounces", "bounced", "bouncing"], ["schedule", "scheduled", "scheduling"],
        ["deliver", "delivery", "deliveries", "deliverability"], ["batch", "batches"], ["erase", "erasure", "erasing"],
    ]  # fmt: skip
    words = [word for family in families for word in family]
    stems = dict(zip(words, run(index([page("a", "A")]), words=words)["stems"], strict=True))
    assert [family for family in families if len({stems[word] for word in family}) > 1] == []
    assert len(set(stems.values())) == len(families)


@needs_node
@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("webhok", "webhook", True), ("webhoook", "webhook", True), ("webhpok", "webhook", True),
        ("wehbook", "webhook", True), ("wbhok", "webhook", False), ("webhooks", "web", False),
    ],
)  # fmt: skip
def test_a_typo_is_one_letter_missing_added_replaced_or_exchanged(one: str, other: str, near: bool) -> None:
    assert run(index([page("a", "A")]), pairs=[(one, other)])["near"] == [near]


@needs_node
def test_a_rare_word_weighs_more_and_not_all_words_must_occur() -> None:
    pages = [
        page("gifts", "Gifts", IndexedSection("wrap", "Wrap them", "paper ribbon")),
        *(page(f"plain-{number}", f"Paper {number}", group="Send") for number in range(6)),
    ]
    found = first(pages, "paper ribbon", "ribbon unheard-of", "unheard-of")
    assert found == ["/docs/gifts#wrap", "/docs/gifts#wrap", None]


@needs_node
def test_titles_come_before_headings_and_headings_before_text() -> None:
    text = page("text", "One", IndexedSection("a", "Any", "tulip"))
    heading = page("heading", "Two", IndexedSection("b", "Tulip", ""))
    title = page("title", "Tulip")
    assert first([text, heading, title], "tulip") == ["/docs/title"]
    assert first([text, heading], "tulip") == ["/docs/heading#b"]


@needs_node
def test_guides_come_first_for_plain_words_and_identifiers_before_all() -> None:
    guide = page("mail", "Send an email")
    operation = IndexedSection("post-v1-emails", "Send an email", "", ("sendEmail", "POST /v1/emails"), ("deliverBy",))
    reference = page("api/other", "Mail", operation, group="API")
    address = "/docs/api/other#post-v1-emails"
    assert first([reference, guide], "send an email now") == ["/docs/mail"]
    asked = ("sendEmail", "post /v1/emails", "/v1/emails", "deliverBy")
    assert first([guide, reference], *asked) == [address] * len(asked)
