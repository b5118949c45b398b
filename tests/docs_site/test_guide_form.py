"""The guides as help: each says its outcome first, shows a response, ends with the next step, and is easy to read."""

import re
from collections.abc import Iterator

import pytest

from tests.harness.guides import GuideText, guides

EVERY_GUIDE = pytest.mark.parametrize("guide", guides().values(), ids=list(guides()))
MAX_MEAN_WORDS = 15.0  # words of a sentence, on average
MAX_SENTENCE_WORDS = 36
MAX_CELL_WORDS = 26
MAX_TABLE_SHARE = 0.45  # of all words; it was 0.71 when rules with conditions stood in cells
WITHOUT_A_RESPONSE = {"glossary"}
_TABLE_HEAD = re.compile(r"^\|(.+)\|\n\|[-:| ]+\|$", re.MULTILINE)
_WORD = re.compile(r"[\w'’.-]*\w")
BANNED = {
    r"\bby (itself|themselves)\b": "automatically",
    r"\bfor good\b": "permanently",
    r"\b(an?|one|each|every|this|another|two|no|the) mail\b(?! (app|client|host|program|provider|server)s?\b)": "email",
    r"\bmails\b": "emails, sends",
    r"\banswer(s|ed|ing)?\b": "response; a mail server replies",
    r"\bhold(s|ing)? for\b": "apply to",
    r"\b(stand|stands|standing) (in|beside|alone|there|here)\b": "be, appear",
    r"\banew\b": "again",
    r"\bin place of\b": "instead of",
    r"\bdivided by\b": "separated by",
    r"\bformer\b": "previous",
    r"\bmeanwhile\b": "since then",
    r"\bis away\b": "is unavailable",
    r"\b(lift|lifts|lifted)\b": "remove",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\b(object|recipients?|requests?|row|key) a (line|message|call|batch|list|URL)\b": "per",
    r"\b(everybody|whoever|whom)\b": "name who acts",
    r"\bFacts\b": "Limits and behavior",
    r"\bends badly\b": "thresholds",
    r"\bworth a (repeat|retry)\b": "Retry ...",
    r"\b(go|goes|went) on\b": "continue",
    r"\btells? (of|whether)\b": "show, check whether",
    r"\bleads? to\b": "open",
    r"\btakes (up to|at most|no)\b": "accepts",
}


def prose(guide: GuideText) -> str:
    """Return the text of a guide outside of code, with links and code spans as single words."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", guide.prose)
    return re.sub(r"`[^`]*`", "code", text)


def sentences(guide: GuideText) -> Iterator[str]:
    """Yield the sentences of paragraphs, quotes and list items; headings and tables are no sentences."""
    plain = "\n".join("" if line.startswith(("|", "#")) else line for line in prose(guide).splitlines())
    for block in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.|>) ", plain, flags=re.MULTILINE):
        for sentence in re.split(r"(?<=[.?!])\**\s+", " ".join(block.split())):
            if _WORD.search(sentence):
                yield sentence


def cells(guide: GuideText) -> list[str]:
    """Return the texts of all cells, heads included."""
    rows = [line for line in prose(guide).splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
    return [cell.strip() for row in rows for cell in row.strip().strip("|").split("|")]


def length(text: str) -> int:
    return len(_WORD.findall(text))


@EVERY_GUIDE
def test_a_guide_opens_with_a_sentence(guide: GuideText) -> None:
    assert re.match(r"[A-Z][^|#>`]", guide.text), guide.text[:60]


@EVERY_GUIDE
def test_a_guide_ends_with_what_to_do_next(guide: GuideText) -> None:
    last = guide.text.rpartition("\n## ")[2]
    assert last.startswith("Next\n")
    assert "](" in last


@EVERY_GUIDE
def test_every_column_of_a_table_has_a_header(guide: GuideText) -> None:
    heads = [[cell.strip() for cell in found[1].split("|")] for found in _TABLE_HEAD.finditer(guide.prose)]
    assert [head for head in heads if not all(head)] == []


@EVERY_GUIDE
def test_a_guide_shows_a_response(guide: GuideText) -> None:
    shown = {sample.language for sample in guide.samples} & {"json", "text", "http"}
    assert shown or guide.slug in WITHOUT_A_RESPONSE


@EVERY_GUIDE
def test_samples_run_with_the_curl_of_old_systems(guide: GuideText) -> None:
    commands = [(str(one), line) for one in guide.samples for line in one.text.replace("\\\n", " ").splitlines()]
    assert [one for one, line in commands if "curl " in line and " --json " in line] == []


@EVERY_GUIDE
def test_a_first_sample_that_the_free_plan_refuses_says_what_it_needs(guide: GuideText) -> None:
    first = next((one.text for one in guide.samples if one.runs), "")
    if re.search(r"/v1/(streams|inbound/addresses|sub-accounts)\b.* -d ", first, re.DOTALL):
        assert "Starter" in guide.text.partition("```")[0]


@EVERY_GUIDE
def test_sentences_are_short(guide: GuideText) -> None:
    found = list(sentences(guide))
    assert sum(map(length, found)) / len(found) <= MAX_MEAN_WORDS
    assert [one for one in found if length(one) > MAX_SENTENCE_WORDS] == []


@EVERY_GUIDE
def test_rules_are_sentences_and_not_cells(guide: GuideText) -> None:
    assert [cell for cell in cells(guide) if length(cell) > MAX_CELL_WORDS] == []


def test_most_words_of_the_guides_are_outside_tables() -> None:
    inside = sum(length(cell) for guide in guides().values() for cell in cells(guide))
    outside = sum(length(one) for guide in guides().values() for one in sentences(guide))
    assert inside / (inside + outside) <= MAX_TABLE_SHARE


@EVERY_GUIDE
def test_words_are_those_of_the_field(guide: GuideText) -> None:
    text = " ".join(prose(guide).split())
    found = {match[0]: better for banned, better in BANNED.items() for match in re.finditer(banned, text)}
    assert found == {}
