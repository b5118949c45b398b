"""Read the guides: Markdown files with a block of facts before the text."""

from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from engine.base.version import with_command

FOLDER: Final = Path(__file__).parent / "guides"
SECTIONS: Final = (
    "Start", "Send", "Receive", "Audience", "Events", "Account", "Operate", "Migrate", "Reference",
)  # fmt: skip
_FENCE: Final = "---\n"


class Guide(Struct, frozen=True):
    """One page of text. `order` sorts within the section; `text` is Markdown with headings from the second level."""

    slug: str
    title: str
    description: str
    section: str
    order: int
    text: str


@cache
def guides() -> tuple[Guide, ...]:
    """Return all guides in the order of the navigation."""
    found = [guide(path.stem, with_command(path.read_text("utf-8"))) for path in FOLDER.glob("*.md")]
    return tuple(sorted(found, key=lambda one: (SECTIONS.index(one.section), one.order, one.title)))


def guide(slug: str, source: str) -> Guide:
    """Return the guide of a file's text. Raises ValueError if the facts before the text are incomplete."""
    start, head, text = source.split(_FENCE, 2)
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    if start or set(facts) != {"title", "description", "section", "order"} or facts["section"] not in SECTIONS:
        raise ValueError(f"{slug}.md must begin with title, description, section (one of {SECTIONS}) and order")
    return Guide(slug, facts["title"], facts["description"], facts["section"], int(facts["order"]), text.strip() + "\n")
