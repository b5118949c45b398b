// Bounces: counts by class, the list, and the delivery history of an address.
import { call, useCall, usePages } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { breakable, Button, Card, Chip, Confirm, Empty, ErrorNote, PageHead, SelectField, Skeleton, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, serviceNow, useState } from "../core/view.js";
import { ReasonChip, reasonText } from "./reason_chip.js";

const SCOPES = [["", "All scopes"], ["recipient", "The recipient"], ["message", "The message"], ["site", "The mail servers"], ["session", "The connection"]];
const DAY_MS = 86_400_000;
const words = (text) => (text ?? "unknown").replaceAll("_", " ");

/** The tab with the bounces of the last `days` days. */
export function Bounces({ days }) {
  const query = location.value.query;
  const [from] = useState(() => new Date(Math.floor(serviceNow() / DAY_MS) * DAY_MS - (Number(days) - 1) * DAY_MS).toISOString());
  const period = { from, scope: query.get("scope") ?? "", stream: query.get("stream") ?? "", recipientDomain: query.get("recipientDomain") ?? "" };
  const chosen = query.get("class") ?? "";
  const classes = useCall("GET /v1/bounces/classes", { query: period }, { pollMs: 30_000 });
  const state = usePages("GET /v1/bounces", { query: { ...period, class: chosen } }, { pollMs: 30_000 });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 }, quiet: true });
  const filtered = chosen || period.scope || period.stream || period.recipientDomain;
  return html`<div class="toolbar">
      <${SelectField} label="Scope" hideLabel value=${period.scope} onValue=${(value) => setQuery({ scope: value })} options=${SCOPES} />
      <${SelectField} label="Stream" hideLabel value=${period.stream} onValue=${(value) => setQuery({ stream: value })} options=${[["", "All streams"], ...(streams.data?.data ?? []).map((one) => [one.id, one.name])]} />
      ${chosen && html`<${Chip} onRemove=${() => setQuery({ class: null })} removeLabel="Show all classes">${`class: ${words(chosen)}`}<//>`}
      ${period.recipientDomain && html`<${Chip} onRemove=${() => setQuery({ recipientDomain: null })} removeLabel="Show all domains">${`to ${period.recipientDomain}`}<//>`}
    </div>
    <div class="stack"><${Classes} state=${classes} chosen=${chosen} />
    <${Table} label="Bounces" columns=${COLUMNS} state=${state} rowTo=${(row) => `/bounces/${encodeURIComponent(row.address)}`} empty=${html`<${Empty} icon="circle-check" title=${filtered ? "No bounce matches" : "No bounces in this period"} action=${filtered && html`<${Button} onClick=${() => setQuery({ class: null, scope: null, stream: null, recipientDomain: null })}>Remove the filters<//>`} curl=${filtered ? null : `curl ${window.location.origin}/v1/bounces -H "Authorization: Bearer $KEY"`}>Deliveries that a mail server rejected permanently, or that failed after the last retry, appear here with the server's reply.<//>`} /></div>`;
}

const COLUMNS = [
  { title: "Recipient", cell: (row) => html`<span class="wrap address">${breakable(row.address)}</span>` },
  { title: "Class", cell: (row) => html`<span class="row wrap"><${Chip}>${row.type}<//><span>${words(row.class)}</span></span>` },
  { title: "Server's reply", cell: (row) => html`<span class="wrap small">${row.diagnostic}</span>` },
  { title: "When", cell: (row) => html`<${Time} at=${row.occurredAt} relative />` },
];

