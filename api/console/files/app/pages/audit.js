// The audit log: every event of the account in a chain of hashes, with its verification and an export.
import { call, download, useAction, useCall, usePages } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { Button, Card, Code, CopyLine, Dialog, Empty, ErrorNote, Facts, Notice, PageHead, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { cut, html, number, plural, startOfDay, useState } from "../core/view.js";
import { pretty } from "../parts/billing_records.js";
import { KNOWN_TYPES } from "../parts/event_types.js";

/** The page of the audit log. */
export function Audit() {
  const query = Object.fromEntries(location.value.query);
  const filter = { type: query.type, from: startOfDay(query.from), until: startOfDay(query.until, 1) };
  const state = usePages("GET /v1/audit/events", { query: filter }, { pollMs: true, limit: 100 });
  const [opened, setOpened] = useState(null);
  const team = useCall("GET /v1/team", {}, { whole: "members" });
  const people = new Map((team.data?.members ?? []).map((member) => [member.id, member.name ?? member.email]));
  const columns = [
    { title: "Event", cell: (row) => html`<span class="strong wrap">${row.type}</span>` },
    { title: "No.", end: true, cell: (row) => html`<span class="numeric">${number(row.seq)}</span>` },
    { title: "Time", cell: (row) => html`<${Time} at=${row.occurredAt} />` },
    { title: "By", cell: (row) => html`<${Actor} id=${read(row).detail?.actor} people=${people} />` },
    { title: "About", cell: (row) => html`<${About} row=${row} people=${people} />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} onClick=${() => setOpened(row)} aria-label=${`Details of event ${row.seq}`}>Details<//>` },
  ];
  const filtered = Boolean(query.type || query.from || query.until);
  const empty = html`<${Empty} icon="scroll-text" title=${filtered ? "No such events" : "No events yet"} action=${filtered && html`<${Button} onClick=${() => setQuery({ type: null, from: null, until: null })}>Show all events<//>`}
    curl=${filtered ? null : `curl ${window.location.origin}/v1/audit/events -H "Authorization: Bearer $WAYBILL_KEY"`}>${filtered ? "Nothing in the log fits these filters." : "Sign-ins, changes and each step of each message are recorded here, with the hash of the entry before."}<//>`;
  return html`<${PageHead} title="Audit log" lead="What happened in this account, and by whom. Each entry holds the hash of the one before, so that no entry can be changed or taken out unseen." />
    <div class="stack"><${Verification} /><div><${Filters} query=${query} />
      <${Table} label="Events" columns=${columns} state=${state} rowKey=${(row) => row.seq} empty=${empty} /></div></div>
    ${opened && html`<${EventDialog} row=${opened} onClose=${() => setOpened(null)} />`}`;
}

function Filters({ query }) {
  const [exporting, { busy }] = useAction(async () => {
    try {
      await download("GET /v1/audit/export", { query: { from: startOfDay(query.from), until: startOfDay(query.until, 1) } }, "audit.ndjson");
    } catch (refusal) {
      if (!refusal.type) throw refusal;
      toast(refusal.message, { tone: "bad" });
    }
  });
  const set = (name) => (value) => setQuery({ [name]: value || null });
  const options = [["", "All events"], ...(query.type && !KNOWN_TYPES.includes(query.type) ? [query.type] : []).concat(KNOWN_TYPES).map((type) => [type, type])];
  return html`<div class="toolbar">
    <div class="audit-filter"><${SelectField} label="Event" hideLabel value=${query.type ?? ""} onValue=${set("type")} options=${options} /></div>
    <label class="row small">from <input class="input audit-date" type="date" value=${query.from ?? ""} max=${query.until} onChange=${(event) => set("from")(event.currentTarget.value)} /></label>
    <label class="row small">to <input class="input audit-date" type="date" value=${query.until ?? ""} min=${query.from} onChange=${(event) => set("until")(event.currentTarget.value)} /></label>
    <span class="grow"></span>
    <${Button} icon="download" busy=${busy} onClick=${exporting} title="All events of these days, one JSON object a line, with the hashes and the result of the verification">Export<//>
  </div>`;
}

const read = (row) => {
  try {
    return JSON.parse(row.payload) ?? {};
  } catch {
    return {};
  }
};

function Actor({ id, people }) {
  if (!id) return html`<span class="soft">the service</span>`;
  if (id.startsWith("key_")) return html`<a href=${href("/api-keys")} title=${id}>API key</a>`;
  return html`<span class="wrap" title=${id}>${people.get(id) ?? (id.startsWith("usr_") ? "a former member" : id)}</span>`;
}

// Where the thing that an event is about stands in the console, by the kind of its id.
const PLACES = { dom: "/domains/", whk: "/webhooks/", tpl: "/templates/", brd: "/broadcasts/", con: "/contacts/", lst: "/lists/" };

function About({ row, people }) {
  const { messageId, detail = {} } = read(row);
  if (messageId) return html`<a href=${href(`/messages/${messageId}`)}>message</a>`;
  const name = [detail.name, detail.email, detail.address, detail.recipient].find((one) => typeof one === "string");
  const place = typeof detail.id === "string" && PLACES[detail.id.split("_")[0]];
  const text = cut(name ?? people.get(detail.id) ?? detail.id ?? "", 60);
  if (!text) return null;
  return place ? html`<a class="wrap" href=${href(place + detail.id)}>${text}</a>` : html`<span class=${text === detail.id ? "mono" : "wrap"}>${text}</span>`;
}

/** The entry as it was hashed. */
function EventDialog({ row, onClose }) {
  return html`<${Dialog} title=${`Event ${number(row.seq)}: ${row.type}`} wide onClose=${onClose}>
    ${row.payload === null ? html`<p class="soft">The content of this entry was erased; its hash and links are kept.</p>` : html`<${Code} text=${pretty(row.payload)} label="Payload" />`}
    <${Facts} items=${[["Time", html`<${Time} at=${row.occurredAt} />`], ["Id", html`<${CopyLine} text=${row.id} />`], ["Hash", html`<span class="mono">${row.hash}</span>`], ["Hash before", row.prevHash ? html`<span class="mono">${row.prevHash}</span>` : "not retained"]]} />
  <//>`;
}

/** The result of verifying the whole chain, on request. */
function Verification() {
  const [verdict, setVerdict] = useState(null);
  const [verify, { busy, error }] = useAction(async () => setVerdict(await call("GET /v1/audit/verify", { timeoutMs: 120_000 })));
  return html`<${Card} title="Verification" actions=${html`<${Button} icon="shield-check" busy=${busy} onClick=${verify}>${verdict ? "Verify again" : "Verify the log"}<//>`}><div class="stack">
    ${!verdict && !error && html`<p class="soft">Verifying recomputes the hash of each entry, and compares it with the entry after it. Export the log to do the same with your own program: the file holds the formula.</p>`}
    <div role="status">${verdict && html`<${Verdict} verdict=${verdict} />`}</div><${ErrorNote} error=${error} retry=${verify} /></div><//>`;
}

function Verdict({ verdict }) {
  const { intact, brokenAt, problem, events, head, purgedThroughSeq, erasedEntries, asOf } = verdict;
  const facts = [
    ["Verified", plural(events, "entry", "entries")],
    ["Last entry", html`<span class="numeric">${number(head.seq)}</span>`],
    ["Hash of the last entry", html`<${CopyLine} text=${head.hash} />`],
    purgedThroughSeq > 0 && ["No longer kept", `entries up to ${number(purgedThroughSeq)}: the plan's days of retention have passed; the chain starts after them`],
    erasedEntries > 0 && ["Erased contents", `${plural(erasedEntries, "entry", "entries")} lost the content by a request of erasure; the links were verified`],
    ["As of", html`<${Time} at=${asOf} />`],
  ];
  return html`<div class="stack">${intact ? html`<${Notice} tone="good" title="The log is intact.">No entry was changed, added or taken out.<//>` : html`<${Notice} tone="bad" title=${`The log is broken at entry ${number(brokenAt)}.`}>${problem} Ask the operator; keep an export of today.<//>`}<${Facts} items=${facts} />
    <p class="small soft">Keep the hash of the last entry elsewhere: if the same entry has another hash one day, the log was written anew.</p></div>`;
}
