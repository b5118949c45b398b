"""The result of one check of `ops doctor`, and functions that make one."""

from typing import Any

from msgspec import Struct


class DoctorFinding(Struct, frozen=True):
    """Result of one check. `mend` says in a sentence how to fix the problem; None if the check passed."""

    check: str
    ok: bool
    found: str
    mend: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as `ops doctor --json` prints it."""
        return {"check": self.check, "ok": self.ok, "found": self.found, "mend": self.mend}


def good(check: str, found: str) -> DoctorFinding:
    """Make the finding of a check that passed."""
    return DoctorFinding(check, ok=True, found=found)


def bad(check: str, found: str, mend: str) -> DoctorFinding:
    """Make the finding of a check that failed; `mend` says how to fix the problem."""
    return DoctorFinding(check, ok=False, found=found, mend=mend)


def check_failed(check: str, error: BaseException) -> DoctorFinding:
    """Make the finding of a check that could not be completed because of `error`."""
    return bad(
        check, f"can't be checked ({describe_error(error)})", "Fix what the error names, then run `ops doctor` again."
    )


def describe_error(error: BaseException) -> str:
    """Return an error as one line of at most 200 characters."""
    line = " ".join(str(error).split())
    return f"{type(error).__name__}: {line}"[:200] if line else type(error).__name__
