"""Errors say in plain words what is wrong, why, and what to do next, in at most 25 words."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from api.docs.error_texts import ERROR_TEXTS
from engine.base.errors import ErrorType
from ops.host.process_specs import ROOT

MAX_WORDS: Final = 25
# Words of another English, each with the one to use.
BANNED: Final = {
    r"by itself": "automatically", r"for good": "permanently", r"anew": "again", r"meanwhile": "since then",
    r"(a|one|two|each|the) mails?(?! \w)|mails": "email", r"is no(?! longer)": "isn't", r"stands?": "appears, is",
    r"takes?": "accepts", r"holds?": "contains", r"is away": "is unreachable",
    r"leave it alone": "say what to do", r"could tell": "leave it out", r"lift(?:s|ed)?": "remove",
    r"in place of": "instead of", r"answers?(?:ed)?": "response", r"on this account": "in this account",
    r"the most that": "the maximum", r"are possible": "the limit is", r"nobody knows": "say who", r"mend": "fix",
    r"former": "previous", r"tells?": "shows", r"upgrade the plan": "upgrade your plan",
    r"this account(?! is suspended, so nobody)(?<!member of this account)": "your account",
}  # fmt: skip
_BANNED: Final = re.compile(r"\b(?:" + "|".join(BANNED) + r")\b", re.IGNORECASE)
_CODE: Final = re.compile(r"`[^`]*`|/[^/\s]*/\S*")
_RAISERS: Final = {"invalid", "Refusal", "_invalid_state", "limit_reached", "refusal", "_fault", "BadAddress"}


def words(text: str) -> int:
    """Return the number of words; a name in backticks and a value are one each."""
    return len(re.findall(r"\S*\w\S*", re.sub(r"`[^`]*`", "code", text)))


def plain(text: str) -> str:
    """Return a text without its code words."""
    return _CODE.sub("code", text)


def sentences() -> Iterator[tuple[str, str]]:
    """Yield place and text of each refusal that the code words; a value that it puts in is one word."""
    for folder in ("api", "engine", "mta/submission"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and _name(node) in _RAISERS:
                    texts = [text for one in node.args if (text := _text(one)) is not None and " " in text]
                    yield from ((f"{path.relative_to(ROOT)}:{node.lineno}", text) for text in texts)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
    return None


SENTENCES: Final = list(sentences())


def test_the_refusals_of_the_code_are_found() -> None:
    assert len(SENTENCES) > 300


def test_a_refusal_has_at_most_25_words() -> None:
    assert {place: (words(text), text) for place, text in SENTENCES if words(text) > MAX_WORDS} == {}


def test_a_refusal_has_no_word_of_another_english() -> None:
    found = {place: (match[0], text) for place, text in SENTENCES if (match := _BANNED.search(plain(text)))}
    assert found == {}


@pytest.mark.parametrize("kind", ErrorType)
def test_the_explanation_of_a_type_is_short_plain_and_says_what_to_do(kind: ErrorType) -> None:
    explained = ERROR_TEXTS[kind]
    for text in explained:
        assert words(text) <= MAX_WORDS, text
        assert not _BANNED.search(plain(text)), text
    assert words(explained.remedy) > 5, explained.remedy
