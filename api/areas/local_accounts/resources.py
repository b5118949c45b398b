"""`POST /v1/local/accounts`: an account for a test, in local mode only."""

from api.areas.local_accounts.schemas import LocalAccountOpened, NewLocalAccount
from api.http.operation import Area, Call, LimitedKeys, Operation
from engine.accounts import local_account
from engine.base.errors import ErrorType


async def create(call: Call, body: NewLocalAccount) -> LocalAccountOpened:
    """Open an account with an API key and a verified domain."""
    made = await local_account.open_one(call.services.pool, call.settings, body.name)
    return LocalAccountOpened(made.account_id, made.api_key, made.domain, made.owner_email)


_KEYS = Area("Local mode", reads=("messages:read",), writes=("emails:send",), limited_keys=LimitedKeys.WHOLE_ACCOUNT)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/local/accounts",
        create,
        "Open an account for a test, in local mode",
        _KEYS,
        success=201,
        note="It shares nothing with the account of the key: neither messages and events nor limits.",
        refusals=(ErrorType.NOT_FOUND,),
    ),
)
