"""Check email addresses and passwords of people. Pure."""

from collections.abc import Iterable

from zxcvbn import zxcvbn

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, parse_mailbox

MAX_EMAIL = 320
MIN_PASSWORD, MAX_PASSWORD = 10, 256
MIN_SCORE = 3  # of zxcvbn: safe against online attacks with rate limits
_JUDGED = 72  # zxcvbn's time grows quadratically, so only the beginning of longer passwords is rated


def checked_email(text: str, field: str = "email") -> str:
    """Return the address in canonical form and lower case; raise the 422 if it is invalid."""
    try:
        mailbox = parse_mailbox(text)
        if mailbox.name:
            raise BadAddress("Give the address without a name.")  # noqa: TRY301 - one refusal for both
    except BadAddress as error:
        shown = text[:MAX_EMAIL]
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"{shown!r} can't be used to sign in: {error}", address=shown, field=field
        ) from None
    if len(mailbox.address) > MAX_EMAIL:
        raise invalid(field, f"`{field}` has {len(mailbox.address)} characters; the limit is {MAX_EMAIL}. Shorten it.")
    return mailbox.address.lower()


def check_password(password: str, known: Iterable[str] = (), field: str = "password") -> None:
    """Raise the 400 for a password that is too short, too long or guessable; `known` are words about the person.

    Takes up to 30 ms (measured with 72 characters): call it outside the event loop.
    """
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise invalid(
            field, f"The password has {len(password)} characters; {MIN_PASSWORD} to {MAX_PASSWORD} are allowed."
        )
    if "\0" in password:
        raise invalid(field, "The password contains NUL (U+0000). Remove it.")
    found = zxcvbn(password[:_JUDGED], user_inputs=[word for word in known if word])
    if found["score"] < MIN_SCORE:
        advice = found["feedback"]["warning"] or "Add more words; uncommon words are better"
        raise invalid(field, f"The password is too easy to guess. {advice.rstrip('.')}.")
