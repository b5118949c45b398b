"""Pack the Python client as a wheel and a source distribution, with the same octets on every host and at every time.

Formats: the binary distribution format and "Core metadata specifications" of packaging.python.org. The wheel stores its
files without compression, because the output of zlib differs between its versions, and pip compares hashes.
"""

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Final

from api.sdk.python_package import PACKAGE

DISTRIBUTION: Final = "waybill-client"
REQUIRES_PYTHON: Final = ">=3.11"
REQUIRES: Final = "httpx>=0.27,<1"
EXTRAS: Final = {"certificates": "cryptography>=42"}  # what only some users need: to verify delivery certificates
SUMMARY: Final = "Client of the Waybill e-mail service"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can state
_EPOCH_S: Final = 315_532_800
_MODE: Final = 0o100644 << 16
_README: Final = """\
# waybill-client

The client of the Waybill e-mail service, for Python 3.11 and later. It needs httpx. The extra `certificates` adds
cryptography, with which `verify_certificate` verifies delivery certificates.

    from waybill_client import Waybill

    with Waybill(api_key="svc_live_…", base_url="https://mail.example.com") as client:
        reply = client.emails.send(
            from_="hello@example.com", to=["ann@example.net"], subject="Hello", text="It works."
        )
        print(client.messages.get(reply["id"])["status"])

`AsyncWaybill` has the same methods for asyncio. The service documents them at `/docs`.
"""
_PYPROJECT: Final = """\
[build-system]
requires = ["flit_core>=3.9,<4"]
build-backend = "flit_core.buildapi"

[project]
name = "{distribution}"
version = "{version}"
description = "{summary}"
readme = "README.md"
license = {{text = "Apache-2.0"}}
requires-python = "{requires_python}"
dependencies = ["{requires}"]

[project.optional-dependencies]
{extras}

[project.entry-points.pytest11]
waybill = "{package}.pytest_plugin"

[tool.flit.module]
name = "{package}"

[tool.ruff]
line-length = 120
"""


def wheel_name(version: str) -> str:
    """Return the file name of the wheel."""
    return f"{PACKAGE}-{version}-py3-none-any.whl"


def sdist_name(version: str) -> str:
    """Return the file name of the source distribution."""
    return f"{PACKAGE}-{version}.tar.gz"


def wheel(files: Mapping[str, str], version: str) -> bytes:
    """Return the wheel of the package's files."""
    info = f"{PACKAGE}-{version}.dist-info"
    contents = {f"{PACKAGE}/{name}": text.encode() for name, text in files.items()}
    contents[f"{info}/METADATA"] = _metadata(version).encode()
    contents[f"{info}/entry_points.txt"] = f"[pytest11]\nwaybill = {PACKAGE}.pytest_plugin\n".encode()
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: waybill\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{name},{_hash(content)},{len(content)}" for name, content in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.create_system = _MODE, 3
            archive.writestr(entry, content)
    return packed.getvalue()


def sdist(files: Mapping[str, str], version: str) -> bytes:
    """Return the source distribution of the package's files."""
    top = f"{PACKAGE}-{version}"
    project = _PYPROJECT.format(
        distribution=DISTRIBUTION, version=version, summary=SUMMARY, requires_python=REQUIRES_PYTHON,
        requires=REQUIRES, package=PACKAGE, extras="\n".join(f'{name} = ["{one}"]' for name, one in EXTRAS.items()),
    )  # fmt: skip
    contents = {f"{top}/{PACKAGE}/{name}": text for name, text in files.items()}
    contents |= {
        f"{top}/PKG-INFO": _metadata(version),
        f"{top}/README.md": _README,
        f"{top}/pyproject.toml": project,
    }
    return tar_gz(contents, 9)


def tar_gz(contents: Mapping[str, str], level: int) -> bytes:
    """Return a compressed archive of texts by their path, without times and owners."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(text.encode()), _EPOCH_S, 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), level, mtime=_EPOCH_S)


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file, hexadecimal, as package indexes state it."""
    return hashlib.sha256(content).hexdigest()


def _metadata(version: str) -> str:
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {version}",
        f"Summary: {SUMMARY}",
        "License: Apache-2.0",
        "Classifier: Typing :: Typed",
        f"Requires-Python: {REQUIRES_PYTHON}",
        f"Requires-Dist: {REQUIRES}",
        *[f"Provides-Extra: {name}" for name in EXTRAS],
        *[f'Requires-Dist: {one}; extra == "{name}"' for name, one in EXTRAS.items()],
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(fields) + "\n\n" + _README


def _hash(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
