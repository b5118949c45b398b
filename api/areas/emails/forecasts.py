"""`forecast` of a send: when the message will probably arrive."""

from api.http.operation import Call
from engine.receiving.receivers.types import Forecast
from engine.sending.emails.types import Accepted, Checked, Prepared
from engine.store.database_errors import DatabaseUnavailable


async def forecast_of(call: Call, made: Checked, decision: Accepted) -> Forecast | None:
    """Return the forecast of a message that is sent immediately; None for others, and while the database is away.

    The message may be accepted already: what goes wrong here must not fail its send.
    """
    if not isinstance(made, Prepared) or decision.status != "queued":
        return None
    domains = {one.mailbox.domain for one in made.recipients}
    account = call.account_id if call.reach is None else None
    try:
        return await call.services.receivers.forecast(account, domains, deliver_by=made.deliver_by)
    except DatabaseUnavailable:
        return None
