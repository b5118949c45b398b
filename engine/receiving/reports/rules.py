"""Decide which reporters are trusted. Pure."""

from collections.abc import Collection

from engine.receiving.reports.types import Reporter


def is_listed(reporter: Reporter | None, listed: Collection[str]) -> bool:
    """Return True if a report is DKIM-signed by one of the operator's reporters.

    `listed`: `WAYBILL_COMPLAINT_REPORTERS`, addresses and domains. A domain stands for all authors in it and below it.
    """
    if reporter is None or reporter.signed_by is None:
        return False
    labels = reporter.domain.split(".")
    names = {reporter.address, *[".".join(labels[at:]) for at in range(len(labels))]}
    return not names.isdisjoint(listed)
