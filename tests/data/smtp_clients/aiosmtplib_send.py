import asyncio
import sys
from email.message import EmailMessage

import aiosmtplib

host, port, sender, recipient = sys.argv[1:]
message = EmailMessage()
message["From"], message["To"], message["Subject"] = sender, recipient, "Hello"
message.set_content("It works.")
asyncio.run(aiosmtplib.send(message, hostname=host, port=int(port)))
