// What an event of a waybill means, whose fault it is, and what to do. Pure functions.

const NOTHING = "You don't need to do anything.";
const WAIT = `${NOTHING} Waybill tries again automatically.`;
// By the class of an outcome (engine/delivery/reply_codes.py): whose side, what happened, what to do.
const CLASSES = {
  __proto__: null,
  user_unknown: ["them", "The mailbox does not exist.", "Remove the address from your list. It is suppressed, so nothing more is sent to it."],
  mailbox_disabled: ["them", "The mailbox is disabled.", "Remove the address from your list."],
  mailbox_unavailable: ["them", "The recipient's mail server rejects this mailbox without a reason.", "Check the address, or contact the person another way."],
  mailbox_full: ["them", "The mailbox is full.", WAIT],
  null_mx: ["them", "The recipient's domain doesn't accept email (null MX).", "Remove the address from your list."],
  relaying: ["them", "The mail server doesn't handle the recipient's domain; its MX record is wrong.", "Check the address. The domain's administrator must correct the record."],
  sender_refused: ["us", "The recipient's mail server rejects the sender's address.", "Check the From address and the records of its domain."],
  policy: ["us", "A policy of the recipient's mail server rejects the message.", "The reply names the rule. Check your domain's SPF, DKIM and DMARC records."],
  reputation: ["us", "The recipient's mail server rejects your email because of its sender's reputation.", "The reply usually names a page where you can request removal. Check your bounces and complaints."],
  auth: ["us", "The recipient's mail server couldn't verify that the message comes from your domain.", "Check the domain's records under Domains."],
  rate: ["them", "The recipient's mail server is limiting how much email it accepts.", `${NOTHING} Delivery continues more slowly.`],
  greylisted: ["them", "The recipient's mail server asks to retry later (greylisting).", WAIT],
  content: ["us", "The recipient's mail server objects to the content of the message.", "The reply says what it objects to."],
  size: ["us", "The message is larger than the recipient's mail server accepts.", "Send a link instead of the attachment."],
  smtputf8: ["them", "The recipient's mail server doesn't accept addresses with non-ASCII characters.", "Use an ASCII address for this person."],
  protocol: ["them", "The recipient's mail server violated the SMTP protocol.", WAIT],
  system: ["them", "The recipient's mail server has an internal error.", WAIT],
  unavailable: ["them", "The recipient's mail server is unavailable.", WAIT],
  network: ["them", "The recipient's mail server couldn't be reached, or didn't reply in time.", WAIT],
  dns: ["them", "The domain's mail servers weren't found in DNS.", "Check the spelling of the domain."],
  tls: ["them", "The recipient's domain requires a secure connection, and it failed.", "The domain's administrator must fix the certificate."],
  unknown_after_dot: ["them", "The connection broke after the content was sent. The recipient's mail server may have stored the message.", `${NOTHING} Waybill tries again, so the recipient may get the email twice.`],
  local: ["us", "An internal error occurred during delivery.", WAIT],
  unsigned: ["us", "The sending domain was deleted, so the message could not be signed.", "Add the domain again, then resend the message."],
  operator: ["us", "The operator of this instance ended the delivery.", "Ask the operator."],
  expired: ["us", "`deliverBy` passed before the message could be delivered.", "Send again with a later time."],
};

const SCOPES = {
  __proto__: null,
  recipient: ["them", "The recipient's mail server rejects this recipient.", "Check the address."],
  message: ["us", "The recipient's mail server rejects this message.", "The reply says what it objects to."],
  site: ["us", "The recipient's mail server currently rejects email from this instance.", "The reply gives the reason."],
  session: ["them", "The SMTP session failed.", WAIT],
};

/**
 * Return {who, what, next} for an outcome event: `who` is "them" (the recipient's side), "us" (the sender's side) or
 * null, `what` one sentence, `next` what to do (null: nothing).
 */
export function explained({ type, detail }) {
  if (type === "delivered") return { who: null, what: "The recipient's mail server accepted the message. It now decides between inbox and spam folder.", next: null };
  if (type === "complained") return { who: "us", what: "The recipient reported the message as spam.", next: "The address is suppressed permanently. Check that people asked for this email." };
  if (type === "suppressed") return { who: "us", what: "The address is on your suppression list, so nothing was sent to it.", next: "Open the suppression to see the cause." };
  if (type === "schedule_failed") return { who: "us", what: "The message couldn't be sent at its scheduled time.", next: "The detail gives the reason. Fix it and resend." };
  if (!["bounced", "deferred", "failed", "rejected"].includes(type)) return { who: null, what: null, next: null };
  const known = CLASSES[detail.class] ?? SCOPES[detail.scope];
  const [who, what, next] = known ?? ["them", "The recipient's mail server didn't accept the message.", "The reply gives the reason."];
  if (type === "deferred") return { who, what, next: WAIT };
  if (detail.late) return { who, what: `${what} It reported this after accepting the message.`, next };
  return { who, what, next: next.startsWith(NOTHING) ? "Send again if it still matters." : next };
}

/** Return who is at fault, in words. */
export const whose = (who) => ({ them: "On the recipient's side", us: "On your side" })[who] ?? null;

const TITLES = {
  __proto__: null,
  accepted: "Accepted",
  queued: "Queued",
  attempted: "Delivery attempt",
  delivered: "Delivered",
  deferred: "Deferred",
  bounced: "Bounced",
  complained: "Reported as spam",
  failed: "Failed",
  rejected: "Rejected",
  suppressed: "Suppressed",
  scheduled: "Scheduled",
  schedule_canceled: "Schedule canceled",
  schedule_failed: "Scheduled send failed",
};

/** Return the title of an event in words. */
export const eventTitle = (type) => TITLES[type] ?? type.replaceAll("_", " ");

const STEPS = { __proto__: null, connect: "Connect", greeting: "Greeting", ehlo: "EHLO", tls: "TLS handshake", mail: "MAIL FROM", rcpt: "RCPT TO", data: "DATA", body: "Content and final dot", quit: "QUIT", rset: "RSET" };

/** Return the name of a step of an SMTP conversation. */
export const stepName = (step) => STEPS[step] ?? step;

/** Return the milliseconds of all steps of an attempt. */
export const attemptMs = (conversation) => (conversation ?? []).reduce((sum, step) => sum + (step.ms ?? 0), 0);
