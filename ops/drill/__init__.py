"""`ops drill`: processes die while mail is under way, and every message is counted."""

from ops.drill.faults import FAULTS
from ops.drill.run import run

__all__ = ["FAULTS", "run"]
