"""Parse tag lists such as `v=1; a=rsa-sha256` (RFC 6376 3.2), as DKIM, ARC and DMARC use them. Pure."""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import Final

MAX_TAGS: Final = 100

_tag_name = re.compile(r"[A-Za-z][A-Za-z0-9_]*").fullmatch
_blanks: Final = str.maketrans("", "", " \t\r\n")


class BadTagList(ValueError):  # noqa: N818 - named for what was given
    """The text is not a tag list; the message says why."""


def parse_tags(raw: bytes) -> dict[str, str]:
    """Return the tags in order, names and values without blanks around them. Raises BadTagList."""
    tags: dict[str, str] = {}
    text = raw.decode("utf-8", "replace").strip(" \t\r\n")
    for part in text.removesuffix(";").split(";", MAX_TAGS):
        name, equals, value = part.partition("=")
        name = name.strip(" \t\r\n")
        if not equals or _tag_name(name) is None:
            raise BadTagList(f"{part.strip()[:40]!r} is no tag")
        if name in tags:
            raise BadTagList(f"the tag {name} occurs twice")
        tags[name] = value.strip(" \t\r\n")
    if len(tags) > MAX_TAGS:
        raise BadTagList(f"more than {MAX_TAGS} tags")
    return tags


def without_blanks(text: str) -> str:
    """Return a value without blanks and folds, which some tags allow anywhere."""
    return text.translate(_blanks)


def base64_value(text: str, *, strict: bool = True) -> bytes | None:
    """Decode a base64 value, in which blanks have no meaning; None if it is invalid. Unless `strict`, characters
    outside the alphabet are skipped.
    """
    try:
        return a2b_base64(without_blanks(text).encode("ascii"), strict_mode=strict)
    except (Base64Error, UnicodeEncodeError):
        return None
