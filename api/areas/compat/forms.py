"""Errors, key header and paths of the compatible operations of each service."""

from typing import Final

from api.areas.compat import postmark_mapping, resend_mapping
from api.areas.compat.schemas import PostmarkError, ResendError
from api.http.operation import ErrorForm, HeaderField

RESEND_ERRORS: Final = ErrorForm(ResendError, resend_mapping.error_of)
POSTMARK_ERRORS: Final = ErrorForm(PostmarkError, postmark_mapping.error_of)
KEY_HEADER: Final = "X-Postmark-Server-Token"
KEY_HEADER_FIELD: Final = HeaderField(
    KEY_HEADER, "An API key of your account, instead of `Authorization`", "svc_live_.+"
)

POSTMARK_PATH: Final = "/v1/compat/postmark"
RESEND_PATH: Final = "/v1/compat/resend"
_OTHER_SPELLINGS: Final = {"/deliverystats": "/deliveryStats"}  # of Postmark's own client for Node.js


def aliases(path: str) -> list[str]:
    """Return the other paths of an operation for Postmark's clients; none for all other operations.

    Some, such as postmarker, join their base URL with `/email`, which leaves only its host (RFC 3986 5.2.2), and write
    a slash behind some paths. Postmark's own paths ignore case.
    """
    if not path.startswith(f"{POSTMARK_PATH}/"):
        return []
    bare = path.removeprefix(POSTMARK_PATH)
    spellings = dict.fromkeys((bare, _OTHER_SPELLINGS.get(bare, bare)))
    found = [f"{start}{one}{end}" for one in spellings for start in ("", POSTMARK_PATH) for end in ("", "/")]
    return [one for one in found if one != path]
