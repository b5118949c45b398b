"""Map the JSON body of SendGrid's `POST /v3/mail/send` to a body of Waybill.

Usage: python3 from_sendgrid.py [FILE]      reads FILE, or the standard input, and prints the body as JSON.

One personalization becomes the body of `POST /v1/emails`, several the body of `POST /v1/emails/batch`, a message each.
Fields that cannot be mapped are named on the standard error output; the exit status is then 1 and nothing is printed.
Needs Python 3.11 and no package. Fields of SendGrid: https://www.twilio.com/docs/sendgrid/api-reference/mail-send
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

KNOWN = {"personalizations", "from", "reply_to", "reply_to_list", "subject", "content", "attachments", "template_id",
         "headers", "categories", "custom_args", "send_at", "mail_settings", "tracking_settings"}  # fmt: skip
UNMAPPED = {
    "asm": "send on a stream with `listUnsubscribe` set to `auto` instead",
    "batch_id": "cancel each message with DELETE /v1/emails/{id}/schedule instead",
    "ip_pool_name": "the operator chooses the source addresses",
    "sections": "put the text into the content or into variables",
}
OF_PERSON = {"to", "cc", "bcc", "from", "subject", "headers", "substitutions", "dynamic_template_data", "custom_args",
             "send_at"}  # fmt: skip
BODIES = {"text/plain": "text", "text/html": "html"}
VALUES = (str, int, float)
MAX_TAG, MAX_TAGS, MAX_BATCH = 64, 10, 100


def problems(mail: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each field that has no counterpart."""
    for name in [name for name, value in mail.items() if value is not None and name not in KNOWN]:
        yield f"{name}: {UNMAPPED.get(name, 'unknown field')}."
    for group in ("mail_settings", "tracking_settings"):
        for name, setting in (mail.get(group) or {}).items():
            if setting.get("enable") and name != "sandbox_mode":
                yield f"{group}.{name}: Waybill has no such setting; turn it off."
    for index, part in enumerate(mail.get("content") or []):
        if part["type"] not in BODIES:
            yield f"content[{index}].type: only text/plain and text/html can be mapped, not {part['type']}."
    categories = mail.get("categories") or []
    if len(categories) > MAX_TAGS or any(len(one) > MAX_TAG for one in categories):
        yield f"categories: a message has at most {MAX_TAGS} tags of at most {MAX_TAG} characters."
    persons = mail.get("personalizations") or []
    if not 1 <= len(persons) <= MAX_BATCH:
        yield f"personalizations: there are {len(persons)}; a batch has 1 to {MAX_BATCH} messages. Split the mail."
    for index, person in enumerate(persons):
        yield from person_problems(person, f"personalizations[{index}].", template=bool(mail.get("template_id")))


def person_problems(person: dict[str, Any], place: str, *, template: bool) -> Iterator[str]:
    """Yield a sentence for each field of a personalization that has no counterpart."""
    for name in [name for name in person if name not in OF_PERSON]:
        yield f"{place}{name}: unknown field."
    if template and person.get("substitutions"):
        yield f"{place}substitutions: templates of Waybill use dynamic_template_data."


def messages(mail: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a body of `POST /v1/emails` for each personalization of a mail without problems."""
    common: dict[str, Any] = {}
    if mail.get("template_id"):
        common["template"] = mail["template_id"]
    else:
        common |= {BODIES[part["type"]]: part["value"] for part in mail.get("content") or []}
    if mail.get("categories"):
        common["tags"] = list(dict.fromkeys(mail["categories"]))
    if mail.get("attachments"):
        common["attachments"] = [attachment(file) for file in mail["attachments"]]
    replies = [mailbox(one) for one in mail.get("reply_to_list") or [mail.get("reply_to")] if one]
    if len(replies) == 1:
        common["replyTo"] = replies[0]
    reply_header = {"Reply-To": ", ".join(replies)} if len(replies) > 1 else {}
    return [common | own(mail, person, common, reply_header) for person in mail["personalizations"]]


def own(
    mail: dict[str, Any], person: dict[str, Any], common: dict[str, Any], headers: dict[str, str]
) -> dict[str, Any]:
    """Return the fields of one personalization; they replace those of the mail."""
    body: dict[str, Any] = {"from": mailbox(person.get("from") or mail["from"])}
    for name in ("to", "cc", "bcc"):
        if person.get(name):
            body[name] = [mailbox(one) for one in person[name]]
    if "template" not in common:  # SendGrid: a template's own subject and content go before those of the mail
        given = common | {"subject": person.get("subject") or mail.get("subject")}
        values = person.get("substitutions") or {}
        body |= {name: substituted(given[name], values) for name in ("subject", "text", "html") if given.get(name)}
    headers = headers | (mail.get("headers") or {}) | (person.get("headers") or {})
    if headers:
        body["headers"] = headers
    if arguments := (mail.get("custom_args") or {}) | (person.get("custom_args") or {}):
        body["metadata"] = {name: str(value) for name, value in arguments.items()}
    body |= model(person.get("dynamic_template_data") or {})
    if at := person.get("send_at") or mail.get("send_at"):
        body["scheduledAt"] = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return body


def model(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a template: texts and numbers as `variables`, all others as `data`."""
    flat = {name: str(value) for name, value in values.items() if type(value) in VALUES}
    nested = {name: value for name, value in values.items() if name not in flat}
    return {name: given for name, given in (("variables", flat), ("data", nested)) if given}


def substituted(text: str, values: dict[str, str]) -> str:
    """Replace each key by its value, once, the longest first."""
    if not values:
        return text
    keys = sorted(values, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, keys)), lambda found: str(values[found[0]]), text)


def attachment(file: dict[str, Any]) -> dict[str, Any]:
    """Return an attachment."""
    body = {"filename": file["filename"], "content": file["content"]}
    body["contentType"] = file.get("type") or "application/octet-stream"
    if file.get("disposition"):
        body["disposition"] = file["disposition"]
    if file.get("content_id"):
        body["cid"] = file["content_id"]
    return body


def mailbox(person: dict[str, str]) -> str:
    """Return `Name <address>`, or the address alone."""
    name = (person.get("name") or "").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}" <{person["email"]}>' if name else person["email"]


def main(arguments: list[str]) -> int:
    """Print the mapped body, or the problems."""
    mail = json.loads(Path(arguments[0]).read_text("utf-8") if arguments else sys.stdin.read())
    if found := list(problems(mail)):
        sys.stderr.write("".join(f"{one}\n" for one in found))
        return 1
    bodies = messages(mail)
    body: dict[str, Any] = bodies[0] if len(bodies) == 1 else {"messages": bodies}
    if ((mail.get("mail_settings") or {}).get("sandbox_mode") or {}).get("enable"):
        body["dryRun"] = True
    sys.stdout.write(json.dumps(body, ensure_ascii=False, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
