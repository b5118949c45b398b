// API requests: what keys and persons asked of the API in the last seven days, and what was refused.
import { useCall, usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Chip, Code, CopyLine, Dialog, Empty, Facts, Filters, PageHead, SearchField, Segments, SelectField, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, serviceNow } from "../core/view.js";

const loadViews = () => import("../parts/saved_views.js");

const CLASSES = [["", "All"], ["2xx", "Done"], ["4xx", "Refused"], ["5xx", "Failed"]];
const METHODS = [["", "Any method"], ...["GET", "POST", "PATCH", "PUT", "DELETE", "HEAD"].map((one) => [one, one])];
const NAMES = ["status", "method", "path", "key", "errorType"];
const ASKERS = [["", "Any API key"], ["agent", "Agents"], ["person", "Signed-in people"], ["all", "Keys and people"]];
const RANGE_MS = { "1h": 3_600_000, "24h": 86_400_000 };

const toneOf = (status) => (status >= 500 ? "bad" : status >= 400 ? "warn" : "good");

const COLUMNS = [
  { key: "request", title: "Request", cell: (row) => html`<span class="mono"><span class="soft">${row.method}</span> ${row.path}</span>` },
  { key: "status", title: "Status", cell: (row) => html`<${Chip} tone=${toneOf(row.status)}>${String(row.status)}<//>` },
  { key: "error", title: "Error", cell: (row) => (row.errorType ? html`<code>${row.errorType}</code>` : html`<span class="soft">–</span>`) },
  { key: "ms", title: "Time", end: true, cell: (row) => duration(row.ms) },
  { key: "by", title: "Made by", cell: (row) => html`<${Asker} row=${row} />` },
  { key: "at", title: "Answered", end: true, cell: (row) => html`<${Time} relative at=${row.createdAt} />` },
];

const people = new Map(); // id -> name of keys and persons, of the present account

function Asker({ row }) {
  const id = row.keyId ?? row.userId;
  const name = people.get(id) ?? (row.keyId ? "API key" : "Person");
  return html`<span title=${id}>${name}${row.agent && html` <span class="soft small">${row.agent}</span>`}</span>`;
}

/** The page of the request log. */
export function Requests() {
  const { query } = location.value;
  const filters = Object.fromEntries(NAMES.map((name) => [name, query.get(name)]));
  const by = query.get("by");
  const range = RANGE_MS[query.get("range")];
  const minute = Math.floor(serviceNow() / 60_000) * 60_000;
  const state = usePages("GET /v1/requests", { query: { ...filters, by: filters.key || by === "all" ? null : by || "key", from: range ? new Date(minute - range).toISOString() : null } }, { pollMs: true });
  const keys = useNames();
  const opened = state.rows.find((row) => row.id === query.get("request"));
  const filtered = NAMES.some((name) => filters[name]) || range || by;
  return html`<${PageHead} title="API requests" lead="All API requests of this account in the last seven days, including rejected ones, without query strings, headers and bodies. Requests from this console are listed as signed-in people." />
    <div class="toolbar">
      <${Segments} label="Outcome" options=${CLASSES} value=${filters.status ?? ""} onValue=${(value) => setQuery({ status: value, errorType: null })} />
      <${SearchField} label="Path starts with" value=${filters.path} onValue=${(value) => setQuery({ path: value.trim() || null })} />
      <${Filters} used=${filters.method || query.get("key") || query.get("by") || query.get("range")}><${SelectField} label="Method" hideLabel value=${filters.method} onValue=${(value) => setQuery({ method: value })} options=${METHODS} />
      <${SelectField} label="Made by" hideLabel value=${filters.key ?? by} onValue=${(value) => setQuery(value.startsWith("key_") ? { key: value, by: null } : { key: null, by: value })} options=${[...ASKERS, ...keys]} />
      <${SelectField} label="Period" hideLabel value=${query.get("range") ?? ""} onValue=${(value) => setQuery({ range: value })} options=${[["", "Last 7 days"], ["24h", "Last 24 hours"], ["1h", "Last hour"]]} />
      <${Lazy} load=${loadViews} name="SavedViews" page="requests" /><//>
    </div>
    ${filters.errorType && html`<div class="toolbar"><${Chip} tone="accent" onRemove=${() => setQuery({ errorType: null })} removeLabel=${`Remove the filter ${filters.errorType}`}><span>error: ${filters.errorType}</span><//></div>`}
    <${Table} label="API requests" columns=${COLUMNS} state=${state} rowTo=${() => "/requests"} onRowOpen=${(row, event) => { event.preventDefault(); setQuery({ request: row.id }); }} empty=${filtered ? html`<${NoMatch} />` : html`<${NoRequests} />`} />
    ${opened && html`<${RequestDialog} row=${opened} onClose=${() => setQuery({ request: null })} />`}`;
}

/** Read the names of keys and persons; returns the keys as options of a selection. */
function useNames() {
  const { data: keys } = useCall("GET /v1/api-keys", { query: { limit: 100 }, quiet: true });
  const { data: team } = useCall("GET /v1/team", { quiet: true }, { whole: "members" });
  for (const key of keys?.data ?? []) people.set(key.id, key.name);
  for (const member of team?.members ?? []) people.set(member.id ?? member.userId, member.name ?? member.email);
  return (keys?.data ?? []).map((key) => [key.id, key.name]);
}

function NoMatch() {
  const clear = html`<${Button} onClick=${() => setQuery({ ...Object.fromEntries(NAMES.map((name) => [name, null])), range: null, by: null })}>Clear all filters<//>`;
  return html`<${Empty} icon="search" title="No request matches" action=${clear}>Requests appear about a second after their response.<//>`;
}

