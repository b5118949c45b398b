"""The generated package: every operation of a key has a method, its types hold, and the wheel is the same each time."""

import base64
import csv
import hashlib
import inspect
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from api.http.client_names import client_method
from api.http.operation import Access
from api.routes import all_operations
from api.sdk import javascript, npm_package, python_package, wheel
from api.sdk.error_classes import error_classes
from engine.base.errors import ErrorType
from tests.sdk.conftest import VERSION


def test_the_clients_have_a_method_for_every_operation_that_a_key_may_call(waybill_client: Any) -> None:
    clients = [kind("svc_live_x", base_url="http://127.0.0.1:1") for kind in
               (waybill_client.Waybill, waybill_client.AsyncWaybill)]  # fmt: skip
    wanted = [
        client_method(one.method, one.path)
        for one in all_operations()
        if one.access in (Access.KEY, Access.PLATFORM_KEY) and not one.path.startswith("/v1/compat/")
    ]
    assert len(wanted) > 100
    for client in clients:
        missing = [
            name for name in wanted if not callable(getattr(getattr(client, name.group, None), name.method, None))
        ]
        assert missing == []


def test_a_class_exists_for_every_error_type(waybill_client: Any) -> None:
    names = {one.name for one in error_classes()}
    assert len(names) == len(ErrorType)
    assert names <= set(waybill_client.__all__)
    assert issubclass(waybill_client.SuppressedError, waybill_client.ApiError)


def test_the_generated_code_is_formatted(package_folder: Path) -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    words = [ruff, "format", "--isolated", "--line-length", "120", "--check", "--no-cache", str(package_folder)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout


def test_the_wheel_is_the_same_each_time_and_its_record_is_right(packed: bytes, document: dict[str, Any]) -> None:
    assert wheel.wheel(python_package.files(document, VERSION), VERSION) == packed
    archive = zipfile.ZipFile(io.BytesIO(packed))
    info = f"waybill_client-{VERSION}.dist-info"
    rows = list(csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())))
    assert [row[0] for row in rows] == archive.namelist()
    for name, digest, size in rows[:-1]:
        content = archive.read(name)
        expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(content)))
    metadata = archive.read(f"{info}/METADATA").decode()
    assert f"Name: waybill-client\nVersion: {VERSION}\n" in metadata
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: httpx>=0.27,<1",
        'Requires-Dist: cryptography>=42; extra == "certificates"',
    ]
    assert "Provides-Extra: certificates\n" in metadata
    assert f"{python_package.PACKAGE}/py.typed" in archive.namelist()


def test_the_source_distribution_holds_the_same_files(document: dict[str, Any]) -> None:
    files = python_package.files(document, VERSION)
    archive = tarfile.open(fileobj=io.BytesIO(wheel.sdist(files, VERSION)))  # noqa: SIM115
    names = set(archive.getnames())
    assert {f"waybill_client-{VERSION}/waybill_client/{name}" for name in files} <= names
    assert {f"waybill_client-{VERSION}/{name}" for name in ("pyproject.toml", "PKG-INFO", "README.md")} <= names


def test_both_clients_have_the_same_methods_and_parameters(waybill_client: Any) -> None:
    first = waybill_client.Waybill("svc_live_x", base_url="http://127.0.0.1:1")
    second = waybill_client.AsyncWaybill("svc_live_x", base_url="http://127.0.0.1:1")
    for group in [name for name in vars(first) if not name.startswith("_")]:
        one, other = getattr(first, group), getattr(second, group)
        methods = [name for name in dir(one) if not name.startswith("_")]
        assert methods == [name for name in dir(other) if not name.startswith("_")]
        for name in methods:
            parameters = [list(inspect.signature(getattr(client, name)).parameters) for client in (one, other)]
            assert parameters[0] == parameters[1]


def test_the_npm_package_is_the_same_each_time_and_a_lock_file_pins_it(
    document: dict[str, Any], tmp_path: Path, node: str
) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    packed = npm_package.package(javascript.files(document, VERSION), VERSION)
    assert packed == npm_package.package(javascript.files(document, VERSION), VERSION)
    (tmp_path / npm_package.package_name(VERSION)).write_bytes(packed)
    (tmp_path / "package.json").write_text('{"name": "app", "version": "1.0.0", "private": true}')
    words = [npm, "install", "--offline", "--no-audit", "--no-fund", f"./{npm_package.package_name(VERSION)}"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    [pinned] = [
        one for path, one in json.loads((tmp_path / "package-lock.json").read_text())["packages"].items() if path
    ]
    assert pinned["integrity"] == "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    script = (
        'import { VERSION, Waybill } from "waybill-client"; import { verify } from "waybill-client/webhooks";'
        'import { openTwin } from "waybill-client/testing";'
        'import { verifyCertificate } from "waybill-client/certificates";'
        "console.log(VERSION, typeof Waybill, typeof verify, typeof openTwin, typeof verifyCertificate);"
    )
    shown = subprocess.run(
        [node, "--input-type=module", "--eval", script], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    assert shown.stdout.split() == [VERSION.encode(), *[b"function"] * 4]
