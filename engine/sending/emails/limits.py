"""The limits of a send request; texts of the API and errors are built from them, and guides are tested against them."""

from typing import Final

MAX_RECIPIENTS: Final = 50
MAX_ENTRIES: Final = 200  # in `to`, `cc` and `bcc`, duplicates included: parsing an unusual address takes 0.1 ms
MAX_ADDRESS: Final = 320  # characters, as are the next ones
MAX_SUBJECT: Final = 998  # RFC 5322 2.1.1
MAX_BODY: Final = 5_000_000
MAX_LIST_UNSUBSCRIBE: Final = 1_000
MAX_HEADERS: Final = 100
MAX_HEADER_NAME, MAX_HEADER_VALUE = 200, 2_000
MAX_TAGS: Final = 10
MAX_TAG: Final = 64
MAX_METADATA: Final = 50
MAX_METADATA_VALUE: Final = 512
MAX_VARIABLES: Final = 500
MAX_VARIABLE: Final = 5_000
MAX_ATTACHMENTS: Final = 100
MAX_FILE_NAME, MAX_FILE_TYPE = 255, 200
MAX_CONTENT: Final = 13_981_016  # base64 characters of one attachment: 10 MiB
MAX_IDEMPOTENCY_KEY: Final = 255
IDEMPOTENCY_DAYS: Final = 30  # after this, the same idempotencyKey starts a new message
MAX_CONTENT_HOURS: Final = 720  # from the last outcome to the deletion of content
AT_ONCE_S: Final = 60  # a message scheduled less than this ahead is sent immediately
MAX_MESSAGES: Final = 100  # of a batch
