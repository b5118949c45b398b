// Deliverability: outcomes by receiving domain or tag, sources in DMARC reports, failures in TLS reports.
import { call, saveFile, useCall, usePages } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Card, Chip, Empty, ErrorNote, Figures, Filters, Notice, PageHead, SearchField, SelectField, Skeleton, Tabs, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, number, percent, plural, shortNumber } from "../core/view.js";
import { csvText } from "../parts/csv_text.js";

const TABS = [["delivery", "Delivery"], ["waits", "Waiting times"], ["messages", "Messages"], ["bounces", "Bounces"], ["dmarc", "DMARC"], ["tls", "TLS"]];
const loadBounces = () => import("../parts/bounces.js");
const loadNumbers = () => import("../parts/message_numbers.js");
const loadWaits = () => import("../parts/waits.js");
const [GOOD, FAIR] = [0.98, 0.95]; // delivered shares: green from the first, amber from the second
const RANGES = { __proto__: null, 1: "24h", 7: "7d", 30: "30d" }; // of the list of messages
const PERIODS = [["1", "Today"], ["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];

export function Deliverability({ part = "delivery" }) {
  const query = location.value.query;
  const days = query.get("days") ?? "7";
  const me = useCall("GET /v1/me", { quiet: true });
  const allowed = me.data ? PERIODS.filter(([value]) => Number(value) <= me.data.analyticsDays) : PERIODS;
  const View = { __proto__: null, delivery: Delivery, waits: WaitsTab, messages: MessagesTab, bounces: BouncesTab, dmarc: Dmarc, tls: Tls }[part] ?? Delivery;
  const period = html`<${SelectField} label="Period" hideLabel value=${days} onValue=${(value) => setQuery({ days: value })} options=${allowed} />`;
  return html`<${PageHead} title="Deliverability" lead="How mailbox providers handled your email, and what they report." actions=${part === "tls" ? null : period} />
    <${Tabs} label="Deliverability" items=${TABS} current=${part} onSelect=${(key) => go(key === "delivery" ? "/deliverability" : `/deliverability/${key}`, { query: days === "7" ? {} : { days } })} />
    ${me.data && Number(days) > me.data.analyticsDays && html`<${Notice} tone="warn">Your plan (${me.data.plan}) includes ${plural(me.data.analyticsDays, "day")}.<//>`}
    <${View} days=${days} />`;
}

const BouncesTab = ({ days }) => html`<${Lazy} key=${days} load=${loadBounces} name="Bounces" days=${days} />`;
const WaitsTab = ({ days }) => html`<${Lazy} load=${loadWaits} name="WaitsCard" days=${days} stream="" />`;
const MessagesTab = ({ days }) => html`<${Lazy} load=${loadNumbers} name="MessageNumbers" days=${days} />`;

function Delivery({ days }) {
  const query = location.value.query;
  const groupBy = query.get("groupBy") ?? "domain";
  const stream = query.get("stream") ?? "";
  const tag = query.get("tag") ?? "";
  const filters = { days, groupBy, stream, tag };
  const state = usePages("GET /v1/analytics/delivery", { query: filters }, { cursorField: "cursor", pollMs: 60_000 });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 }, quiet: true });
  const name = (row) => row[groupBy];
  const those = (row) => ({ ...(groupBy === "domain" ? { recipientDomain: row.domain, tag } : { tag: row.tag }), stream, range: RANGES[days] });
  const columns = [
    { title: groupBy === "domain" ? "Receiving domain" : "Tag", cell: (row) => html`<a class="row-link" href=${href("/messages", those(row))}>${name(row)}</a>` },
    { title: "Deliveries", end: true, cell: (row) => number(row.deliveries) },
    { title: "Delivered", end: true, cell: (row) => html`<${Rate} value=${row.deliveryRate} good=${GOOD} fair=${FAIR} />` },
    { title: "Bounced", end: true, cell: (row) => html`<${Count} value=${row.bounced} query=${{ ...those(row), status: "bounced" }} />` },
    { title: "Failed", end: true, cell: (row) => html`<${Count} value=${row.failed} query=${{ ...those(row), status: "failed" }} />` },
    { title: "Complaints", end: true, cell: (row) => html`<${Count} value=${row.complained} query=${{ ...those(row), status: "complained" }} />` },
    { title: "Median time", end: true, cell: (row) => duration(row.p50Ms) },
    { title: "95% within", end: true, cell: (row) => duration(row.p95Ms) },
  ];
  const filtered = stream || tag;
  return html`<div class="toolbar">
      <${Filters} used=${stream || tag || groupBy !== "domain"}><${SelectField} label="Group by" hideLabel value=${groupBy} onValue=${(value) => setQuery({ groupBy: value === "domain" ? null : value })} options=${[["domain", "By receiving domain"], ["tag", "By tag"]]} />
      <${SelectField} label="Stream" hideLabel value=${stream} onValue=${(value) => setQuery({ stream: value })} options=${[["", "All streams"], ...(streams.data?.data ?? []).map((one) => [one.id, one.name])]} />
      <${SearchField} label="Tag" value=${tag} onValue=${(value) => setQuery({ tag: value })} /><//>
      <span class="toolbar-end"><${Button} icon="download" label="Save as CSV" disabled=${!state.rows.length} onClick=${() => saveDelivery(filters)} /></span>
    </div>
    <div class="stack">${(state.loading || state.rows.length > 0) && html`<${Lazy} load=${loadNumbers} name="MessageFigures" title=${days === "1" ? "Today, by the hour" : `Last ${days} days`} query=${{ days, bucket: days === "1" ? "hour" : "day", stream, tag }} />`}
    <div><${Table} label=${groupBy === "domain" ? "Deliveries by receiving domain" : "Deliveries by tag"} columns=${columns} state=${state} rowKey=${name} rowTone=${({ deliveryRate }) => (deliveryRate === null || deliveryRate >= GOOD ? null : deliveryRate >= FAIR ? "warn" : "bad")} empty=${html`<${Empty} icon="chart-line" title=${filtered ? "Nothing matches" : "No mail in this period"} action=${filtered ? html`<${Button} onClick=${() => setQuery({ stream: null, tag: null })}>Remove the filters<//>` : html`<${Button} kind="primary" to="/messages/new">Send a message<//>`}>Each row shows how much email a receiving domain accepted, how fast, and what it rejected.<//>`} />
    <p class="small soft note">A delivery is one recipient, counted on the UTC day its message was accepted. Times exclude later bounces and are accurate to 1%.</p></div></div>`;
}

/** A number of deliveries, as a link to their messages; a zero is soft. */
function Count({ value, query }) {
  return value ? html`<a href=${href("/messages", query)}>${number(value)}</a>` : html`<span class="soft">0</span>`;
}

/** A rate with its colour: green from `good`, amber from `fair`. */
function Rate({ value, good, fair }) {
  if (value === null) return html`<span class="soft">–</span>`;
  return html`<span class=${value >= good ? "good" : value >= fair ? "warn" : "bad"}>${percent(value)}</span>`;
}

const MAX_CSV_PAGES = 200;

/** Save all rows of the table, page by page. */
async function saveDelivery(filters) {
  const rows = [];
  let cursor = null;
  for (let page = 0; page < MAX_CSV_PAGES; page += 1) {
    const reply = await call("GET /v1/analytics/delivery", { query: { ...filters, limit: 100, cursor } });
    rows.push(...reply.data);
    cursor = reply.nextCursor;
    if (!cursor) break;
  }
  const names = [filters.groupBy, "deliveries", "settled", "delivered", "bounced", "failed", "complained", "deliveryRate", "p50Ms", "p95Ms", "samples"];
  saveFile(new Blob([csvText([names, ...rows.map((row) => names.map((name) => row[name]))])], { type: "text/csv" }), `delivery-${filters.days}-days.csv`);
  if (cursor) toast(`The file contains the first ${number(rows.length)} rows.`, { tone: "info" });
}

function Dmarc({ days }) {
  const domain = location.value.query.get("domain") ?? "";
  const domains = useCall("GET /v1/domains", { query: { limit: 100 }, quiet: true });
  const { data, error, reload } = useCall("GET /v1/analytics/dmarc", { query: { days, domain } }, { pollMs: 60_000 });
  const choice = html`<div class="toolbar"><${SelectField} label="Domain" hideLabel value=${domain} onValue=${(value) => setQuery({ domain: value })} options=${[["", "All domains"], ...(domains.data?.data ?? []).map((one) => [one.name, one.name])]} /></div>`;
  if (error && !data) return html`${choice}<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`${choice}<${Skeleton} lines=${8} />`;
  if (data.reports === 0) {
    return html`${choice}<div class="card"><${Empty} icon="shield-check" title="No DMARC reports in this period" action=${html`<${Button} to="/domains">See the DMARC record<//>`}>Mailbox providers send a daily report to the address in your domain's DMARC record. It lists the servers that sent email in your name and whether it was aligned.<//></div>`;
  }
  const strangers = data.data.filter((row) => !row.ours && row.messages > row.aligned);
  const failing = data.data.filter((row) => row.ours && row.messages > row.aligned);
  const columns = [
    { title: "Source", cell: (row) => html`<code>${row.sourceIp}</code> ${row.ours ? html`<${Chip} tone="accent">this instance<//>` : null}` },
    { title: "Messages", end: true, cell: (row) => number(row.messages) },
    { title: "Aligned", end: true, cell: (row) => html`<${Rate} value=${row.alignmentRate} good=${0.98} fair=${0.9} />` },
    { title: "SPF", end: true, cell: (row) => number(row.spfAligned) },
    { title: "DKIM", end: true, cell: (row) => number(row.dkimAligned) },
    { title: "Quarantined", end: true, cell: (row) => number(row.quarantine) },
    { title: "Rejected", end: true, cell: (row) => number(row.reject) },
    { title: "From", cell: (row) => html`<span class="wrap">${row.headerFrom.join(", ")}</span>` },
    { title: "Streams that failed", cell: (row) => (row.failedStreams.length ? row.failedStreams.join(", ") : html`<span class="soft">–</span>`) },
  ];
  return html`${choice}<div class="stack">
    <${Figures} items=${[["Messages", shortNumber(data.messages), plural(data.reports, "report")], ["Aligned", percent(data.alignmentRate), "SPF or DKIM matches the From domain"], ["Sources", number(data.data.length + (data.others?.sources ?? 0)), `${number(strangers.length)} others with failures`]]} />
    ${failing.length > 0 && html`<${Notice} tone="bad" title="Email from this instance is not aligned.">${`${failing.map((row) => row.sourceIp).join(", ")}: check the domain's records under `}<a href=${href("/domains")}>Domains</a>.<//>`}
    ${failing.length === 0 && strangers.length > 0 && html`<${Notice} tone="warn" title=${`${plural(strangers.length, "source")} of others sent unaligned mail in your name.`}>Set up DKIM or SPF for the sources you know. To block the others, change the DMARC policy to quarantine, then to reject.<//>`}
    <${Table} label="Sources in DMARC reports" columns=${columns} rowKey=${(row) => row.sourceIp} state=${{ rows: data.data, loading: false, error, reload }} />
    ${data.others && html`<p class="small soft">${plural(data.others.sources, "more source")} with ${plural(data.others.messages, "message")}, ${percent(data.others.alignmentRate)} aligned.</p>`}
  </div>`;
}

const FAILURES = {
  "starttls-not-supported": "The server offered no TLS.",
  "certificate-host-mismatch": "The certificate names another host.",
  "certificate-expired": "The certificate has expired.",
  "certificate-not-trusted": "The certificate is not signed by a known authority.",
  "validation-failure": "The policy could not be validated.",
  "sts-policy-fetch-error": "The MTA-STS policy could not be fetched.",
  "sts-policy-invalid": "The MTA-STS policy is invalid.",
  "sts-webpki-invalid": "The certificate of the policy's web host is invalid.",
};

function Tls() {
  const { data, error, reload } = useCall("GET /v1/analytics/tls", {}, { pollMs: 60_000 });
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${8} />`;
  if (data.reports === 0) {
    return html`<div class="card"><${Empty} icon="lock" title="No TLS reports" action=${html`<${Button} to="/receiving/mta-sts">Set up MTA-STS<//>`}>If your domain publishes a TLS reporting record, mail servers report whether their connections to it were encrypted.<//></div>`;
  }
  return html`<div class="stack"><${Figures} items=${[["Sessions", shortNumber(data.sessions), plural(data.reports, "report")], ["Encrypted as the policy requires", percent(data.successRate, 2), null], ["Failures", number(data.failures), null]]} />
    ${data.data.map((row) => html`<${Card} key=${`${row.domain} ${row.policyType} ${row.policyDomain}`} title=${`${row.domain}: ${row.policyType}`}>
      <p>${plural(row.sessions, "session")}, ${plural(row.failures, "failure")}; policy of ${row.policyDomain}</p>
      ${row.failureTypes.length > 0 && html`<ul>${row.failureTypes.map((one) => html`<li><code>${one.resultType}</code> ${number(one.failures)} <span class="soft">${FAILURES[one.resultType] ?? ""}</span></li>`)}</ul>`}
    <//>`)}</div>`;
}
