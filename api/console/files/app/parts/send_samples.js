// Code that sends a first message, by SMTP and by HTTP, with the reader's values. Pure functions.
import { snippet } from "./snippets.js";

/**
 * Samples for SMTP: [key, name, text]; `at` is {host, starttlsPort, tlsPort, open, from, to, local}. If the port is
 * `open` to programs on this machine, they use no TLS; the login says for which account they send.
 */
export function smtpSamples(at) {
  return [
    ["swaks", "swaks", swaks(at)],
    ["python", "Python", pythonSmtp(at)],
    ["nodemailer", "Nodemailer", nodemailer(at)],
    ["django", "Django", django(at)],
    ["wordpress", "WordPress", wordpress(at)],
  ];
}

function swaks({ host, starttlsPort, open, from, to }) {
  return `swaks --server ${host}:${starttlsPort}${open ? "" : " --tls"} \\\n  --auth PLAIN --auth-user apikey --auth-password "$KEY" \\\n  --from ${from} --to ${to} \\\n  --header "Subject: Hello" --body "It works."`;
}

function pythonSmtp({ host, starttlsPort, open, from, to }) {
  const tls = open ? "" : "    server.starttls(context=ssl.create_default_context())\n";
  return `import os
import smtplib
${open ? "" : "import ssl\n"}from email.message import EmailMessage

message = EmailMessage()
message["From"] = "${from}"
message["To"] = "${to}"
message["Subject"] = "Hello"
message.set_content("It works.")

with smtplib.SMTP("${host}", ${starttlsPort}) as server:
${tls}    server.login("apikey", os.environ["KEY"])
    server.send_message(message)`;
}

function nodemailer({ host, starttlsPort, tlsPort, open, from, to, local }) {
  const trust = local ? "\n  tls: { rejectUnauthorized: false }, // local mode only: its certificate is self-signed" : "";
  return `import nodemailer from "nodemailer";

const transport = nodemailer.createTransport({
  host: "${host}",
  port: ${open ? starttlsPort : tlsPort},${open ? "" : "\n  secure: true,"}
  auth: { user: "apikey", pass: process.env.KEY },${open ? "" : trust}
});
await transport.sendMail({
  from: "${from}",
  to: "${to}",
  subject: "Hello",
  text: "It works.",
});`;
}

function django({ host, starttlsPort, open, from }) {
  return `# settings.py
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST = "${host}"
EMAIL_PORT = ${starttlsPort}
${open ? "" : "EMAIL_USE_TLS = True\n"}EMAIL_HOST_USER = "apikey"
EMAIL_HOST_PASSWORD = os.environ["KEY"]
DEFAULT_FROM_EMAIL = "${from}"`;
}

function wordpress({ host, starttlsPort, open, from }) {
  return `<?php // wp-content/mu-plugins/smtp.php
add_action('phpmailer_init', function ($mail) {
    $mail->isSMTP();
    $mail->Host = '${host}';
    $mail->Port = ${starttlsPort};
${open ? "" : "    $mail->SMTPSecure = 'tls';\n"}    $mail->SMTPAuth = true;
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
