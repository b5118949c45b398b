"""The queries of readers of the documentation, each with the pages of which one must come first."""

from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(__file__).parents[1] / "data" / "docs-queries.tsv"


def queries() -> dict[str, list[str]]:
    """Return the pages by the text of the query."""
    lines = [line for line in _FILE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {text: pages.split(" ") for text, pages in (line.split("\t") for line in lines)}


def wrong(asked: dict[str, list[str]], found: dict[str, list[dict[str, Any]]]) -> dict[str, list[str]]:
    """Return the addresses that the search found first, for each query whose page is not the first of them."""
    return {
        text: [result["address"] for result in found[text][:3]]
        for text, pages in asked.items()
        if not found[text] or found[text][0]["address"].partition("#")[0].partition("/docs/")[2] not in pages
    }
