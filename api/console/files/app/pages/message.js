// One message: its waybill, content, source and recipients, and what can be done with it.
import { ApiError, call, download, useAction, useCall, whyNot } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Code, Confirm, COPY_REFUSED, CopyLine, copyText, Dialog, ErrorNote, Facts, fieldError, Form, HeadActions, Menu, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { isDark } from "../core/shell.js";
import { Table } from "../core/table.js";
import { bytes, html, instant, localTime, plural, serviceNow, useEffect, useState, undirected, zone } from "../core/view.js";
import { DeliveryCertificate } from "../parts/delivery_certificate.js";
import { Preview } from "../parts/preview.js";
import { blocks, Waybill } from "../parts/waybill.js";

const SETTLED = new Set(["delivered", "bounced", "complained", "failed", "rejected", "canceled"]);
const POLL_MS = 2000;
const FORGOTTEN = "The content was deleted after delivery, because this message doesn't retain it. Its record stays.";

const isSettled = (message) => SETTLED.has(message.status) && message.recipients.every((one) => SETTLED.has(one.status));

async function copyLink() {
  if (await copyText(window.location.href)) toast("Link copied");
  else toast(COPY_REFUSED, { tone: "bad" });
}

export function Message({ id, service }) {
  const [settled, setSettled] = useState(false);
  const state = useCall("GET /v1/messages/{id}", { path: { id } }, { pollMs: settled ? false : POLL_MS });
  const tab = location.value.query.get("tab") ?? "waybill";
  const message = state.data;
  useEffect(() => { if (message) setSettled(isSettled(message)); }, [message]);
  if (!message && state.error) return html`<${PageHead} title="Message" back=${["/messages", "Messages"]} /><${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!message) return html`<${PageHead} title="Message" back=${["/messages", "Messages"]} /><${Skeleton} lines=${8} />`;
  const tabs = [["waybill", "Waybill"], ["preview", "Preview"], ["source", "Source"], ["recipients", `Recipients (${message.recipients.length})`], ["details", "Details"], service.local && ["received", "In the sink"]].filter(Boolean);
  const View = { __proto__: null, waybill: WaybillTab, preview: PreviewTab, source: SourceTab, recipients: RecipientsTab, details: DetailsTab, received: SinkTab }[tab] ?? WaybillTab;
  return html`<${PageHead} title=${undirected(message.subject) || "(no subject)"} back=${["/messages", "Messages"]} chip=${html`<${Chip}>${message.status}<//>`} actions=${html`<${Actions} message=${message} onChange=${state.reload} />`} />
    <div class="message-line row small"><span><span class="soft">From</span> <span class="wrap">${message.from}</span></span> <span><span class="soft">to</span> <span class="wrap">${shortList(message.to)}</span></span> <${Time} at=${message.createdAt} /> <${CopyLine} text=${message.id} label="Copy the id" /></div>
    ${state.error && html`<${ErrorNote} error=${state.error} retry=${state.reload} />`}
    <${Tabs} label="Parts of the message" items=${tabs} current=${tab} onSelect=${(key) => setQuery({ tab: key === "waybill" ? null : key })} />
    <${View} message=${message} />`;
}

const shortList = (addresses) => (addresses.length > 2 ? `${addresses[0]} and ${addresses.length - 1} more` : addresses.join(", ")) || "(bcc only)";

function Actions({ message, onChange }) {
  const [dialog, setDialog] = useState(null);
  const [resend, { busy, error, clear }] = useAction(() => call("POST /v1/messages/{id}/resend", { path: { id: message.id } }));
  const again = async () => {
    const made = await resend();
    if (!made) return;
    toast("Resent as a new message");
    go(`/messages/${made.id}`);
  };
  const scheduled = message.status === "scheduled";
  const hopeless = message.waybill.some(blocks); // sending it again is refused for an address that is suppressed
  const items = [
    !scheduled && hopeless && { text: "Send again", icon: "rotate-ccw", why: whyNot("member"), onSelect: again },
    { text: "Copy the link to this page", icon: "link", onSelect: copyLink },
    { text: "Download the source (.eml)", icon: "download", onSelect: () => download("GET /v1/messages/{id}/raw", { path: { id: message.id } }, `${message.id}.eml`).catch(report) },
    isSettled(message) && { text: "Delivery certificate", icon: "shield-check", onSelect: () => setDialog("certificate") },
    message.recipients.length === 1 && { text: "Messages to this recipient", icon: "search", to: "/messages", query: { to: message.recipients[0].address } },
  ].filter(Boolean);
  const close = (changed) => {
    setDialog(null);
    if (changed) onChange();
  };
  return html`<${HeadActions}>${scheduled && html`<${Button} icon="calendar" role="member" onClick=${() => setDialog("reschedule")}>Reschedule<//><${Button} danger role="member" onClick=${() => setDialog("cancel")}>Cancel message<//>`}
    ${!scheduled && !hopeless && html`<${Button} icon="rotate-ccw" role="member" busy=${busy} onClick=${again}>Send again<//>`}
    <${Menu} label="More" items=${items} kind="plain" /><//>
    ${dialog === "reschedule" && html`<${Reschedule} message=${message} onClose=${close} />`}
    ${dialog === "cancel" && html`<${Confirm} title="Cancel this scheduled message?" confirm="Cancel message" action=${() => call("DELETE /v1/emails/{id}/schedule", { path: { id: message.id } })} onClose=${close}>It won't be sent. Its record is kept.<//>`}
    ${dialog === "certificate" && html`<${DeliveryCertificate} id=${message.id} onClose=${() => close(false)} />`}
    ${error && html`<${Dialog} title="The message was not resent" onClose=${clear}><${ErrorNote} error=${error} /><//>`}`;
}

function report(error) {
  if (!(error instanceof ApiError)) throw error;
  toast(error.message, { tone: "bad" });
}

function Reschedule({ message, onClose }) {
  const [at, setAt] = useState(localTime(message.scheduledAt ?? serviceNow()).slice(0, 16));
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/emails/{id}/schedule", { path: { id: message.id }, body: { scheduledAt: instant(at) } }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast("Rescheduled");
    onClose(true);
  };
  return html`<${Dialog} title="Reschedule" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Reschedule<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Send at" type="datetime-local" required value=${at} onValue=${setAt} hint=${`In your time zone, ${zone.value}. A time in the past sends it immediately.`} error=${fieldError(error, "scheduledAt")} /><${ErrorNote} error=${error} fields=${["scheduledAt"]} /><//>
  <//>`;
}

