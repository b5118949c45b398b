"""What an address and a password must be. Pure."""

from collections.abc import Iterable

from zxcvbn import zxcvbn

from engine.base.errors import ErrorType, Refusal, invalid
from engine.mail.address import BadAddress, parse_mailbox

MAX_EMAIL = 320
MIN_PASSWORD, MAX_PASSWORD = 10, 256
MIN_SCORE = 3  # of zxcvbn: "safely unguessable" to a throttled attacker
_JUDGED = 72  # zxcvbn's time grows with the square; what is longer is judged by its beginning


def checked_email(text: str, field: str = "email") -> str:
    """The address as people are known by it: its canonical form in lower case; 422 when it is none."""
    try:
        mailbox = parse_mailbox(text)
        if mailbox.name:
            raise BadAddress("Give the address alone, without a name.")  # noqa: TRY301 - one refusal for both
    except BadAddress as error:
        shown = text[:MAX_EMAIL]
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"{shown!r} is no address to sign in with: {error}", address=shown, field=field
        ) from None
    if len(mailbox.address) > MAX_EMAIL:
        raise invalid(field, f"`{field}` has at most {MAX_EMAIL} characters.")
    return mailbox.address.lower()


def check_password(password: str, known: Iterable[str] = (), field: str = "password") -> None:
    """Refuse a password that is too short, too long or guessable; `known` are words about its person.

    Takes up to 30 ms (measured with 72 characters): call it off the event loop.
    """
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise invalid(field, f"A password has {MIN_PASSWORD} to {MAX_PASSWORD} characters.")
    if "\0" in password:
        raise invalid(field, "A password must not hold NUL.")
    found = zxcvbn(password[:_JUDGED], user_inputs=[word for word in known if word])
    if found["score"] < MIN_SCORE:
        advice = found["feedback"]["warning"] or "Add another word or two; uncommon words are better"
        raise invalid(field, f"This password is too easy to guess. {advice.rstrip('.')}.")
