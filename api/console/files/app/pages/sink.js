// Local mode: the mail that the local sink received, as a recipient's server would have.
import { ApiError, download, useCall, usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { isDark } from "../core/shell.js";
import { Button, Card, Empty, ErrorNote, Facts, PageHead, SearchField, Skeleton, Tabs, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { bytes, html, plural, undirected } from "../core/view.js";
import { ClockCard } from "../parts/clock.js";
import { Preview } from "../parts/preview.js";

export function Sink({ service }) {
  const recipient = location.value.query.get("recipient") ?? "";
  const state = usePages("GET /v1/local/sink", { query: { recipient } }, { pollMs: 5000 });
  const head = html`<${PageHead} title="Local sink" lead="Local mode: no email leaves this machine. The sink receives every delivered message and stores it exactly as sent." />`;
  if (service.local === false) return html`${head}<div class="card"><${Empty} icon="mails" title="There is no local sink">This instance delivers to the internet. Open the waybill of a message instead.<//></div>`;
  const columns = [
    { title: "Subject", cell: (row) => undirected(row.subject) || "(no subject)" },
    { title: "To", cell: (row) => html`<span class="wrap">${row.envelope.to.join(", ")}</span>` },
    { title: "Received", cell: (row) => html`<${Time} at=${row.receivedAt} relative />` },
    { title: "TLS", cell: (row) => row.envelope.tls ?? "none" },
    { title: "Size", end: true, cell: (row) => bytes(row.sizeBytes) },
  ];
  return html`${head}
    <${ClockCard} onMove=${state.reload} />
    <div class="toolbar"><${SearchField} label="Recipient" value=${recipient} onValue=${(value) => setQuery({ recipient: value })} /></div>
    <${Table} label="Messages in the local sink" columns=${columns} state=${state} rowTo=${(row) => `/sink/${row.id}`} empty=${html`<${Empty} icon="mails" title=${recipient ? "No messages for this recipient" : "No messages yet"} action=${html`<${Button} kind="primary" to="/messages/new">Send a message<//>`}>Messages appear here a moment after they are delivered.<//>`} />`;
}

export function SinkMail({ id }) {
  const state = useCall("GET /v1/local/sink/{id}", { path: { id } });
  const tab = location.value.query.get("tab") ?? "mail";
  const mail = state.data;
  const back = ["/sink", "Local sink"];
  if (!mail && state.error) return html`<${PageHead} title="Mail" back=${back} /><${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!mail) return html`<${PageHead} title="Mail" back=${back} /><${Skeleton} lines=${8} />`;
  const save = () => download("GET /v1/local/sink/{id}/raw", { path: { id } }, `${id}.eml`).catch((error) => {
    if (!(error instanceof ApiError)) throw error;
    toast(error.message, { tone: "bad" });
  });
  const actions = html`${mail.messageId && html`<${Button} icon="route" to=${`/messages/${mail.messageId}`}>Open waybill<//>`}<${Button} icon="download" onClick=${save}>Download (.eml)<//>`;
  return html`<${PageHead} title=${undirected(mail.subject) || "(no subject)"} back=${back} actions=${actions} />
    <${Tabs} label="Parts of the message" items=${[["mail", "Mail"], ["headers", `Headers (${mail.headers.length})`], ["envelope", "Envelope"]]} current=${tab} onSelect=${(key) => setQuery({ tab: key === "mail" ? null : key })} />
    ${tab === "headers" ? html`<${Card} title="Headers"><${Facts} items=${mail.headers.map((one) => [one.name, html`<span class="mono">${one.value}</span>`])} /><//>`
      : tab === "envelope" ? html`<${Card} title="Envelope"><${Facts} items=${[["From (return path)", html`<code class="wrap">${mail.envelope.from}</code>`], ["To", mail.envelope.to.join(", ")], ["HELO", mail.envelope.helo], ["TLS", mail.envelope.tls ?? "none"], ["Received", html`<${Time} at=${mail.receivedAt} />`], ["Size", bytes(mail.sizeBytes)]]} /><//>`
      : html`<div class="stack"><${Preview} html=${mail.html} text=${mail.text} dark=${isDark()} title="The message" />
        ${mail.attachments.length > 0 && html`<${Card} title=${plural(mail.attachments.length, "attachment")}><ul>${mail.attachments.map((one) => html`<li>${one.filename} <span class="soft">${one.content_type}, ${bytes(one.size_bytes)}</span></li>`)}</ul><//>`}</div>`}`;
}