function NoRequests() {
  const curl = `curl ${window.location.origin}/v1/me \\\n  -H "Authorization: Bearer $KEY"`;
  return html`<${Empty} icon="activity" title="No requests yet" curl=${curl} action=${html`<${Button} kind="primary" to="/api-keys">Create a key<//>`}>API requests appear here about a second after their response, with status, time and the reason for a rejection.<//>`;
}

const ADVICE = {
  401: "The key or session is invalid. Check that the key is complete and hasn't been revoked.",
  403: "The key or role isn't allowed to do this. Compare the key's scopes with the ones the operation needs.",
  404: "The path, or the object it refers to, doesn't exist in this account.",
  409: "Not possible in its current state. Fetch the object and check its status.",
  413: "The request body is too large. Send less in one request.",
  422: "An address, attachment or template was rejected. The response names it.",
  429: "You've reached a rate limit. Wait for the time in Retry-After, then retry.",
};

function RequestDialog({ row, onClose }) {
  const advice = ADVICE[row.status] ?? (row.status >= 500 ? "The service failed. Retry; if it fails again, give the request id to the operator." : row.status === 400 ? "A field of the request is invalid. The response names it in error.field." : null);
  const facts = [
    ["Status", html`<${Chip} tone=${toneOf(row.status)}>${String(row.status)}<//>`],
    ["Error", row.errorType && html`<button type="button" class="link-button" onClick=${() => setQuery({ errorType: row.errorType, request: null })}><code>${row.errorType}</code></button>`],
    ["What to do", advice],
    ["Answered", html`<${Time} at=${row.createdAt} />`],
    ["Response time", duration(row.ms)],
    ["Made by", html`<${Asker} row=${row} /> <${CopyLine} text=${row.keyId ?? row.userId ?? ""} />`],
    ["Agent", row.agent],
    ["Request id", html`<${CopyLine} text=${row.requestId} />`],
  ];
  return html`<${Dialog} title="API request" onClose=${onClose}>
    <${Code} text=${`${row.method} ${row.path}`} label="Request" /><${Facts} items=${facts} />
    <p class="soft small">The request id is the X-Request-Id header of the response. Errors and the service's logs contain it too.</p>
  <//>`;
}
