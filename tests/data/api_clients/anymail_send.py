import json
import os
import sys

import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]
from django.core.mail import EmailMessage, get_connection  # type: ignore[import-untyped]

base, key, sender = (os.environ[name] for name in ("BASE", "KEY", "SENDER"))
settings.configure(
    INSTALLED_APPS=["anymail"],
    ANYMAIL={
        "RESEND_API_KEY": key,
        "RESEND_API_URL": f"{base}/v1/compat/resend/",
        "POSTMARK_SERVER_TOKEN": key,
        "POSTMARK_API_URL": f"{base}/v1/compat/postmark/",
    },
)
django.setup()
found = {}
for service in ("resend", "postmark"):
    connection = get_connection(f"anymail.backends.{service}.EmailBackend")
    mail = EmailMessage("Hi", "Hi", sender, ["ann@people.test"], connection=connection)
    mail.tags, mail.metadata = [service], {"order": 7}
    mail.send()
    found[service] = mail.anymail_status.message_id
sys.stdout.write(json.dumps(found))
