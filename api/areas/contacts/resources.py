"""`/v1/contacts`: creating, importing, listing, reading, changing and deleting contacts."""

from uuid import UUID

from msgspec import UNSET

from api.areas.contacts.schemas import (
    ConfirmationIn,
    Contact,
    ContactChange,
    ContactImportIn,
    ContactImportReply,
    ContactPage,
    ContactsQuery,
    NewContactIn,
    RefusedContact,
)
from api.http import item_errors
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.audience.contacts import imports, lists_store, rules, search, service, store
from engine.audience.contacts.double_opt_in import ConfirmationRequest, DoubleOptIn
from engine.audience.contacts.types import Consent, ContactFilters, ContactRow, ImportResult, NewContact
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid, unavailable
from engine.people.api_keys.key_auth import check_scope
from engine.sending.preparation import Origin
from engine.sending.suppressions.types import Reason

MAX_CONTACT_BYTES = 256 * 1024  # 16 KiB of fields, each character as an escape
MAX_IMPORT_BYTES = 20 * 1024 * 1024  # 1,000 rows with 16 KiB of fields

SEND_REFUSALS = (
    ErrorType.INVALID_ADDRESS, ErrorType.DOMAIN_NOT_VERIFIED, ErrorType.SUPPRESSED, ErrorType.DAILY_LIMIT_REACHED,
    ErrorType.MONTHLY_LIMIT_REACHED, ErrorType.PLATFORM_PAUSED,
)  # fmt: skip


async def create(call: Call, body: NewContactIn) -> Contact:
    """Create a contact; with `confirm`, mail it a link."""
    wanted, lists = new_contact(body), list_ids(body.lists)
    if body.confirm:
        if body.from_ is None:
            raise invalid("from", "`from` is missing. Set the sender of the confirmation email.")
        request = ConfirmationRequest(sender=body.from_, stream=body.stream, locale=body.locale)
        row = await _double_opt_in(call).create(wanted, request, consent=body.consent, lists=lists, actor=call.actor)
    elif body.from_ is not None:
        raise invalid("from", "`from` is only for the confirmation email. Set `confirm` to true as well.")
    else:
        row = await service.create(
            call.services.pool, call.account_id, wanted, consent=body.consent, lists=lists, actor=call.actor
        )
    return contact_of(row)


async def ask_again(call: Call, body: ConfirmationIn) -> Contact:
    """Mail an unconfirmed contact another link."""
    request = ConfirmationRequest(sender=body.from_, stream=body.stream, locale=body.locale)
    return contact_of(await _double_opt_in(call).ask_again(call.id, request))


async def import_contacts(call: Call, body: ContactImportIn) -> ContactImportReply:
    """Create and change up to 1,000 contacts."""
    result = await imports.import_contacts(
        call.services.pool,
        call.account_id,
        body.contacts,
        consent=body.consent,
        list_id=list_id(body.list, "list"),
        actor=call.actor,
    )
    return import_reply(call, result)


async def list_contacts(call: Call, query: ContactsQuery, page: Page) -> ContactPage:
    """Return a page of the account's contacts."""
    wanted = ContactFilters(
        before=page.before,
        list_id=list_id(query.list, "list"),
        search=None if query.search is None else search.checked_search(query.search),
        address=None if query.email is None else rules.checked_email(query.email)[1],
    )
    if wanted.list_id is not None:
        await lists_store.check_known(call.services.pool, call.account_id, [wanted.list_id])
    try:
        found = await store.page(call.services.pool, call.account_id, wanted, limit=page.limit)
    except TimeoutError:
        if query.search is None:
            raise unavailable() from None
        raise invalid("search", "The search took too long. Use a longer `search`.") from None
    data = [contact_of(row) for row in found.rows]
    return ContactPage(data, data[-1].id if found.has_more else None)


async def read(call: Call) -> Contact:
    """Return one contact."""
    return contact_of(await service.read(call.services.pool, call.account_id, call.id))


async def change(call: Call, body: ContactChange) -> Contact:
    """Change the given values of a contact."""
    row = await service.change(
        call.services.pool,
        call.account_id,
        call.id,
        name=UNSET if body.name is UNSET else rules.checked_name(body.name),
        fields=UNSET if body.fields is UNSET else rules.checked_changes(body.fields),
        actor=call.actor,
    )
    return contact_of(row)


async def delete(call: Call) -> None:
    """Delete a contact."""
    await service.delete(call.services.pool, call.account_id, call.id, actor=call.actor)


def new_contact(body: NewContactIn) -> NewContact:
    """Return the checked contact of a request; raise the 422 or 400 for an unusable one."""
    email, address = rules.checked_email(body.email)
    return NewContact(
        email=email,
        address=address,
        name=rules.checked_name(body.name),
        fields=rules.checked_fields(body.fields),
    )


