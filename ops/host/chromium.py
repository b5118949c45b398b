"""Find the browser that the tests of the console drive: Debian's headless Chromium, Chromium or Chrome."""

import os
import shutil
from collections.abc import Mapping
from typing import Final

SETTING: Final = "WAYBILL_CHROMIUM"
PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
MISSING: Final = "no Chromium (Debian: apt install chromium-headless-shell, or set WAYBILL_CHROMIUM)"


def find(environ: Mapping[str, str]) -> str | None:
    """Return the path of a browser: the one that WAYBILL_CHROMIUM names, else the first of PROGRAMS on the PATH."""
    named = environ.get(SETTING)
    if named:
        return named if os.access(named, os.X_OK) else None
    return next((path for name in PROGRAMS if (path := shutil.which(name, path=environ.get("PATH")))), None)
