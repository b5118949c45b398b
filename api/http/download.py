"""Serve a stored file as a download that no browser opens or runs, whatever its type."""

from api.http.operation import Raw
from engine.mail.file_names import content_disposition, download_type


def download(content: bytes, *, filename: str, content_type: str) -> Raw:
    """Return the response that serves `content` as a file."""
    return Raw(
        content,
        download_type(content_type),
        (
            ("Content-Disposition", content_disposition(filename)),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "sandbox; default-src 'none'"),
            ("Cache-Control", "private, no-store"),
        ),
    )
