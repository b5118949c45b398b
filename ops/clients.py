"""Write the distributions of the Python client to a folder, for `ops sdk build`."""

from pathlib import Path

import orjson
from msgspec import Struct

from api.app import client_document
from api.sdk import python_package, wheel
from engine.base.settings import Settings
from engine.base.version import version


class WrittenDistribution(Struct, frozen=True):
    """A file that was written."""

    path: Path
    sha256: str


def build(settings: Settings, folder: Path) -> list[WrittenDistribution]:
    """Write wheel and source distribution; files of the same name are replaced."""
    current = version()
    files = python_package.files(orjson.loads(client_document(settings)), current)
    contents = {
        wheel.wheel_name(current): wheel.wheel(files, current),
        wheel.sdist_name(current): wheel.sdist(files, current),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [WrittenDistribution(folder / name, wheel.digest(content)) for name, content in contents.items()]
