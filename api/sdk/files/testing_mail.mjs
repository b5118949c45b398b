// Mail as tests look at it, and mail from outside as tests write and send it.

import { AssertionError } from "node:assert";
import { randomBytes } from "node:crypto";
import { createConnection } from "node:net";

const TIMEOUT_MS = 30_000;
const URLS = /https?:\/\/[^\s<>"')\]]+/g;
const CODES = /(?<![\w/.-])\d{4,8}(?![\w/.-])/g;
const ANCHORS = /<a\s(?:[^>]*?\s)?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))/gi;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

// A mail that arrived in the sink. `raw` has it as it was sent, signature and all.
export class TwinMail {
  constructor({ id, messageId, envelope, subject, text, html, headers, attachments }, raw) {
    Object.assign(this, { id, messageId, sender: envelope.from, recipients: envelope.to });
    Object.assign(this, { subject: subject ?? "", text: text ?? "", html: html ?? "", headers, attachments });
    Object.defineProperty(this, "raw", { value: raw }); // not enumerable: a failed assertion need not print it
  }

  // The links of the HTML, then those of the text, each once.
  get links() {
    const shown = this.html.replace(/<!--[\s\S]*?-->/g, "");
    const anchors = Array.from(shown.matchAll(ANCHORS), ([, double, single, bare]) => decoded(double ?? single ?? bare));
    const printed = (this.text.match(URLS) ?? []).map((one) => one.replace(/[.,;:!?]+$/, ""));
    return [...new Set([...anchors.filter((one) => one.startsWith("http")), ...printed])];
  }

  // The one number of 4 to 8 digits in the text; throws AssertionError if there is none or more than one.
  get code() {
    const found = [...new Set(this.text.match(CODES) ?? [])];
    if (found.length === 1) return found[0];
    throw new AssertionError({ message: `the text has ${found.length} numbers of 4 to 8 digits: ${found.join(", ")}\n${this.text}` });
  }

  // Return the value of the first header field of this name, in any case; null if there is none.
  header(name) {
    return this.headers.find((one) => one.name.toLowerCase() === name.toLowerCase())?.value ?? null;
  }
}

function decoded(value) {
  return value.replace(/&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|(amp|lt|gt|quot|apos));/gi, (whole, hex, decimal, name) => {
    if (name) return ENTITIES[name.toLowerCase()];
    const point = hex ? parseInt(hex, 16) : Number(decimal);
    return point <= 0x10ffff ? String.fromCodePoint(point) : whole;
  });
}

// Return `{ content, messageId }` of a mail: of `raw`, or written from the rest.
export function written({ to, from, raw, subject = "Hello", text = "Hello.", replyTo = null, automatic = false }) {
  if (raw !== undefined) {
    const content = Buffer.from(raw);
    const [head] = content.toString("latin1").split(/\r?\n\r?\n/, 1);
    return { content, messageId: /^Message-ID:\s*(<[^>]*>)/im.exec(head)?.[1] ?? null };
  }
  const messageId = `<${randomBytes(12).toString("hex")}@${from.slice(from.lastIndexOf("@") + 1)}>`;
  const answered = replyTo?.header("Message-ID");
  const lines = [
    `From: ${from}`,
    `To: ${to}`,
    `Message-ID: ${messageId}`,
    `Subject: ${encoded(replyTo ? `Re: ${replyTo.subject}` : subject)}`,
    ...(answered ? [`In-Reply-To: ${answered}`, `References: ${answered}`] : []),
    ...(automatic ? ["Auto-Submitted: auto-replied"] : []),
    "MIME-Version: 1.0",
    "Content-Type: text/plain; charset=utf-8",
    "Content-Transfer-Encoding: base64",
    "",
    ...(Buffer.from(text.replace(/\r?\n/g, "\r\n")).toString("base64").match(/.{1,76}/g) ?? []),
    "",
  ];
  const broken = lines.find((line) => /[\r\n]/.test(line));
  if (broken !== undefined) throw new TypeError(`a header field may not have a line break: ${JSON.stringify(broken)}`);
  return { content: Buffer.from(lines.join("\r\n")), messageId };
}

// Encoded words have at most 75 characters (RFC 2047 2): 10 code points are 40 octets, or 56 characters in base64.
function encoded(subject) {
  if (/^[\x20-\x7e]*$/.test(subject)) return subject;
  const parts = [...subject].reduce((found, point, place) => (place % 10 ? [...found.slice(0, -1), found.at(-1) + point] : [...found, point]), []);
  return parts.map((part) => `=?utf-8?b?${Buffer.from(part).toString("base64")}?=`).join(" ");
}

// Send a mail to a port of this machine by SMTP; throws an Error with the reply if it is refused.
export async function sendMail(port, from, to, content) {
  const socket = createConnection({ host: "127.0.0.1", port });
  socket.setTimeout(TIMEOUT_MS, () => socket.destroy(new Error(`The MX did not reply within ${TIMEOUT_MS} ms.`)));
  const replies = repliesOf(socket);
  const say = async (line, expected) => {
    if (line !== null) socket.write(line);
    const { value: reply } = await replies.next();
    if (reply === undefined) throw new Error("The MX closed the connection.");
    if (!reply.startsWith(expected)) throw new Error(`The MX refused the mail to ${to}: ${reply}`);
  };
  try {
    await say(null, "220");
    await say("EHLO localhost\r\n", "250");
    await say(`MAIL FROM:<${from}>\r\n`, "250");
    await say(`RCPT TO:<${to}>\r\n`, "250");
    await say("DATA\r\n", "354");
    // Latin-1 keeps each octet: lines end with CRLF, and a dot at the start of one is doubled (RFC 5321 4.5.2).
    const lines = content.toString("latin1").replace(/\r?\n/g, "\r\n").replace(/^\./gm, "..");
    await say(Buffer.from(`${lines}${lines.endsWith("\r\n") ? "" : "\r\n"}.\r\n`, "latin1"), "250");
    await say("QUIT\r\n", "221");
  } finally {
    socket.destroy();
  }
}

// Yield the replies of a server, each with all its lines.
async function* repliesOf(socket) {
  let text = "";
  for await (const chunk of socket) {
    text += chunk.toString("utf8");
    for (let found; (found = /^(?:\d{3}-.*\r?\n)*\d{3}(?: .*)?\r?\n/.exec(text)); ) {
      text = text.slice(found[0].length);
      yield found[0].trimEnd();
    }
  }
}
