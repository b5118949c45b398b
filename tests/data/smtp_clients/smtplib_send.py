import smtplib
import sys
from email.message import EmailMessage

host, port, sender, recipient = sys.argv[1:]
message = EmailMessage()
message["From"], message["To"], message["Subject"] = sender, recipient, "Hello"
message.set_content("It works.")
with smtplib.SMTP(host, int(port)) as server:
    server.send_message(message)
