"""Serve files that are saved, not shown: no browser opens or runs them, whatever their type."""

from typing import Final

from api.http.operation import Chunks, Raw, Streamed
from engine.mail.file_names import content_disposition, download_type

MAIL: Final = "message/rfc822"
_PRIVATE: Final = ("Cache-Control", "private, no-store")


def download(content: bytes, *, filename: str, content_type: str) -> Raw:
    """Return the response that serves `content` as a file."""
    return _file(content, download_type(content_type), filename)


def mail_file(content: bytes, filename: str) -> Raw:
    """Return the response that serves a message as a mail file."""
    return _file(content, MAIL, filename)


def streamed_file(chunks: Chunks, content_type: str, filename: str) -> Streamed:
    """Return the response that streams an export as a file; `filename` is ours."""
    return Streamed(chunks, content_type, (("Content-Disposition", f'attachment; filename="{filename}"'), _PRIVATE))


def _file(content: bytes, content_type: str, filename: str) -> Raw:
    policy = ("Content-Security-Policy", "sandbox; default-src 'none'")
    return Raw(content, content_type, (("Content-Disposition", content_disposition(filename)), policy, _PRIVATE))
