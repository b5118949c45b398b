"""`POST /v1/address-checks`."""

from api.areas.address_checks.schemas import AddressChecks, AddressesToCheck
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid
from engine.codes.address_checks import service


async def check(call: Call, body: AddressesToCheck) -> AddressChecks:
    """Check one or several addresses."""
    if (body.address is None) == (body.addresses is None):
        raise invalid("address", "Give either `address` or `addresses`.")
    texts = body.addresses if body.address is None else [body.address]
    assert texts is not None
    checked = await service.check(call.services.pool, call.services.resolver, call.account_id, texts, clock.now())
    return AddressChecks(data=checked.results, charged=checked.charged)


_KEYS = Area("Verify", writes=("verifications:read",), limited_keys=LimitedKeys.FREE)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/address-checks",
        check,
        "Check whether mail to addresses can be delivered",
        _KEYS,
        note="`unknown` means that DNS gave no answer within 5 seconds: it is not charged, and no reason to "
        "drop an address. Waybill doesn't check whether the mailbox exists, or whether a domain accepts "
        "mail for any address.",
        refusals=(ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
)
