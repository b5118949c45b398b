"""Parse PromQL queries: metrics, labels that are selected or grouped by, and the selected values."""

import re

from msgspec import Struct

_WORDS = frozenset(
    {"sum", "max", "min", "avg", "count", "topk", "bottomk", "rate", "irate", "increase", "histogram_quantile"}
    | {"predict_linear", "time", "vector", "by", "without", "on", "ignoring", "or", "and", "unless", "offset", "bool"}
)
_TOKENS = re.compile(
    r"""(?P<text>"(?:\\.|[^"])*")|(?P<range>\[[^\]]*\])|(?P<name>[a-zA-Z_:][\w:]*)|(?P<number>\d[\w.]*)"""
    r"""|(?P<operator>=~|!~|!=|==|<=|>=|.)""",
    re.DOTALL,
)


class Match(Struct, frozen=True):
    """A label matcher: `operator` is =, !=, =~ or !~."""

    label: str
    operator: str
    value: str


class Selector(Struct):
    """A metric with its label matchers."""

    name: str
    matches: list[Match]


class Asked(Struct):
    """The metrics and labels of a query."""

    selectors: list[Selector]
    grouped: set[str]


def asked(query: str) -> Asked:
    """Read a query; what it can't place is taken for a metric, so that a test finds it."""
    tokens = [(match.lastgroup, match.group()) for match in _TOKENS.finditer(query) if not match.group().isspace()]
    found = Asked([], set())
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name":
            continue
        if text in ("by", "without", "on", "ignoring") and after == "(":
            end = _closing(tokens, at, ")")
            found.grouped |= {word for one, word in tokens[at:end] if one == "name"}
            at = end
        elif text not in _WORDS:
            matches: list[Match] = []
            if after == "{":
                end = _closing(tokens, at, "}")
                matches = _matches(tokens[at + 1 : end])
                at = end
            found.selectors.append(Selector(text, matches))
    return found


def _closing(tokens: list[tuple[str | None, str]], at: int, sign: str) -> int:
    while tokens[at][1] != sign:
        at += 1
    return at + 1


def _matches(tokens: list[tuple[str | None, str]]) -> list[Match]:
    names = [index for index, (kind, _) in enumerate(tokens) if kind == "name"]
    return [Match(tokens[at][1], tokens[at + 1][1], tokens[at + 2][1].strip('"')) for at in names]
