"""Map the JSON body of Postmark's `POST /email` (also with template, also batches) to a body of Waybill.

Usage: python3 from_postmark.py [FILE]      reads FILE, or the standard input, and prints the body as JSON.

An object becomes the body of `POST /v1/emails`, a list (or an object with `Messages`) the body of
`POST /v1/emails/batch`. Fields that cannot be mapped are named on the standard error output; the exit status is then 1
and nothing is printed. Needs Python 3.11 and no package.
Fields of Postmark: https://postmarkapp.com/developer/api/email-api and …/templates-api
"""

import json
import re
import sys
from collections.abc import Iterator
from email.utils import formataddr, getaddresses
from pathlib import Path
from typing import Any

RENAMED = {"From": "from", "Subject": "subject", "HtmlBody": "html", "TextBody": "text", "TemplateAlias": "template"}
LISTS = {"To": "to", "Cc": "cc", "Bcc": "bcc"}
KNOWN = {*RENAMED, *LISTS, "ReplyTo", "Tag", "Metadata", "Headers", "Attachments", "MessageStream", "TemplateModel",
         "TrackOpens", "TrackLinks", "InlineCss"}  # fmt: skip
UNMAPPED = {"TemplateId": "templates have no numbers here; name the template with TemplateAlias"}
OFF = {"TrackOpens": (False, None), "TrackLinks": ("None", "", None), "InlineCss": (False, None)}
FILE_FIELDS = {"Name", "Content", "ContentType", "ContentID", "ContentLength"}
VALUES = (str, int, float)
MAX_TAG = 64
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)


def problems(email: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield a sentence for each field that has no counterpart."""
    email = {name: value for name, value in email.items() if value is not None}
    for name in [name for name in email if name not in KNOWN]:
        yield f"{place}{name}: {UNMAPPED.get(name, 'unknown field')}."
    for name, allowed in OFF.items():
        if email.get(name) not in allowed:
            yield f"{place}{name}: Waybill neither tracks nor rewrites; remove it or turn it off."
    if len(email.get("Tag") or "") > MAX_TAG:
        yield f"{place}Tag: a tag has at most {MAX_TAG} characters; put longer ones into Metadata."
    for name in ("MessageStream", "TemplateAlias"):
        if email.get(name) and not SLUG.fullmatch(email[name]):
            yield f"{place}{name}: names have lower-case letters, digits and hyphens, not {email[name]!r}."
    yield from header_problems(email.get("Headers") or [], place)
    for index, file in enumerate(email.get("Attachments") or []):
        for name in [name for name in file if name not in FILE_FIELDS]:
            yield f"{place}Attachments[{index}].{name}: unknown field."


def header_problems(headers: list[dict[str, str]], place: str) -> Iterator[str]:
    """Yield a sentence for each header that is given twice."""
    seen: set[str] = set()
    for index, header in enumerate(headers):
        name = header["Name"]
        if name.lower() in seen:
            yield f"{place}Headers[{index}].Name: {name} is given twice; Waybill accepts each header once."
        seen.add(name.lower())


def message(email: dict[str, Any]) -> dict[str, Any]:
    """Return the body of `POST /v1/emails` for an email without problems."""
    body: dict[str, Any] = {new: email[old] for old, new in RENAMED.items() if email.get(old)}
    body |= {new: addresses(email[old]) for old, new in LISTS.items() if email.get(old)}
    headers = {header["Name"]: header["Value"] for header in email.get("Headers") or []}
    if len(replies := addresses(email.get("ReplyTo") or "")) > 1:
        headers["Reply-To"] = ", ".join(replies)
    elif replies:
        body["replyTo"] = replies[0]
    if headers:
        body["headers"] = headers
    if email.get("Tag"):
        body["tags"] = [email["Tag"]]
    if email.get("Metadata"):
        body["metadata"] = {name: str(value) for name, value in email["Metadata"].items()}
    if email.get("MessageStream", "outbound") != "outbound":  # `outbound` is the default stream of Postmark
        body["stream"] = email["MessageStream"]
    body |= model(email.get("TemplateModel") or {})
    if email.get("Attachments"):
        body["attachments"] = [attachment(file) for file in email["Attachments"]]
    return body


def model(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a template: texts and numbers as `variables`, all others as `data`."""
    flat = {name: str(value) for name, value in values.items() if type(value) in VALUES}
    nested = {name: value for name, value in values.items() if name not in flat}
    return {name: given for name, given in (("variables", flat), ("data", nested)) if given}


def attachment(file: dict[str, Any]) -> dict[str, Any]:
    """Return an attachment; one whose ContentID begins with `cid:` is inline."""
    body = {"filename": file["Name"], "contentType": file["ContentType"], "content": file["Content"]}
    if cid := file.get("ContentID"):
        body["cid"] = cid.removeprefix("cid:")
        body["disposition"] = "inline" if cid.startswith("cid:") else "attachment"
    return body


def addresses(text: str) -> list[str]:
    """Return the addresses of a list divided by commas, each with its name."""
    return [formataddr(pair, charset="utf-8") if pair[0].isascii() else f'"{pair[0]}" <{pair[1]}>'
            for pair in getaddresses([text]) if pair[1]]  # fmt: skip


def main(arguments: list[str]) -> int:
    """Print the mapped body, or the problems."""
    given = json.loads(Path(arguments[0]).read_text("utf-8") if arguments else sys.stdin.read())
    batch = given.get("Messages") if isinstance(given, dict) else given
    emails = [given] if batch is None else batch
    places = ["" if batch is None else f"[{index}]." for index in range(len(emails))]
    found = [one for email, place in zip(emails, places, strict=True) for one in problems(email, place)]
    if found:
        sys.stderr.write("".join(f"{one}\n" for one in found))
        return 1
    bodies = [message(email) for email in emails]
    body = bodies[0] if batch is None else {"messages": bodies}
    sys.stdout.write(json.dumps(body, ensure_ascii=False, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
