"""Pack the JavaScript client as an npm package, with the same octets on every host: lock files keep their SHA-512."""

import json
from collections.abc import Mapping
from typing import Final

from api.sdk.wheel import DISTRIBUTION, SUMMARY, tar_gz

_MODULES: Final = {
    ".": "waybill", "./certificates": "certificates", "./webhooks": "webhooks", "./testing": "testing",
}  # fmt: skip
_NO_COMPRESSION: Final = 0  # the output of zlib differs between its versions


def package_name(version: str) -> str:
    """Return the file name of the package."""
    return f"{DISTRIBUTION}-{version}.tgz"


def package(files: Mapping[str, str], version: str) -> bytes:
    """Return the package of the client's modules and their declarations."""
    manifest = {
        "name": DISTRIBUTION,
        "version": version,
        "description": SUMMARY,
        "license": "Apache-2.0",
        "type": "module",
        "engines": {"node": ">=18"},
        "sideEffects": False,
        "exports": {path: {"types": f"./{name}.d.mts", "default": f"./{name}.mjs"} for path, name in _MODULES.items()},
    }
    contents = {"package/package.json": json.dumps(manifest, indent=2) + "\n"}
    contents |= {f"package/{name}": text for name, text in files.items() if not name.endswith(".d.ts")}
    return tar_gz(contents, _NO_COMPRESSION)