def contact_of(row: ContactRow) -> Contact:
    """Return a stored contact as the API shows it."""
    return Contact(
        id=ids.format_id(ids.Kind.CONTACT, row.id),
        email=row.email,
        name=row.name,
        fields=rules.fields_of(row.fields),
        consent=Consent(row.consent),
        consent_at=clock.iso(row.consent_at),
        consent_by=row.consent_by,
        confirmed=row.confirmed,
        lists=[ids.format_id(ids.Kind.LIST, one) for one in row.lists],
        suppressed=row.suppression_reason is not None,
        suppression_reason=None if row.suppression_reason is None else Reason(row.suppression_reason),
        opted_out_of=[ids.format_id(ids.Kind.LIST, one) for one in row.opted_out_of],
        created_at=clock.iso(row.created_at),
        updated_at=clock.iso(row.updated_at),
    )


def import_reply(call: Call, result: ImportResult) -> ContactImportReply:
    """Return the result of an import as the API shows it."""
    refused = [RefusedContact(row.index, row.error) for row in result.invalid]
    item_errors.link(call, refused)
    return ContactImportReply(
        result.created,
        result.updated,
        result.unchanged,
        result.suppressed,
        result.over_limit,
        refused,
    )


def list_ids(texts: list[str]) -> list[UUID]:
    """Return the ids of lists, each once; raise the 400 for one of another kind."""
    found = [list_id(text, f"lists[{index}]") for index, text in enumerate(texts)]
    return list(dict.fromkeys(one for one in found if one is not None))


def list_id(text: str | None, field: str) -> UUID | None:
    """Return the id of a list, None if none is given; raise the 400 for one of another kind."""
    if text is None:
        return None
    try:
        return ids.parse_id(ids.Kind.LIST, text)
    except ids.WrongId as error:
        raise invalid(field, f"`{field}` must be the id of a list: {error}.") from None


def _double_opt_in(call: Call) -> DoubleOptIn:
    """Return the double opt-in of this request; raise the 403 for a key that may not send."""
    if call.caller is not None:
        check_scope(call.caller, ("emails:send",))
    origin = Origin(call.account_id, "api", call.reach, traceparent=call.traceparent)
    return DoubleOptIn(call.services.pool, call.services.acceptor, call.settings, origin)


_KEYS = Area(
    "Contacts",
    reads=("contacts:read",),
    writes=("contacts:write",),
    limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    id_of=ids.Kind.CONTACT,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/contacts",
        list_contacts,
        "List contacts",
        _KEYS,
        page=ids.Kind.CONTACT,
        limited_keys=LimitedKeys.FREE,
        refusals=(ErrorType.NOT_FOUND, ErrorType.INVALID_ADDRESS),
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/contacts",
        create,
        "Create a contact",
        _KEYS,
        note="Contacts are compared by canonical address: case and the notation of an international domain do not "
        "matter. An existing address is a 409 with the `id` of the contact.",
        limited_keys=LimitedKeys.OWN,
        success=201,
        max_body_bytes=MAX_CONTACT_BYTES,
        refusals=(
            ErrorType.CONFLICT,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.NOT_FOUND,
            *SEND_REFUSALS,
        ),
    ),
    Operation(
        "POST",
        "/v1/contacts/import",
        import_contacts,
        "Create and change up to 1,000 contacts",
        _KEYS,
        note="One transaction. A given name and given fields replace stored ones, lists grow, and `consent` never "
        "becomes weaker. At the plan's limit, contacts with known addresses are still changed.",
        max_body_bytes=MAX_IMPORT_BYTES,
        refusals=(ErrorType.NOT_FOUND,),
    ),
    Operation("GET", "/v1/contacts/{id}", read, "Read a contact", _KEYS, limited_keys=LimitedKeys.FREE),
    Operation(
        "PATCH",
        "/v1/contacts/{id}",
        change,
        "Change the name or fields of a contact",
        _KEYS,
        max_body_bytes=MAX_CONTACT_BYTES,
    ),
    Operation(
        "POST",
        "/v1/contacts/{id}/confirmation",
        ask_again,
        "Mail an unconfirmed contact another link to confirm",
        _KEYS,
        note=(
            "The previous link stops working. At most 5 emails per contact, one per minute. Needs `emails:send` too."
        ),
        limited_keys=LimitedKeys.OWN,
        success=202,
        refusals=(ErrorType.INVALID_STATE, *SEND_REFUSALS),
    ),
    Operation("DELETE", "/v1/contacts/{id}", delete, "Delete a contact; a suppression of its address stays", _KEYS),
)
