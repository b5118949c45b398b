"""Find the TLS certificate of an SMTP server: the one in the settings, or a self-signed one in the state folder."""

import fcntl
from pathlib import Path

from engine.base.settings import Settings, variable
from ops.local import certificate


class NoCertificate(RuntimeError):  # noqa: N818 - named for what it says
    """No TLS certificate is configured, or its file is missing; the text says what to set."""


def configured(settings: Settings) -> tuple[Path, Path] | None:
    """Return the paths of the certificate and key in the settings, None without; raises NoCertificate."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    for field, file in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if not file.is_file():
            raise NoCertificate(f"{variable(field)} names {file}, and there is no such file.")
    return settings.tls_cert, settings.tls_key


def self_signed(settings: Settings, kind: str) -> tuple[Path, Path]:
    """Return the paths of a self-signed certificate and its key for processes of a kind; create them once."""
    folder = certificate.folder_of(settings.state, kind)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # several processes may start at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        return certificate.ensure(folder, settings.mail_host)
