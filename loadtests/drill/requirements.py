"""Requirements of drills on the machine, such as root or an installed program."""

import os
import shutil
import sys
from collections.abc import Callable

from msgspec import Struct


class Requirement(Struct, frozen=True):
    """A requirement of a drill."""

    name: str  # in the list: "root", "nft"
    missing: Callable[[], str | None]  # what is missing, for people; None when it is there


def _not_linux() -> str | None:
    return None if sys.platform == "linux" else "it needs Linux: it finds processes through /proc"


def _not_root() -> str | None:
    return None if os.geteuid() == 0 else "it must be run by root"


def program(name: str, package: str = "") -> Requirement:
    """Require a program on the PATH; `package` names its package if that differs."""
    hint = f" (package {package})" if package else ""
    return Requirement(name, lambda: None if shutil.which(name) else f"the program {name} is not installed{hint}")


LINUX = Requirement("Linux", _not_linux)
ROOT = Requirement("root", _not_root)
