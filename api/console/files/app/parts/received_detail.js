// One received mail: sender, verdicts, bodies, attachments, conversation, what its route did, and actions.
import { call, download, useAction, useCall } from "../core/api.js";
import { href, setQuery, location } from "../core/router.js";
import { Button, Card, Chip, Confirm, CopyLine, Dialog, ErrorNote, Facts, Menu, Notice, PageHead, Skeleton, Tabs, Time, toast } from "../core/ui.js";
import { bytes, html, useEffect, useState, undirected } from "../core/view.js";
import { ReceivedAttachments } from "./received_attachments.js";
import { ReceivedHtml, ReceivedSource } from "./received_bodies.js";
import { Reply } from "./received_reply.js";
import { senderOf } from "./received_list.js";
import { VerdictList } from "./received_verdicts.js";

/**
 * A received mail. It is marked read when shown. `page`: it has the page to itself. `onRead(id)`, `onChanged()` and
 * `onGone()` tell the list beside it.
 */
export function ReceivedDetail({ id, page = false, onRead, onChanged, onGone }) {
  const state = useCall("GET /v1/inbound/messages/{id}", { path: { id } });
  const mail = state.data;
  const [open, setOpen] = useState(null); // "reply", "replay" or "delete"
  const [mark, marking] = useAction((read) => call("POST /v1/inbound/messages/{id}/read", { path: { id }, body: { read } }));
  useEffect(() => {
    if (mail && !mail.read) mark(true).then((done) => { if (done !== undefined) onRead?.(id); });
  }, [Boolean(mail)]);
  const [spam, spamming] = useAction((value) => call("POST /v1/inbound/messages/{id}/spam", { path: { id }, body: { spam: value } }));
  if (!mail) return html`${page && html`<${PageHead} title="Received message" back=${["/inbox", "Inbox"]} />`}${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  const after = async (text) => {
    toast(text);
    await state.reload();
    onChanged?.();
  };
  const setSpam = async (value, text) => { if ((await spam(value)) !== undefined) after(text); };
  const unread = async () => { if ((await mark(false)) !== undefined) { toast("Marked unread"); onChanged?.(); } };
  const items = [
    { text: "Mark unread", icon: "mail", onSelect: unread },
    mail.spamOverride !== null && { text: "Use the spam score again", icon: "gauge", onSelect: () => setSpam(null, "The spam score decides again") },
    { text: "Rerun its route", icon: "route", onSelect: () => setOpen("replay") },
    { text: "Download as .eml", icon: "download", onSelect: () => save(mail) },
    { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setOpen("delete") },
  ];
  const actions = html`<${Button} kind="primary" icon="reply" role="member" onClick=${() => setOpen("reply")}>Reply<//>
    <${Button} icon=${mail.spam ? "shield-check" : "ban"} role="member" busy=${spamming.busy} onClick=${() => setSpam(!mail.spam, mail.spam ? "Marked as not spam" : "Marked as spam")}>${mail.spam ? "Not spam" : "Spam"}<//><${Menu} label="More actions" kind="plain" items=${items} />`;
  const subject = undirected(mail.subject) || "(no subject)";
  return html`${page ? html`<${PageHead} title=${subject} back=${["/inbox", "Inbox"]} actions=${actions} />` : html`<div class="detail-head"><h2 class="wrap grow">${subject}</h2><div class="row">${actions}</div></div>`}
    <div class="stack"><${ErrorNote} error=${spamming.error ?? marking.error} />
      <${Envelope} mail=${mail} /><${Warnings} mail=${mail} /><${Bodies} mail=${mail} /><${ReceivedAttachments} mail=${mail} />
      <${Thread} id=${id} /><${RouteResult} mail=${mail} /></div>
    ${open === "reply" && html`<${Reply} mail=${mail} onClose=${(sent) => { setOpen(null); if (sent) { toast("Reply sent"); onChanged?.(); state.reload(); } }} />`}
    ${open === "replay" && html`<${Replay} mail=${mail} onClose=${() => setOpen(null)} />`}
    ${open === "delete" && html`<${Confirm} title=${`Delete “${subject}”?`} confirm="Delete" action=${() => call("DELETE /v1/inbound/messages/{id}", { path: { id } })} onClose=${(done) => { setOpen(null); if (done) { toast("Message deleted"); onGone(); } }}>The message from ${senderOf(mail)} and its attachments are deleted for everyone in the account.<//>`}`;
}

