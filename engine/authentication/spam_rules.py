"""Score a message without rspamd, from its authentication and its header: a received one, or one before sending. Pure.

A message counts as spam from 6 points on. One rule alone marks a message: DMARC failed, and the domain of the author
asks that such mail is rejected or quarantined. A forwarded message (SPF fails, DKIM passes) stays below. The reasons:
ops/decisions/0080.
"""

from collections.abc import Iterator
from typing import Final

from engine.authentication.results import AuthenticationVerdicts
from engine.mail.received import ReceivedSummary

SPAM_THRESHOLD: Final = 6.0  # score from which a message is spam, as rspamd's default for its action `add header`
SPF: Final = {"fail": 3.0, "softfail": 1.5, "permerror": 1.0, "none": 0.5, "neutral": 0.5}
DKIM: Final = {"fail": 1.0, "permerror": 1.0, "policy": 0.5, "none": 0.5}
DMARC_FAIL: Final = {"reject": 6.0, "quarantine": 6.0, "none": 1.5, "": 1.5}  # by the policy of the author's domain
DMARC_PASS: Final = -1.0
# From is unreadable or has several authors, by which a forger could evade any policy (DMARC permerror). Less than 4,
# so that a misleading name, which mostly comes with it, does not make the sum 6.
NO_SINGLE_AUTHOR: Final = 3.5
NO_FROM: Final = 3.0
MISLEADING_NAME: Final = 2.0  # a display name that contains an address of another domain
NO_DATE: Final = 0.5
NO_MESSAGE_ID: Final = 0.5
_WARNINGS: Final = {
    "from_missing": NO_FROM, "misleading_name": MISLEADING_NAME, "date_missing": NO_DATE,
}  # fmt: skip


def spam_score(verdicts: AuthenticationVerdicts, mail: ReceivedSummary) -> float:
    """Return the sum of the points that apply, 0 at least."""
    return max(0.0, sum([points for _, points in spam_points(verdicts, mail)]))


def spam_points(verdicts: AuthenticationVerdicts, mail: ReceivedSummary) -> Iterator[tuple[str, float]]:
    """Yield the rules that apply with their points, by names such as `spf_none`; a rule may give 0 points."""
    yield f"spf_{verdicts.spf.result}", SPF.get(verdicts.spf.result, 0.0)
    yield f"dkim_{verdicts.dkim.result}", DKIM.get(verdicts.dkim.result, 0.0)
    if verdicts.dmarc.result == "fail":
        yield "dmarc_fail", DMARC_FAIL[verdicts.dmarc_policy]
    elif verdicts.dmarc.result == "pass":
        yield "dmarc_pass", DMARC_PASS
    elif verdicts.dmarc.result == "permerror" and mail.sender is not None and mail.sender.address:
        yield "no_single_author", NO_SINGLE_AUTHOR
    for warning in mail.warnings:
        yield warning.code, _WARNINGS.get(warning.code, 0.0)
    if mail.header_message_id is None:
        yield "message_id_missing", NO_MESSAGE_ID