function Classes({ state, chosen }) {
  const { data, error, reload } = state;
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${3} />`;
  if (data.data.length === 0) return null;
  const columns = [
    { title: "Class", cell: (row) => html`<button type="button" class="link-button" aria-pressed=${chosen === row.class ? "true" : "false"} onClick=${() => setQuery({ class: chosen === row.class ? null : row.class })}>${words(row.class)}</button>` },
    { title: "Concerns", cell: (row) => row.scope ?? "–" },
    { title: "Bounces", end: true, cell: (row) => number(row.bounces) },
    { title: "Suppressed", end: true, cell: (row) => number(row.suppressed) },
    { title: "Latest reply", cell: (row) => html`<span class="wrap small">${row.diagnostic}</span>` },
  ];
  return html`<div><${Table} label="Bounces by class" columns=${columns} state=${{ rows: data.data, loading: false }} rowKey=${(row) => `${row.class} ${row.scope}`} />
    ${!data.complete && html`<p class="small soft note">Only the newest ${number(data.counted)} bounces are counted.</p>`}</div>`;
}

/** The page of one address: its suppression, and what happened to the newest messages to it. */
export function AddressPage({ address }) {
  const { data, error, reload } = useCall("GET /v1/bounces/{address}", { path: { address } }, { pollMs: 30_000 });
  const [asking, setAsking] = useState(false);
  const done = (lifted) => {
    setAsking(false);
    if (lifted) toast(`${address} can receive your email again`);
    if (lifted) reload();
  };
  const lift = data?.removable && html`<${Button} role="member" onClick=${() => setAsking(true)}>Reactivate<//>`;
  return html`<${PageHead} title=${address} lead="The newest messages to this address and the mail servers' replies." back=${["/deliverability/bounces", "Bounces"]} actions=${html`<${Button} to="/messages" query=${{ to: address }}>Messages to it<//>${lift}`} />
    ${error && !data && (error.status === 404 ? html`<div class="card"><${Empty} icon="search" title="Nothing is known about this address" action=${html`<${Button} to="/deliverability/bounces">All bounces<//>`}>You've sent nothing to it within your plan's retention, and it isn't suppressed.<//></div>` : html`<${ErrorNote} error=${error} retry=${reload} />`)}
    ${!data && !error && html`<${Skeleton} lines=${6} />`}
    ${data && html`<div class="stack">
      ${data.suppression && html`<${Card} title="Suppressed"><p class="row wrap"><${ReasonChip} reason=${data.suppression.reason} /><span>${reasonText(data.suppression.reason)}</span><span class="soft">Since <${Time} at=${data.suppression.createdAt} /></span></p>${data.suppression.detail && html`<p class="small wrap">${data.suppression.detail}</p>`}<//>`}
      ${data.data.length === 0 ? html`<div class="card"><${Empty} icon="mails" title="No deliveries are kept">Messages to it are older than your plan's retention, or were erased.<//></div>` : html`<${Table} label="Delivery history" columns=${HISTORY} state=${{ rows: data.data, loading: false }} />`}
    </div>`}
    ${asking && html`<${Confirm} title=${`Reactivate ${address}?`} confirm="Reactivate" danger=${false} action=${() => call("DELETE /v1/suppressions/{address}", { path: { address } })} onClose=${done}>The suppression is removed and messages to the address are sent again. If the mailbox still doesn't exist, they bounce and hurt your domain's reputation.<//>`}`;
}

const HISTORY = [
  { title: "When", cell: (row) => html`<${Time} at=${row.occurredAt} />` },
  { title: "Event", cell: (row) => html`<span class="row wrap"><${Chip}>${row.type}<//>${row.late && html`<${Chip} tone="warn">late<//>`}${row.class && row.class !== "accepted" && html`<span class="soft">${words(row.class)}</span>`}</span>` },
  { title: "Server's reply", cell: (row) => html`<span class="wrap small">${row.diagnostic ?? "–"}</span>` },
  { title: "Server", cell: (row) => (row.mx ? html`<code class="wrap">${row.mx}</code>` : html`<span class="soft">–</span>`) },
  { title: "Message", cell: (row) => (row.messageId ? html`<a href=${href(`/messages/${row.messageId}`)}>Message</a>` : html`<span class="soft">–</span>`) },
];