const save = (mail) => download("GET /v1/inbound/messages/{id}/raw", { path: { id: mail.id } }, `${mail.id}.eml`).catch((error) => toast(error.message, { tone: "bad" }));

const person = (one) => (one === null ? "–" : one.name ? `${undirected(one.name)} <${one.address ?? "no address"}>` : one.address ?? "–");

function Envelope({ mail }) {
  const answers = mail.repliesTo && html`<a href=${href(`/messages/${mail.repliesTo}`)}>your message</a>`;
  return html`<${Card}><div class="stack-tight"><${Facts} items=${[
    ["From", person(mail.from)],
    ["Reply to", mail.replyTo && person(mail.replyTo)],
    ["To", mail.to.map(person).join(", ") || "–"],
    ["Cc", mail.cc.length > 0 ? mail.cc.map(person).join(", ") : null],
    ["Received at", html`${mail.recipient}${mail.tag ? html` <span class="soft">(tag ${mail.tag})</span>` : ""}${mail.address !== mail.recipient ? html` <span class="soft">by ${mail.address}</span>` : ""}`],
    ["Received", html`<${Time} at=${mail.receivedAt} /> <span class="soft">${bytes(mail.sizeBytes)}</span>`],
    ["Answers", answers],
    ["Automatic", mail.autoSubmitted && "Written by a program, such as a bounce or an out-of-office reply"],
    ["Bulk", mail.bulk && "Sent to many, such as a newsletter or a mailing list"],
  ]} /><${VerdictList} mail=${mail} /></div><//>`;
}

function Warnings({ mail }) {
  if (mail.warnings.length === 0) return null;
  return html`<${Notice} tone="warn" title="Unusual about this message:"><ul>${mail.warnings.map((one) => html`<li key=${one.code}>${one.text}</li>`)}</ul><//>`;
}

