"""Make file names and types of attachments safe to show, to store under, and to download (RFC 6266, RFC 8187).

Used for received attachments, whose names strangers chose, and for downloads of all attachments.
"""

import re
import unicodedata
from typing import Final
from urllib.parse import quote

from engine.mail.attachments import blocked_extension

OCTETS: Final = "application/octet-stream"
MAX_OCTETS: Final = 200  # in UTF-8: file systems allow 255, and programs add to the name
_MAX_EXTENSION: Final = 20
UNNAMED: Final = "attachment"

# Types that keep their name in a download. All others, above all those that a browser could run or render as a page
# (HTML, SVG, XML, scripts), are served as plain octets.
_PLAIN_TEXT: Final = frozenset({"text/plain", "text/csv", "text/calendar", "text/markdown", "text/vcard"})
_IMAGES: Final = frozenset(f"image/{kind}" for kind in ("avif", "bmp", "gif", "heic", "jpeg", "png", "tiff", "webp"))
_APPLICATIONS: Final = frozenset(
    f"application/{kind}"
    for kind in (
        "gzip", "json", "msword", "pdf", "pkcs7-mime", "pkcs7-signature", "pgp-signature", "rtf", "vnd.ms-excel",
        "vnd.ms-powerpoint", "vnd.oasis.opendocument.presentation", "vnd.oasis.opendocument.spreadsheet",
        "vnd.oasis.opendocument.text", "vnd.openxmlformats-officedocument.presentationml.presentation",
        "vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "vnd.openxmlformats-officedocument.wordprocessingml.document", "x-7z-compressed", "zip",
    )
)  # fmt: skip
SAFE_TYPES: Final = _PLAIN_TEXT | _IMAGES | _APPLICATIONS
_safe_family = re.compile(r"(?:audio|video|font)/[a-z0-9.+-]{1,100}", re.ASCII).fullmatch
_not_plain = re.compile(r'[^ -~]|["%\\]').sub
_unsafe = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]').sub
_blanks = re.compile(r"\s+").sub
# Names of devices, with any extension (learn.microsoft.com, "Naming Files, Paths, and Namespaces").
_device = re.compile(
    r"(?:con|prn|aux|nul|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3])(?=\.|$)", re.IGNORECASE
).match

# Extensions of names for attachments that have none.
_EXTENSIONS: Final = {
    "application/ms-tnef": "dat", "application/pdf": "pdf", "application/pgp-signature": "asc",
    "application/pkcs7-signature": "p7s", "image/gif": "gif", "image/jpeg": "jpg", "image/png": "png",
    "message/delivery-status": "txt", "message/disposition-notification": "txt", "message/rfc822": "eml",
    "text/calendar": "ics", "text/csv": "csv", "text/html": "html", "text/plain": "txt",
    "text/rfc822-headers": "txt", "text/vcard": "vcf",
}  # fmt: skip


def safe_filename(name: str) -> str:
    """Return a file name that is safe on every system and can't look like another one.

    Path separators, control and direction-changing characters become `_`; blanks join; an executable keeps only its
    last extension (`a.pdf.exe` becomes `a_pdf.exe`); a long name keeps its extension. Never empty.
    """
    name = unicodedata.normalize("NFC", name[: MAX_OCTETS * 4])
    shown = _blanks(" ", _without_controls(_unsafe("_", name))).strip(" .")
    if shown and blocked_extension(shown) is not None:
        stem, dot, extension = shown.rpartition(".")
        shown = stem.replace(".", "_") + dot + extension
    if _device(shown) is not None:
        shown = "_" + shown
    return _shortened(shown) or UNNAMED


def stand_in(content_type: str, number: int) -> str:
    """Return a name for the attachment with this number (from 1) that has none."""
    extension = _EXTENSIONS.get(content_type)
    return f"{UNNAMED}-{number}" + (f".{extension}" if extension else "")


def content_disposition(filename: str) -> str:
    """Return Content-Disposition for a download under any file name: an ASCII fallback and the full name.

    Controls, direction overrides and path separators become `_`, so that neither a header nor the name that a person
    sees can be forged.
    """
    name = _without_controls(filename.replace("/", "_").replace("\\", "_")).strip(" .") or UNNAMED
    fallback = _not_plain("_", name)
    if fallback == name:
        return f'attachment; filename="{name}"'
    return f"attachment; filename=\"{fallback}\"; filename*=UTF-8''{quote(name, safe='')}"


def download_type(content_type: str) -> str:
    """Return the type without its parameters if it is harmless in a browser, else `application/octet-stream`."""
    essence = content_type.partition(";")[0].strip().lower()
    harmless = essence in SAFE_TYPES or _safe_family(essence) is not None
    return essence if harmless and "xml" not in essence.partition("/")[2].split("+") else OCTETS


def _without_controls(name: str) -> str:
    """Replace controls, format characters (directions, zero widths), surrogates and private use by `_`."""
    if name.isprintable():
        return name
    return "".join(["_" if unicodedata.category(letter)[0] == "C" else letter for letter in name])


def _shortened(name: str) -> str:
    if len(name.encode("utf-8", "replace")) <= MAX_OCTETS:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension.encode()) > _MAX_EXTENSION:
        stem, dot, extension = name, "", ""
    room = MAX_OCTETS - len((dot + extension).encode())
    return stem.encode()[:room].decode("utf-8", "ignore").rstrip(" .") + dot + extension
