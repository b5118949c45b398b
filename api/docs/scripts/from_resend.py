"""Map the JSON body of Resend's `POST /emails` or `POST /emails/batch` to a body of Waybill.

Usage: python3 from_resend.py [FILE]      reads FILE, or the standard input, and prints the body as JSON.

An object becomes the body of `POST /v1/emails`, a list the body of `POST /v1/emails/batch`. Fields that cannot be
mapped are named on the standard error output; the exit status is then 1 and nothing is printed. Needs Python 3.11 and
no package. Fields of Resend: https://resend.com/docs/api-reference/emails/send-email
"""

import json
import mimetypes
import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

RENAMED = {"from": "from", "subject": "subject", "html": "html", "text": "text", "headers": "headers"}
KNOWN = {*RENAMED, "to", "cc", "bcc", "reply_to", "scheduled_at", "attachments", "tags", "template"}
UNMAPPED = {
    "react": "render the component to `html` before sending",
    "topic_id": "send on a stream with `listUnsubscribe` set to `auto` instead",
}
FILE_FIELDS = {"filename", "content", "content_type", "content_id", "inline_content_id", "path"}
VALUES = (str, int, float)
SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)


def problems(email: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield a sentence for each field that has no counterpart."""
    for name in [name for name, value in email.items() if value is not None and name not in KNOWN]:
        yield f"{place}{name}: {UNMAPPED.get(name, 'unknown field')}."
    if email.get("scheduled_at") and not is_time(email["scheduled_at"]):
        yield f"{place}scheduled_at: only ISO 8601 with an offset can be mapped, not {email['scheduled_at']!r}."
    names = [tag["name"] for tag in email.get("tags") or []]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"{place}tags[{index}].name: {name!r} is given twice; metadata has each name once."
    for index, file in enumerate(email.get("attachments") or []):
        yield from file_problems(file, f"{place}attachments[{index}].")
    yield from template_problems(email.get("template") or {}, f"{place}template")


def template_problems(template: dict[str, Any], place: str) -> Iterator[str]:
    """Yield a sentence for each field of a template that has no counterpart."""
    if template and not SLUG.fullmatch(str(template.get("id", ""))):
        yield f"{place}.id: ids have lower-case letters, digits and hyphens, not {template.get('id')!r}."
    for name in [name for name in template if name not in {"id", "variables"}]:
        yield f"{place}.{name}: unknown field."


def file_problems(file: dict[str, Any], place: str) -> Iterator[str]:
    """Yield a sentence for each field of an attachment that has no counterpart."""
    if file.get("path") is not None:
        yield f"{place}path: Waybill fetches no files; download it and put it into `content`."
    for name in [name for name in file if name not in FILE_FIELDS]:
        yield f"{place}{name}: unknown field."
    if not file.get("filename"):
        yield f"{place}filename: Waybill needs a file name."


def message(email: dict[str, Any]) -> dict[str, Any]:
    """Return the body of `POST /v1/emails` for an email without problems."""
    body: dict[str, Any] = {new: email[old] for old, new in RENAMED.items() if email.get(old) is not None}
    for name in ("to", "cc", "bcc"):
        if email.get(name):
            body[name] = several(email[name])
    if body.get("text") == "" and body.get("html"):
        del body["text"]  # Resend: an empty text means no text part
    if len(replies := several(email.get("reply_to") or [])) > 1:
        body["headers"] = {**body.get("headers", {}), "Reply-To": ", ".join(replies)}
    elif replies:
        body["replyTo"] = replies[0]
    if email.get("scheduled_at"):
        body["scheduledAt"] = email["scheduled_at"]
    if email.get("tags"):
        body["metadata"] = {tag["name"]: tag.get("value") or "" for tag in email["tags"]}
    if email.get("attachments"):
        body["attachments"] = [attachment(file) for file in email["attachments"]]
    if template := email.get("template"):
        body["template"] = template["id"]
        body |= model(template.get("variables") or {})
    return body


def model(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a template: texts and numbers as `variables`, all others as `data`."""
    flat = {name: str(value) for name, value in values.items() if type(value) in VALUES}
    nested = {name: value for name, value in values.items() if name not in flat}
    return {name: given for name, given in (("variables", flat), ("data", nested)) if given}


def attachment(file: dict[str, Any]) -> dict[str, Any]:
    """Return an attachment; its type is guessed from its name where it is not given, as Resend does."""
    name, content = file["filename"], file.get("content") or ""
    if isinstance(content, dict):  # a Buffer of Node.js as JSON
        content = content["data"]
    body = {
        "filename": name,
        "contentType": file.get("content_type") or mimetypes.guess_type(name)[0] or "application/octet-stream",
        "content": content if isinstance(content, str) else b64encode(bytes(content)).decode(),
    }
    if cid := file.get("content_id") or file.get("inline_content_id"):
        body |= {"disposition": "inline", "cid": cid}
    return body


def several(value: str | list[str]) -> list[str]:
    """Return a list of addresses, which Resend takes as a string too."""
    return [value] if isinstance(value, str) else value


def is_time(text: str) -> bool:
    """Return True for an ISO 8601 time with an offset."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def main(arguments: list[str]) -> int:
    """Print the mapped body, or the problems."""
    given = json.loads(Path(arguments[0]).read_text("utf-8") if arguments else sys.stdin.read())
    emails = given if isinstance(given, list) else [given]
    places = [f"[{index}]." if isinstance(given, list) else "" for index in range(len(emails))]
    found = [one for email, place in zip(emails, places, strict=True) for one in problems(email, place)]
    if found:
        sys.stderr.write("".join(f"{one}\n" for one in found))
        return 1
    bodies = [message(email) for email in emails]
    body = {"messages": bodies} if isinstance(given, list) else bodies[0]
    sys.stdout.write(json.dumps(body, ensure_ascii=False, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
