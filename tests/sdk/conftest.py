"""The Python client as its users get it: the files of the wheel, unpacked and imported."""

import importlib
import io
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from api.routes import client_document
from api.sdk import javascript, python_package, wheel
from engine.base.settings import Settings

VERSION = "1.2.3"


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    found: dict[str, Any] = orjson.loads(client_document(Settings()))
    return found


@pytest.fixture(scope="session")
def packed(document: dict[str, Any]) -> bytes:
    """Return the wheel."""
    return wheel.wheel(python_package.files(document, VERSION), VERSION)


@pytest.fixture(scope="session")
def package_folder(packed: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that holds the unpacked wheel."""
    folder = tmp_path_factory.mktemp("client")
    zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
    return folder


@pytest.fixture(scope="session")
def waybill_client(package_folder: Path) -> Iterator[Any]:
    """Import the package from the wheel."""
    sys.path.insert(0, str(package_folder))
    yield importlib.import_module("waybill_client")
    sys.path.remove(str(package_folder))


@pytest.fixture(scope="session")
def node() -> str:
    """Return the path of Node."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed")
    return found


@pytest.fixture(scope="session")
def modules(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the JavaScript client."""
    folder = tmp_path_factory.mktemp("modules")
    for name, text in javascript.files(document, VERSION).items():
        (folder / name).write_text(text, "utf-8")
    return folder
