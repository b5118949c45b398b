import sys

from django.conf import settings  # type: ignore[import-untyped]
from django.core.mail import send_mail  # type: ignore[import-untyped]

host, port, sender, recipient = sys.argv[1:]
settings.configure(EMAIL_HOST=host, EMAIL_PORT=int(port))
send_mail("Hello", "It works.", sender, [recipient])
