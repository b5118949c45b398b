// Code that sends a first message, by SMTP and by HTTP, with the reader's values. Pure functions.
import { snippet } from "./snippets.js";

/** Samples for SMTP: [key, name, text]; `at` is {host, starttlsPort, tlsPort, from, to, local}. */
export function smtpSamples(at) {
  return [
    ["swaks", "swaks", swaks(at)],
    ["python", "Python", pythonSmtp(at)],
    ["nodemailer", "Nodemailer", nodemailer(at)],
    ["django", "Django", django(at)],
    ["wordpress", "WordPress", wordpress(at)],
  ];
}

function swaks({ host, starttlsPort, from, to }) {
  return `swaks --server ${host}:${starttlsPort} --tls \\\n  --auth PLAIN --auth-user apikey --auth-password "$KEY" \\\n  --from ${from} --to ${to} \\\n  --header "Subject: Hello" --body "It works."`;
}

function pythonSmtp({ host, starttlsPort, from, to, local }) {
  const context = local ? "context = ssl._create_unverified_context()  # local mode only: its certificate is self-signed" : "context = ssl.create_default_context()";
  return `import os
import smtplib
import ssl
from email.message import EmailMessage

message = EmailMessage()
message["From"] = "${from}"
message["To"] = "${to}"
message["Subject"] = "Hello"
message.set_content("It works.")

${context}
with smtplib.SMTP("${host}", ${starttlsPort}) as server:
    server.starttls(context=context)
    server.login("apikey", os.environ["KEY"])
    server.send_message(message)`;
}

function nodemailer({ host, tlsPort, from, to, local }) {
  return `import nodemailer from "nodemailer";

const transport = nodemailer.createTransport({
  host: "${host}",
  port: ${tlsPort},
  secure: true,
  auth: { user: "apikey", pass: process.env.KEY },${local ? "\n  tls: { rejectUnauthorized: false }, // local mode only: its certificate is self-signed" : ""}
});
await transport.sendMail({
  from: "${from}",
  to: "${to}",
  subject: "Hello",
  text: "It works.",
});`;
}

function django({ host, starttlsPort, from }) {
  return `# settings.py
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST = "${host}"
EMAIL_PORT = ${starttlsPort}
EMAIL_USE_TLS = True
EMAIL_HOST_USER = "apikey"
EMAIL_HOST_PASSWORD = os.environ["KEY"]
DEFAULT_FROM_EMAIL = "${from}"`;
}

function wordpress({ host, starttlsPort, from }) {
  return `<?php // wp-content/mu-plugins/smtp.php
add_action('phpmailer_init', function ($mail) {
    $mail->isSMTP();
    $mail->Host = '${host}';
    $mail->Port = ${starttlsPort};
    $mail->SMTPSecure = 'tls';
    $mail->SMTPAuth = true;
    $mail->Username = 'apikey';
    $mail->Password = getenv('KEY');
    $mail->From = '${from}';
});`;
}

/** Samples for HTTP: [key, name, text]; `at` is {origin, from, to}. */
export function httpSamples({ origin, from, to }) {
  const body = { from, to: [to], subject: "Hello", text: "It works." };
  const made = { method: "POST", url: "/v1/emails", body };
  const requests = `import os

import requests

answer = requests.post(
    "${origin}/v1/emails",
    headers={"Authorization": f"Bearer {os.environ['KEY']}"},
    json={
        "from": "${from}",
        "to": ["${to}"],
        "subject": "Hello",
        "text": "It works.",
    },
    timeout=10,
)
answer.raise_for_status()
print(answer.json()["id"])`;
  return [["curl", "curl", snippet("curl", made, origin)], ["requests", "Python requests", requests], ["fetch", "JavaScript fetch", snippet("javascript", made, origin)]];
}
