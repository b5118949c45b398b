"""Serve a stored file as a download that no browser opens or runs, whatever its type."""

import re
import unicodedata
from urllib.parse import quote

from api.http.operation import Raw

# Types that keep their name in the response. All others, above all those that a browser could run or render as a page
# (HTML, SVG, XML, scripts), are served as plain octets.
_PLAIN_TEXT = frozenset({"text/plain", "text/csv", "text/calendar", "text/markdown", "text/vcard"})
_IMAGES = frozenset(f"image/{kind}" for kind in ("avif", "bmp", "gif", "heic", "jpeg", "png", "tiff", "webp"))
_APPLICATIONS = frozenset(
    f"application/{kind}"
    for kind in (
        "gzip", "json", "msword", "pdf", "pkcs7-mime", "pkcs7-signature", "pgp-signature", "rtf", "vnd.ms-excel",
        "vnd.ms-powerpoint", "vnd.oasis.opendocument.presentation", "vnd.oasis.opendocument.spreadsheet",
        "vnd.oasis.opendocument.text", "vnd.openxmlformats-officedocument.presentationml.presentation",
        "vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "vnd.openxmlformats-officedocument.wordprocessingml.document", "x-7z-compressed", "zip",
    )
)  # fmt: skip
SAFE_TYPES = _PLAIN_TEXT | _IMAGES | _APPLICATIONS
_SAFE_FAMILY = re.compile(r"(?:audio|video|font)/[a-z0-9.+-]{1,100}", re.ASCII)
OCTETS = "application/octet-stream"
_UNNAMED = "attachment"
_NOT_PLAIN = re.compile(r'[^ -~]|["%\\]')


def download(content: bytes, *, filename: str, content_type: str) -> Raw:
    """Return the response that serves `content` as a file."""
    return Raw(
        content,
        served_type(content_type),
        (
            ("Content-Disposition", disposition(filename)),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "sandbox; default-src 'none'"),
            ("Cache-Control", "private, no-store"),
        ),
    )


def served_type(content_type: str) -> str:
    """Return the stored type without its parameters if it is harmless, else `application/octet-stream`."""
    essence = content_type.partition(";")[0].strip().lower()
    harmless = essence in SAFE_TYPES or _SAFE_FAMILY.fullmatch(essence) is not None
    return essence if harmless and "xml" not in essence.partition("/")[2].split("+") else OCTETS


def disposition(filename: str) -> str:
    """Return Content-Disposition for any file name (RFC 6266 section 4, RFC 8187): ASCII fallback and full name.

    Controls, direction overrides and path separators become `_`, so that neither a header nor the name that a person
    sees can be forged.
    """
    name = "".join("_" if letter in "/\\" or unicodedata.category(letter)[0] == "C" else letter for letter in filename)
    name = name.strip(" .") or _UNNAMED
    fallback = _NOT_PLAIN.sub("_", name)
    if fallback == name:
        return f'attachment; filename="{name}"'
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"
