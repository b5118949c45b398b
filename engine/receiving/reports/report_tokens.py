"""Check the tokens in report addresses: the MX before it stores bytes, the worker when it reads a report."""

from msgspec import Struct

from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.mail import feedback_headers, return_path, unsubscribe_token
from engine.mail.unsubscribe_links import LOCAL_PREFIX
from engine.receiving.reports.types import ReportPurpose
from engine.sending.domains import reports as domain_reports
from engine.sending.domains import service as domains


class ReportKeys(Struct, frozen=True):
    """The keys of the tokens in report addresses."""

    return_path: DerivedKey
    complaints: DerivedKey  # of CFBL-Feedback-ID
    domain_reports: DerivedKey
    unsubscribe: DerivedKey


def keys_of(settings: Settings) -> ReportKeys:
    """Return the keys of the tokens in report addresses. Raises RuntimeError without WAYBILL_KEY_PEPPER."""
    identity = domains.identity(settings)
    return ReportKeys(
        return_path=return_path.key_of(settings.pepper),
        complaints=feedback_headers.cfbl_key(settings.pepper),
        domain_reports=identity.report_key,
        unsubscribe=unsubscribe_token.key_of(settings.pepper),
    )


def is_genuine(purpose: ReportPurpose, local: str, host: str, keys: ReportKeys) -> bool:
    """Return True if the service gave out the address; True for addresses that hold no token."""
    match purpose:
        case ReportPurpose.BOUNCE:
            return return_path.origin(keys.return_path, f"{local}@{host}") is not None
        case ReportPurpose.UNSUBSCRIBE:
            return unsubscribe_token.link_of(keys.unsubscribe, local.removeprefix(LOCAL_PREFIX)) is not None
        case ReportPurpose.DMARC | ReportPurpose.TLS:
            named = domain_reports.reported_domain(keys.domain_reports, f"{local}@{host}")
            return named is not None and named[0] == purpose.value
        case ReportPurpose.FEEDBACK | ReportPurpose.OPERATOR:
            return True
