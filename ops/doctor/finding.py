"""What the doctor reports: one finding a look."""

from typing import Any

from msgspec import Struct


class DoctorFinding(Struct, frozen=True):
    """One look at the installation. `mend` says in a sentence what to do; None when there is nothing to."""

    check: str
    ok: bool
    found: str
    mend: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return {"check": self.check, "ok": self.ok, "found": self.found, "mend": self.mend}


def good(check: str, found: str) -> DoctorFinding:
    """Nothing to do."""
    return DoctorFinding(check, ok=True, found=found)


def bad(check: str, found: str, mend: str) -> DoctorFinding:
    """Something to mend."""
    return DoctorFinding(check, ok=False, found=found, mend=mend)


def check_failed(check: str, error: BaseException) -> DoctorFinding:
    """A check that failed itself."""
    return bad(check, f"can't be examined ({describe_error(error)})", "Mend what the error names, then look again.")


def describe_error(error: BaseException) -> str:
    """An error as one bounded line."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line}"[:200] if line else type(error).__name__
