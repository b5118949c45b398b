// What an event of a waybill means, whose fault it is, and what to do. Pure functions.

const WAIT = "Nothing to do: the delivery is tried again.";
// By the class of an outcome (engine/delivery/reply_codes.py): whose side, what happened, what to do.
const CLASSES = {
  __proto__: null,
  user_unknown: ["them", "The mailbox does not exist.", "Remove the address from your list; it is suppressed, so further mail to it is not tried."],
  mailbox_disabled: ["them", "The mailbox is disabled.", "Remove the address from your list."],
  mailbox_unavailable: ["them", "The server refuses this mailbox and gives no reason.", "Check the address; write to the person another way."],
  mailbox_full: ["them", "The mailbox is full.", WAIT],
  null_mx: ["them", "The recipient's domain says that it takes no mail (null MX).", "Remove the address from your list."],
  relaying: ["them", "The server does not serve the recipient's domain: its MX record is wrong.", "Check the address; the domain's administrator must correct the record."],
  sender_refused: ["us", "The server refuses the sender's address.", "Check the From address and the records of its domain."],
  policy: ["us", "A policy of the server refuses the message.", "The text of the reply names the rule. Check the domain's SPF, DKIM and DMARC records."],
  reputation: ["us", "The server refuses mail from this service or domain because of its reputation.", "The text of the reply usually names a page on which to ask for delisting. Look at bounces and complaints."],
  auth: ["us", "The server could not verify that the message comes from your domain.", "Check the records of the domain under Domains."],
  rate: ["them", "The server limits how much mail it takes now.", "Nothing to do: delivery slows down and goes on."],
  greylisted: ["them", "The server asks to try again later (greylisting).", WAIT],
  content: ["us", "The server objects to the content of the message.", "The text of the reply says to what."],
  size: ["us", "The message is larger than the server takes.", "Send a link instead of the attachment."],
  smtputf8: ["them", "The server takes no addresses with characters beyond ASCII.", "Use an ASCII address of the person."],
  protocol: ["them", "The server broke the rules of SMTP.", WAIT],
  system: ["them", "The server has a fault of its own.", WAIT],
  unavailable: ["them", "The server is not available now.", WAIT],
  network: ["them", "The server could not be reached, or did not answer in time.", WAIT],
  dns: ["them", "The mail servers of the domain could not be found in DNS.", "Check the spelling of the domain."],
  tls: ["them", "A secure connection failed, which the recipient's domain requires.", "The domain's administrator must mend the certificate."],
  unknown_after_dot: ["them", "The connection broke after the content: the server may have stored the message.", "Nothing to do: the next attempt may deliver a second copy."],
  local: ["us", "This service had a fault while it delivered.", WAIT],
  unsigned: ["us", "The sending domain was deleted, so the message could not be signed.", "Add the domain again, and send the message again."],
  operator: ["us", "The operator of this service ended the delivery.", "Ask the operator."],
  expired: ["us", "`deliverBy` passed while the message waited.", "Send again with a later time."],
};

const SCOPES = {
  __proto__: null,
  recipient: ["them", "The server refuses this recipient.", "Check the address."],
  message: ["us", "The server refuses this message.", "The text of the reply says what it objects to."],
  site: ["us", "The server refuses mail from this service now.", "The text of the reply names the reason."],
  session: ["them", "The session with the server failed.", "Nothing to do: the delivery is tried again."],
};

/**
 * Return {who, what, next} for an outcome event: `who` is "them" (the recipient's side), "us" (the sender's side) or
 * null, `what` one sentence, `next` what to do (null: nothing).
 */
export function explained({ type, detail }) {
  if (type === "delivered") return { who: null, what: "The recipient's server took the message. From here on it decides between inbox and spam folder.", next: null };
  if (type === "complained") return { who: "us", what: "The recipient reported the message as spam.", next: "The address is suppressed for good. Check that people asked for this mail." };
  if (type === "suppressed") return { who: "us", what: "The address is on your suppression list, so nothing was sent to it.", next: "Look at the suppression: it names the cause." };
  if (type === "schedule_failed") return { who: "us", what: "The message could not be sent at its time.", next: "The detail names the reason; correct it and send again." };
  if (!["bounced", "deferred", "failed", "rejected"].includes(type)) return { who: null, what: null, next: null };
  const known = CLASSES[detail.class] ?? SCOPES[detail.scope];
  const [who, what, next] = known ?? ["them", "The recipient's server did not take the message.", "The text of the reply names the reason."];
  if (type === "deferred") return { who, what, next: WAIT };
  if (detail.late) return { who, what: `${what} The server said so after it had taken the message.`, next };
  return { who, what, next: next.startsWith("Nothing to do") ? "Send again if it still matters." : next };
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