function WaybillTab({ message }) {
  const [only, setOnly] = useState("");
  const several = message.recipients.length > 1;
  const { forecast } = message;
  return html`${forecast && html`<${Notice} tone=${forecast.warning ? "warn" : "info"}>${forecast.text}${forecast.warning && ` ${forecast.warning}`}<//>`}
    ${several && html`<div class="toolbar"><${SelectField} label="Recipient" hideLabel value=${only} onValue=${setOnly} options=${[["", "All recipients"], ...message.recipients.map((one) => [one.address, `${one.address}: ${one.status}`])]} /></div>`}
    ${message.waybill.length === 0 ? html`<${Notice}>The events of this message are older than your plan's retention and were deleted.<//>` : html`<div class="card card-body"><${Waybill} events=${message.waybill} waits=${message.waits} only=${only || null} /></div>`}
    ${!SETTLED.has(message.status) && html`<p class="small soft note" role="status">Watching: new events appear here.</p>`}`;
}

function PreviewTab({ message }) {
  if (message.contentErased && !message.retainContent && SETTLED.has(message.status)) return html`<${Notice}>${FORGOTTEN}<//>`;
  if (message.html === null && message.text === null) return html`<${Notice}>The content is no longer stored, or isn't shown for this kind of message.<//>`;
  return html`<${Preview} html=${message.html} text=${message.text} dark=${isDark()} title="HTML of the message" />`;
}

function SourceTab({ message }) {
  const [state, setState] = useState({ text: null, error: null });
  useEffect(() => {
    call("GET /v1/messages/{id}/raw", { path: { id: message.id }, raw: true, accept: "message/rfc822" }).then(async (answer) => setState({ text: await answer.text(), error: null }), (error) => setState({ text: null, error }));
  }, [message.id]);
  if (state.error && message.contentErased && !message.retainContent) return html`<${Notice}>${FORGOTTEN}<//>`;
  if (state.error) return html`<${ErrorNote} error=${state.error} />`;
  if (state.text === null) return html`<${Skeleton} />`;
  const end = state.text.search(/\r?\n\r?\n/);
  return html`<div class="stack"><h2>Headers</h2><${Code} text=${state.text.slice(0, end)} label="Headers" /><h2>Body</h2><${Code} text=${state.text.slice(end).trim().slice(0, 200_000)} label="Body" /></div>`;
}

