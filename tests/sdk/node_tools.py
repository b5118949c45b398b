"""Find development tools of npm and pip that `.ci/run` installs, such as TypeScript."""

import os
import shutil
from pathlib import Path

import pytest


def npm_tool(name: str) -> str:
    """Return the path of a program from the folders of NODE_PATH; skip the test without it."""
    folders = [str(Path(one) / ".bin") for one in os.environ.get("NODE_PATH", "").split(os.pathsep) if one]
    found = shutil.which(name, path=os.pathsep.join(folders)) if folders else None
    if found is None:
        pytest.skip(f"{name} is not installed: `.ci/run` gets it from npm, and NODE_PATH leads to it")
    return found


def npm_modules(name: str) -> Path:
    """Return the folder of NODE_PATH that holds a package; skip the test without it."""
    for one in os.environ.get("NODE_PATH", "").split(os.pathsep):
        if one and (Path(one) / name).is_dir():
            return Path(one)
    pytest.skip(f"the package {name} is not installed: `.ci/run` gets it from npm, and NODE_PATH leads to it")


def pip_tool(name: str) -> str:
    """Return the path of a generator of clients from GENERATORS_PATH; skip the test without it."""
    found = shutil.which(name, path=os.environ.get("GENERATORS_PATH", ""))
    if found is None:
        pytest.skip(f"{name} is not installed: `.ci/run` gets it with pip, and GENERATORS_PATH leads to it")
    return found
