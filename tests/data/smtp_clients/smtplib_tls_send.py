import os
import smtplib
import ssl
import sys
from email.message import EmailMessage

host, port, sender, recipient = sys.argv[1:]
message = EmailMessage()
message["From"], message["To"], message["Subject"] = sender, recipient, "Hello"
message.set_content("It works.")
with smtplib.SMTP_SSL(host, int(port), context=ssl.create_default_context()) as server:
    server.login("apikey", os.environ["KEY"])
    server.send_message(message)
