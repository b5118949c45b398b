"""`POST /v1/leads`: the contact form of the service's operator."""

from api.areas.leads.schemas import Lead, NewLead
from api.http.operation import Access, Area, Call, Operation
from engine.accounts.leads import service as leads
from engine.base import ids
from engine.base.errors import ErrorType


async def take(call: Call, body: NewLead) -> Lead:
    """Store an enquiry, and mail it to the platform account's owners."""
    enquiry = leads.Enquiry(body.email, body.message, body.name, body.company)
    lead = await leads.take(call.services, call.account_id, enquiry, actor=call.actor)
    return Lead(ids.format_id(ids.Kind.LEAD, lead))


_PLATFORM = Area("Other", access=Access.PLATFORM_KEY)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/leads",
        take,
        "Submit an enquiry from a contact form",
        _PLATFORM,
        success=202,
        refusals=(ErrorType.INVALID_ADDRESS,),
    ),
)