function RecipientsTab({ message }) {
  const columns = [
    { title: "Recipient", cell: (row) => html`<span class="wrap">${row.address}</span>` },
    { title: "As", cell: (row) => row.kind },
    { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` },
    { title: "Attempts", end: true, cell: (row) => row.attempts },
    { title: "Last reply", cell: (row) => html`<code class="wrap">${row.lastResponse ?? "–"}</code>` },
    { title: "Next attempt", cell: (row) => (row.nextAttemptAt ? html`<${Time} at=${row.nextAttemptAt} relative />` : html`<span class="soft">–</span>`) },
  ];
  return html`<${Table} label="Recipients" columns=${columns} rowKey=${(row) => `${row.kind} ${row.address}`} state=${{ rows: message.recipients, loading: false, error: null }} />`;
}

function DetailsTab({ message }) {
  const metadata = Object.entries(message.metadata);
  return html`<div class="columns">
    <${Card} title="Message"><${Facts} items=${[["Source", message.source], ["Stream", message.stream], ["Template", message.template && html`<a href=${href(`/templates/${message.template}`)}>${message.template}</a>${` version ${message.templateVersion}`}`], ["Size", bytes(message.sizeBytes)], ["Content", retention(message)], ["Created", html`<${Time} at=${message.createdAt} />`], message.scheduledAt && ["Scheduled", html`<${Time} at=${message.scheduledAt} />`], message.deliveredAt && ["Delivered", html`<${Time} at=${message.deliveredAt} />`], message.replyTo && ["Reply to", message.replyTo], message.traceparent && ["Trace", html`<code>${message.traceparent.split("-")[1]}</code>`], message.resentFrom && ["Resent from", html`<a href=${href(`/messages/${message.resentFrom}`)}>${message.resentFrom}</a>`], ["Tags", message.tags.length ? html`<span class="row">${message.tags.map((tag) => html`<a href=${href("/messages", { tag })}><${Chip} tone="accent">${tag}<//></a>`)}</span>` : null]]} /><//>
    <${Card} title="Metadata">${metadata.length ? html`<${Facts} items=${metadata.map(([name, value]) => [name, html`<span class="wrap">${value}</span>`])} />` : html`<p class="soft">This message has no metadata.</p>`}<//>
    <${Card} title=${plural(message.attachments.length, "attachment")}>${message.attachments.length ? html`<ul class="stack-tight">${message.attachments.map((one) => html`<li class="row-wide"><span class="wrap">${undirected(one.filename)} <span class="soft">${one.content_type}, ${bytes(one.size_bytes)}</span></span><${Button} kind="quiet" icon="download" label=${`Download ${one.filename}`} onClick=${() => download("GET /v1/messages/{id}/attachments/{attachmentId}", { path: { id: message.id, attachmentId: one.id } }, one.filename).catch(report)} /></li>`)}</ul>` : html`<p class="soft">None.</p>`}<//>
  </div>`;
}

/** Return how long the content is kept. */
function retention(message) {
  if (message.retainContent) return "kept as long as your plan keeps messages";
  if (message.contentErased) return "deleted after delivery";
  return message.contentUntil === null ? "deleted after delivery" : `deleted ${plural(message.contentUntil, "hour")} after delivery`;
}

/** What the local sink received of this message. */
function SinkTab({ message }) {
  const state = useCall("GET /v1/local/sink", { query: { message: message.id, limit: 100 } }, { pollMs: true });
  const columns = [
    { title: "Received", cell: (row) => html`<${Time} at=${row.receivedAt} />` },
    { title: "To", cell: (row) => html`<span class="wrap">${row.envelope.to.join(", ")}</span>` },
    { title: "Return path", cell: (row) => html`<code class="wrap">${row.envelope.from}</code>` },
    { title: "TLS", cell: (row) => row.envelope.tls ?? "none" },
    { title: "Size", end: true, cell: (row) => bytes(row.sizeBytes) },
  ];
  return html`<${Table} label="Received by the local sink" columns=${columns} rowTo=${(row) => `/sink/${row.id}`} state=${{ ...state, rows: state.data?.data ?? [] }} empty=${html`<div class="empty"><h2>Nothing yet</h2><p>The sink hasn't received this message yet.</p></div>`} />`;
}
