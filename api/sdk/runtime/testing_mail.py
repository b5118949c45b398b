"""Mail as tests look at it: what a message became on the wire."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final

_URL: Final = re.compile(r"https?://[^\s<>\"')\]]+")
_CODE: Final = re.compile(r"(?<![\w/.-])\d{4,8}(?![\w/.-])")


@dataclass(frozen=True)
class TwinMail:
    """A mail that arrived in the sink. `raw` reads it as it was sent, signature and all."""

    id: str
    message_id: str
    sender: str
    recipients: list[str]
    subject: str
    text: str
    html: str
    headers: list[dict[str, str]]
    attachments: list[dict[str, Any]]
    raw: bytes = field(repr=False)

    @property
    def links(self) -> list[str]:
        """The links of the HTML, then those of the text, each once."""
        reader = _Links()
        reader.feed(self.html)
        return list(dict.fromkeys([*reader.found, *(one.rstrip(".,;:!?") for one in _URL.findall(self.text))]))

    @property
    def code(self) -> str:
        """The one number of 4 to 8 digits in the text; raises AssertionError if there is none or more than one."""
        found: list[str] = list(dict.fromkeys(_CODE.findall(self.text)))
        assert len(found) == 1, f"the text has {len(found)} numbers of 4 to 8 digits: {found}\n{self.text}"
        return found[0]

    def header(self, name: str) -> str | None:
        """Return the value of the first header field of this name, in any case; None if there is none."""
        for one in self.headers:
            if one["name"].lower() == name.lower():
                return one["value"]
        return None


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value and value.startswith("http")]


def mail_of(detail: dict[str, Any], raw: bytes) -> TwinMail:
    """Return the mail of a reply of `GET /v1/local/sink/{id}`."""
    return TwinMail(
        detail["id"], detail["messageId"], detail["envelope"]["from"], detail["envelope"]["to"],
        detail["subject"] or "", detail["text"] or "", detail["html"] or "", detail["headers"], detail["attachments"],
        raw,
    )  # fmt: skip
