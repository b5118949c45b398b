// Receivers: how mailbox providers and busy mail servers treat mail at present, and when mail to them arrives.
import { useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Chip, Empty, PageHead, SearchField, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, number, percent } from "../core/view.js";
import { STATES } from "../parts/receiver_states.js";

const seconds = (value) => (value === null ? "–" : duration(value * 1000));

const COLUMNS = [
  { title: "Receiver", cell: (row) => html`<strong class="wrap">${row.name}</strong>` },
  { title: "State", cell: (row) => html`<${Chip} tone=${STATES[row.state]?.[0] ?? ""}>${STATES[row.state]?.[1] ?? row.state}<//>` },
  { title: "Since", cell: (row) => (row.since === null ? "–" : html`<${Time} at=${row.since} relative />`) },
  { title: "First attempts delivered", end: true, cell: (row) => percent(row.firstAttemptShare) },
  { title: "Half within", end: true, cell: (row) => seconds(row.p50S) },
  { title: "90% within", end: true, cell: (row) => seconds(row.p90S) },
  { title: "99% within", end: true, cell: (row) => seconds(row.p99S) },
  { title: "Emails", end: true, cell: (row) => (row.sample === null ? "–" : number(row.sample)) },
];

export function Receivers() {
  const domain = location.value.query.get("domain") ?? "";
  const { data, error, loading, reload } = useCall("GET /v1/receivers", { query: { domain } }, { pollMs: 15_000 });
  const rows = data?.data ?? [];
  const empty = html`<${Empty} icon="gauge" title="Nothing is known yet">States appear once mail was sent.<//>`;
  return html`<${PageHead} title="Receivers" lead="How mailbox providers treat mail at present, and how long new mail takes to arrive." />
    <div class="toolbar"><${SearchField} label="Recipient domain" value=${domain} onValue=${(value) => setQuery({ domain: value.trim() || null })} /></div>
    <div class="stack">
      ${domain && rows.length === 1 && html`<p class="title-text">${rows[0].text}</p>`}
      <${Table} label="Receivers" columns=${COLUMNS} rowKey=${(row) => row.site ?? row.provider} rowTone=${(row) => ({ warn: "warn", bad: "bad" })[STATES[row.state]?.[0]] ?? null} state=${{ rows, loading: loading || (!data && !error), error, reload }} empty=${empty} />
      <p class="small soft">From the mail of all accounts in the last hour or less, broadcasts excluded. Figures need 20 emails from 3 accounts, or only yours. "–" means unknown: too few emails, or too many still wait.</p>
    </div>`;
}
