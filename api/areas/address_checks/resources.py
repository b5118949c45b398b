"""`POST /v1/address-checks`."""

from api.areas.address_checks.schemas import AddressChecks, AddressesToCheck
from api.http.operation import Access, Call, LimitedKeys, Operation
from engine.base import clock
from engine.base.errors import ErrorType, invalid
from engine.codes.address_checks import service


async def check(call: Call) -> AddressChecks:
    """Check one or several addresses."""
    body: AddressesToCheck = call.body
    if (body.address is None) == (body.addresses is None):
        raise invalid("address", "Give either `address` or `addresses`.")
    texts = body.addresses if body.address is None else [body.address]
    assert texts is not None
    checked = await service.check(call.services.pool, call.services.resolver, call.account_id, texts, clock.now())
    return AddressChecks(data=checked.results, charged=checked.charged)


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/address-checks",
        tag="Verify",
        summary="Check whether mail to addresses can be delivered",
        note="`unknown` means that DNS gave no answer within 5 seconds: it is not charged, and no reason to drop an"
        " address. Whether the mailbox exists, or a domain takes mail for any address, is not checked.",
        access=Access.KEY,
        limited_keys=LimitedKeys.FREE,
        scopes=("verifications:read",),
        request=AddressesToCheck,
        reply=AddressChecks,
        refusals=(ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
        handler=check,
    ),
)