function Bodies({ mail }) {
  const items = [mail.html !== null && ["html", "HTML"], mail.text !== null && ["text", "Text"], mail.replyText && mail.replyText !== mail.text && ["reply", "Reply only"], ["headers", "Headers"], ["source", "Source"]].filter(Boolean);
  const wanted = location.value.query.get("body_tab");
  const tab = items.some(([key]) => key === wanted) ? wanted : items[0][0];
  if (mail.contentErased) return html`<${Notice} tone="info">The content was deleted once the message was posted or forwarded, because its route doesn't retain it.<//>`;
  return html`<section aria-label="Content"><${Tabs} label="Content" items=${items} current=${tab} onSelect=${(key) => setQuery({ body_tab: key === items[0][0] ? null : key })} />
    ${mail.htmlOmitted && html`<${Notice} tone="info">The HTML isn't shown: ${mail.htmlOmitted}. Read the text or the source.<//>`}
    ${tab === "html" && html`<${ReceivedHtml} mail=${mail} />`}
    ${tab === "text" && html`<pre class="mail-text card card-body" tabindex="0" aria-label="Text">${mail.text}</pre>`}
    ${tab === "reply" && html`<pre class="mail-text card card-body" tabindex="0" aria-label="Reply only">${mail.replyText}</pre>`}
    ${tab === "headers" && html`<div class="card table-frame" tabindex="0" role="region" aria-label="Headers"><table class="table"><caption class="visually-hidden">Headers</caption><tbody>${mail.headers.map((field) => html`<tr><th scope="row">${field.name}</th><td class="mono">${field.value}</td></tr>`)}</tbody></table></div>`}
    ${tab === "source" && html`<${ReceivedSource} id=${mail.id} />`}</section>`;
}

function Thread({ id }) {
  const { data } = useCall("GET /v1/inbound/messages/{id}/thread", { path: { id } }, { pollMs: true });
  if (!data || data.data.length < 2) return null;
  return html`<${Card} title="Conversation" flush>${!data.complete && html`<p class="card-body soft">Older messages are left out.</p>`}<ol class="thread">${data.data.map((one) => html`<li key=${one.id} class=${one.id === id ? "current" : ""}>
    <div class="row-wide"><a class="grow cut" aria-current=${one.id === id ? "true" : undefined} href=${href(one.type === "sent" ? `/messages/${one.id}` : `/inbox/${one.id}`)}>${one.type === "sent" ? "You" : undirected(one.from) ?? "Unknown sender"}: ${undirected(one.subject) || "(no subject)"}</a><span class="row">${one.status && html`<${Chip}>${one.status}<//>`}<span class="small soft"><${Time} at=${one.at} relative /></span></span></div>
    ${one.snippet && html`<div class="small soft cut">${one.snippet}</div>`}</li>`)}</ol><//>`;
}

const ACTIONS = { mailbox: "Kept in the inbox", webhook: "Sent to webhooks", both: "Kept in the inbox and sent to webhooks", forward: "Forwarded" };
const FORWARD_ERRORS = {
  infected: "a virus was found",
  unscanned: "an attachment could not be scanned for viruses",
  spam: "it counts as spam",
  loop: "it was forwarded here before, so it would loop",
  forged_sender: "its sender couldn't be verified",
  address_not_allowed: "the forwarding address is no longer confirmed",
  account_suspended: "the account is suspended",
  failed: "sending failed",
};

function RouteResult({ mail }) {
  const failed = mail.forwardError && `Not forwarded, because ${FORWARD_ERRORS[mail.forwardError] ?? mail.forwardError.replaceAll("_", " ")}; it stays in the inbox.`;
  return html`<${Card} title="Route and envelope"><${Facts} items=${[
    ["Route", html`${ACTIONS[mail.action] ?? mail.action}${mail.fallback ? html` <${Chip} tone="warn">route could not be followed<//>` : ""}`],
    ["Why", mail.fallback ? "No active webhook endpoint or forwarding address was available, so it stays in the inbox. Check the route of its address." : null],
    ["Forwarding", failed || (mail.forwardedAs && html`<a href=${href(`/messages/${mail.forwardedAs}`)}>${mail.forwardedAs}</a>`) || null],
    ["Envelope sender", html`<span class="mono">${mail.envelopeFrom || "<> (a notice)"}</span>`],
    ["Client", html`<span class="mono">${mail.remoteIp}</span> as <span class="mono">${mail.helo}</span>`],
    ["TLS", mail.tls ?? "none"],
    ["Message-ID", mail.headerMessageId && html`<span class="mono">${mail.headerMessageId}</span>`],
    ["First read", mail.readAt && html`<${Time} at=${mail.readAt} />`],
    ["Id", html`<${CopyLine} text=${mail.id} />`],
  ]} /><//>`;
}

function Replay({ mail, onClose }) {
  const [run, { busy, error }] = useAction(() => call("POST /v1/inbound/messages/{id}/replay", { path: { id: mail.id } }));
  const [done, setDone] = useState(null);
  const press = async () => {
    const reply = await run();
    if (reply !== undefined) setDone(reply);
  };
  const foot = done ? html`<${Button} kind="primary" onClick=${onClose}>Done<//>` : html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="route" role="member" busy=${busy} onClick=${press}>Rerun route<//>`;
  return html`<${Dialog} title="Rerun the route" onClose=${onClose} foot=${foot}>
    ${done
      ? html`<p>${ACTIONS[done.action] ?? done.action}.</p><${Facts} items=${[["Webhooks", done.webhookIds.length ? done.webhookIds.map((one) => html`<div><a href=${href(`/webhooks/${one}`)}>${one}</a></div>`) : null], ["Forwarded to", done.forwardTo], ["Delivery id", html`<${CopyLine} text=${done.id} />`]]} />`
      : html`<p>The current route of ${mail.address} applies. Webhook posts have the same delivery id as before, so you can detect duplicates. Forwarding sends a new message, which counts as a send.</p>`}
    <${ErrorNote} error=${error} /><//>`;
}
