"""Entry point of an installed Waybill: the wheel has this file as `waybill/__init__.py`.

The wheel holds the folders of the checkout inside the package `waybill`, so that it adds no other name to an
environment. They are imported from there under their own names, in this process and in those that it starts.
"""

import importlib
import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Run one command (`waybill up`) and return its exit status; the state is in the user's data folder by default."""
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{FOLDER}{os.pathsep}{others}" if others else str(FOLDER)
    sys.path.insert(0, str(FOLDER))
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    os.environ.setdefault("WAYBILL_STATE", str(data / "waybill"))
    return int(importlib.import_module("ops.__main__").main())  # found from here on
