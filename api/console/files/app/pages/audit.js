// The audit log: every event of the account in a chain of hashes, with its verification and an export.
import { call, download, useAction, useCall, usePages } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { Button, Card, Code, CopyLine, Dialog, Empty, ErrorNote, Facts, Filters, Notice, PageHead, Segments, SelectField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { cut, html, localTime, number, plural, serviceNow, shortUrl, startOfDay, useState } from "../core/view.js";
import { eventWords, typeName } from "../parts/audit_sentences.js";
import { pretty } from "../parts/billing_records.js";
import { KNOWN_TYPES } from "../parts/event_types.js";

const RANGES = [["", "Any time"], ["0", "Today"], ["6", "Last 7 days"], ["29", "Last 30 days"], ["own", "From and until"]]; // by the days before today
const SHOWN = [["people", "People"], ["keys", "API keys"], ["all", "Everything"]];

/** The page of the audit log: what people did, unless another part of it is asked for. */
export function Audit() {
  const query = Object.fromEntries(location.value.query);
  const by = query.by ?? "people";
  const narrowed = !query.type && by !== "all"; // a type says more than who caused it
  const days = daysOf(query);
  const filter = { type: query.type, by: narrowed ? by : undefined, ...days };
  const state = usePages("GET /v1/audit/events", { query: filter }, { pollMs: true, limit: 100 });
  const [opened, setOpened] = useState(null);
  const team = useCall("GET /v1/team", {}, { whole: "members" });
  const templates = useCall("GET /v1/templates", { query: { limit: 100 }, quiet: true });
  const names = new Map([...(team.data?.members ?? []), ...(team.data?.invites ?? []), ...(templates.data?.data ?? [])].map((one) => [one.id, one.name ?? one.email ?? one.id]));
  const columns = [
    { title: "Event", cell: (row) => html`<${Sentence} row=${row} names=${names} />` },
    { title: "Time", end: true, narrow: "bare", cell: (row) => html`<${Time} at=${row.occurredAt} />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<span class="row-open"><${Button} kind="quiet" icon="chevron-right" label=${`Details of event ${row.seq}`} onClick=${() => setOpened(row)} /></span>` },
  ];
  const filtered = Boolean(query.type || days.from || days.until || narrowed);
  const empty = html`<${Empty} icon="scroll-text" title=${filtered ? "No such events" : "No events yet"} action=${filtered && html`<${Button} onClick=${() => setQuery({ type: null, range: null, from: null, until: null, by: "all" })}>Show everything<//>`}
    curl=${filtered ? null : `curl ${window.location.origin}/v1/audit/events -H "Authorization: Bearer $WAYBILL_KEY"`}>${filtered ? "Nothing in the log matches these filters." : "Sign-ins, changes and every step of every message are recorded here."}<//>`;
  return html`<${PageHead} title="Audit log" lead="Who did what in this account. Each entry contains the hash of the previous one, so nobody can change or remove an entry unnoticed." actions=${html`<${Export} days=${days} />`} />
    <div class="stack"><div><${LogFilters} query=${query} by=${by} />
      <${Table} label="Events" columns=${columns} state=${state} rowKey=${(row) => row.seq} empty=${empty} /></div><${Verification} /></div>
    ${opened && html`<${EventDialog} row=${opened} onClose=${() => setOpened(null)} />`}`;
}

/** An event as a sentence: "Ann created the API key production". */
function Sentence({ row, names }) {
  const actor = read(row).detail?.actor;
  const acted = /^(usr_|key_|operator$)/.test(actor ?? "");
  return html`<span class="wrap">${acted && html`<${Actor} id=${actor} names=${names} /> `}${eventWords(row.type, { acted })} <${About} row=${row} names=${names} />${row.payload === null && html`<span class="soft"> (content erased)</span>`}</span>`;
}

/** Return the period in the address of the page as times of the API. */
function daysOf({ range, from, until }) {
  if (/^\d+$/.test(range) && RANGES.some(([value]) => value === range)) return { from: startOfDay(localTime(serviceNow()).slice(0, 10), -Number(range)), until: null };
  return { from: startOfDay(from), until: startOfDay(until, 1) };
}

/** The button that saves the events of a period, whoever caused them. */
function Export({ days }) {
  const [exporting, { busy }] = useAction(async () => {
    try {
      await download("GET /v1/audit/export", { query: days }, "audit.ndjson");
    } catch (refusal) {
      if (!refusal.type) throw refusal;
      toast(refusal.message, { tone: "bad" });
    }
  });
  return html`<${Button} icon="download" busy=${busy} onClick=${exporting} title="All events of this period as NDJSON, with their hashes and the result of the verification">Export<//>`;
}

function LogFilters({ query, by }) {
  const range = query.range ?? (query.from || query.until ? "own" : "");
  const set = (name) => (value) => setQuery({ [name]: value || null });
  const options = [["", "All types"], ...(query.type && !KNOWN_TYPES.includes(query.type) ? [query.type] : []).concat(KNOWN_TYPES).map((type) => [type, typeName(type)])];
  return html`<div class="toolbar">
    ${!query.type && html`<${Segments} label="Show events by" options=${SHOWN} value=${by} onValue=${(value) => setQuery({ by: value === "people" ? null : value })} />`}
    <${Filters} used=${query.type || range}>
      <div class="audit-filter"><${SelectField} label="Event" hideLabel value=${query.type ?? ""} onValue=${set("type")} options=${options} /></div>
      <${SelectField} label="Time" hideLabel value=${range} onValue=${(value) => setQuery({ range: value || null, from: null, until: null })} options=${RANGES} />
      ${range === "own" && html`<label class="range small">From <input class="input audit-date" type="date" value=${query.from ?? ""} max=${query.until} onChange=${(event) => set("from")(event.currentTarget.value)} /></label>
        <label class="range small">Until <input class="input audit-date" type="date" value=${query.until ?? ""} min=${query.from} onChange=${(event) => set("until")(event.currentTarget.value)} /></label>`}
    <//>
  </div>`;
}

const read = (row) => {
  try {
    return JSON.parse(row.payload) ?? {};
  } catch {
    return {};
  }
};

function Actor({ id, names }) {
  if (id.startsWith("key_")) return html`<a href=${href("/api-keys")} title=${id}>An API key</a>`;
  const name = names.get(id) ?? (id === "operator" ? "The operator" : id.startsWith("usr_") ? "A former member" : id);
  return html`<strong title=${id}>${name}</strong>`;
}

// Where the thing that an event is about stands in the console, by the kind of its id.
const PLACES = { dom: "/domains/", whk: "/webhooks/", tpl: "/templates/", brd: "/broadcasts/", con: "/contacts/", lst: "/lists/" };

function About({ row, names }) {
  const { messageId, detail = {} } = read(row);
  if (messageId) return html`<a href=${href(`/messages/${messageId}`)}>${detail.recipient ?? "Open message"}</a>`;
  if (detail.id === detail.actor) return null; // people who sign in, join or change their own profile
  const name = [detail.name, detail.url, detail.email, detail.address, detail.recipient, detail.domain].find((one) => typeof one === "string");
  const place = typeof detail.id === "string" && (row.type.startsWith("template.") && names.has(detail.id) ? "/templates/" : PLACES[detail.id.split("_")[0]]);
  const known = name ?? names.get(detail.id) ?? detail.id ?? "";
  const text = /^https?:/.test(known) ? shortUrl(known) : cut(known, 60);
  if (!text || text.startsWith("ivt_")) return null; // an invitation that was accepted or withdrawn: its address is not in the log
  return place ? html`<a class="wrap" href=${href(place + detail.id)}>${text}</a>` : html`<span class=${text === detail.id ? "mono" : "wrap"}>${text}</span>`;
}

/** The entry as it was hashed. */
function EventDialog({ row, onClose }) {
  return html`<${Dialog} title=${`Event ${number(row.seq)}: ${row.type}`} wide onClose=${onClose}>
    ${row.payload === null ? html`<p class="soft">The content of this entry was erased. Its hash and links are kept.</p>` : html`<${Code} text=${pretty(row.payload)} label="Payload" />`}
    <${Facts} items=${[["Time", html`<${Time} at=${row.occurredAt} />`], ["Id", html`<${CopyLine} text=${row.id} />`], ["Hash", html`<span class="mono">${row.hash}</span>`], ["Previous hash", row.prevHash ? html`<span class="mono">${row.prevHash}</span>` : "not retained"]]} />
  <//>`;
}

/** The result of verifying the whole chain, on request. */
function Verification() {
  const [verdict, setVerdict] = useState(null);
  const [verify, { busy, error }] = useAction(async () => setVerdict(await call("GET /v1/audit/verify", { timeoutMs: 120_000 })));
  return html`<${Card} title="Verification" actions=${html`<${Button} icon="shield-check" busy=${busy} onClick=${verify}>${verdict ? "Verify again" : "Verify the log"}<//>`}><div class="stack">
    ${!verdict && !error && html`<p class="soft">Verifying recomputes the hash of each entry and compares it with the next one. To check it yourself, export the log: the file contains the formula.</p>`}
    <div role="status">${verdict && html`<${Verdict} verdict=${verdict} />`}</div><${ErrorNote} error=${error} retry=${verify} /></div><//>`;
}

function Verdict({ verdict }) {
  const { intact, brokenAt, problem, events, head, purgedThroughSeq, erasedEntries, asOf } = verdict;
  const facts = [
    ["Verified", plural(events, "entry", "entries")],
    ["Last entry", html`<span class="numeric">${number(head.seq)}</span>`],
    ["Hash of the last entry", html`<${CopyLine} text=${head.hash} />`],
    purgedThroughSeq > 0 && ["No longer kept", `entries up to ${number(purgedThroughSeq)}, which are older than your plan's retention. The chain starts after them`],
    erasedEntries > 0 && ["Erased content", `${plural(erasedEntries, "entry", "entries")} had the content erased on request. Their links are verified`],
    ["As of", html`<${Time} at=${asOf} />`],
  ];
  return html`<div class="stack">${intact ? html`<${Notice} tone="good" title="The log is intact.">No entry was changed, added or removed.<//>` : html`<${Notice} tone="bad" title=${`The log is broken at entry ${number(brokenAt)}.`}>${problem} Export the log now and contact the operator.<//>`}<${Facts} items=${facts} />
    <p class="small soft">Store the hash of the last entry elsewhere. If that entry ever has a different hash, the log has been rewritten.</p></div>`;
}
