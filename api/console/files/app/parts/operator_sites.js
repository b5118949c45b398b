// The operator's destinations: limits of mail servers, where they come from, and their state in each process.
import { call, useCall } from "../core/api.js";
import { go } from "../core/router.js";
import { Button, Card, CheckField, Chip, Confirm, Empty, ErrorNote, Facts, Form, PageHead, SelectField, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, useState } from "../core/view.js";
import { ActionDialog } from "./operator_queue.js";

const siteTo = (row) => `/operator/sites/${encodeURIComponent(row.site)}`;

const SITES = [
  { title: "Destination", cell: (row) => html`<span class="wrap">${row.site}</span>` },
  { title: "Process", cell: (row) => row.process },
  { title: "State", cell: (row) => html`<${Chip} tone=${row.phase === "open" || row.phase === "normal" ? "good" : "warn"}>${row.phase}<//>` },
  { title: "Window", end: true, cell: (row) => number(row.window) },
  { title: "Open", end: true, cell: (row) => number(row.open) },
  { title: "Waiting", end: true, cell: (row) => number(row.waiting) },
  { title: "Last change", cell: (row) => html`<span class="soft small wrap">${row.last || "–"}</span>` },
];
const RULES = [
  { title: "For", cell: (row) => html`<span class="wrap">${[row.names].flat().join(", ")}</span>` },
  { title: "Set by", cell: (row) => html`<${Chip} tone=${row.whose === "operator" ? "accent" : ""}>${row.whose}<//>` },
  { title: "Rule", cell: (row) => html`<code class="wrap">${row.rule}</code>` },
  { title: "Why", cell: (row) => html`<span class="soft">${row.why}</span>` },
];

/** The sites with mail, and all rules. */
export function OperatorSites() {
  const { data, error, loading, reload } = useCall("GET /v1/operator/sites", {}, { pollMs: true });
  const [name, setName] = useState("");
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  const state = (rows) => ({ rows: rows ?? [], loading, error: null, reload });
  return html`<div class="stack">
    <${Form} onSubmit=${() => go(`/operator/sites/${encodeURIComponent(name.trim())}`)}><div class="row look-up"><${TextField} label="Look up the limits of a destination" placeholder="Domain, mail server, or * for all" required value=${name} onValue=${setName} /><${Button} type="submit" icon="search">Look up<//></div><//>
    <div class="stack-tight"><h2>Destinations with changes in the last hour</h2><${Table} label="Destinations" columns=${SITES} rowKey=${(row) => `${row.site} ${row.process}`} rowTo=${siteTo} state=${state(data?.sites)} empty=${html`<${Empty} icon="globe" title="No destination changed">Mail servers that were slow, full or refused connections in the last hour are listed here.<//>`} /></div>
    <div class="stack-tight"><h2>Rules</h2><${Table} label="Rules" columns=${RULES} rowKey=${(row) => `${row.whose} ${row.names}`} state=${state(data?.rules)} empty=${html`<${Empty} icon="settings" title="No rules">Look up a destination to set its limits.<//>`} /></div>
  </div>`;
}

const PROCESSES = [
  { title: "Process", cell: (row) => row.process },
  { title: "State", cell: (row) => html`<${Chip} tone="">${row.phase}<//>` },
  { title: "Window", end: true, cell: (row) => number(row.window) },
  { title: "Share", end: true, cell: (row) => number(row.share) },
  { title: "Open", end: true, cell: (row) => number(row.open) },
  { title: "Waiting", end: true, cell: (row) => number(row.waiting) },
  { title: "Next probe", cell: (row) => html`<${Time} relative at=${row.nextProbe} />` },
  { title: "Last moved by", cell: (row) => (row.movedBy ? html`<span class="wrap">${row.movedBy.said}</span> <span class="soft small">${row.movedBy.effect}</span>` : html`<span class="soft">–</span>`) },
];
const NAMES = {
  connections: "Connections",
  messages_per_connection: "Messages per connection",
  per_second: "Messages per second",
  per_minute: "Messages per minute",
  per_hour: "Messages per hour",
  recipients: "Recipients per message",
  family: "Address family",
  ladder_s: "Retry schedule (seconds)",
  back_off: "Replies that ask to slow down",
  together: "One limit for all servers below the name",
};

function valueOf({ value }) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return [value].flat().join(", ").replaceAll(",", ", ").replaceAll(",  ", ", ") || "–";
}

const LIMITS = [
  { title: "Limit", cell: (row) => NAMES[row.rule] ?? row.rule },
  { title: "Value", cell: (row) => html`<span class="wrap">${valueOf(row)}</span>` },
  { title: "Because", cell: (row) => html`<span class="soft wrap">${row.because}</span>` },
];

/** The limits of one destination, where each comes from, and the state in each process. */
export function OperatorSite({ id: name }) {
  const { data, error, reload } = useCall("GET /v1/operator/sites/{name}", { path: { name } }, { pollMs: true });
  const [asked, ask] = useState(null);
  const back = ["/operator/sites", "Destinations"];
  const close = (done) => {
    ask(null);
    if (done) reload();
  };
  const own = data?.rules.some((one) => one.because.startsWith("operator"));
  const actions = data && html`${own && html`<${Button} onClick=${() => ask("reset")}>Remove limits<//>`}<${Button} kind="primary" onClick=${() => ask("limits")}>Set limits<//>`;
  if (!data) return html`<${PageHead} title=${name} back=${back} />${error ? html`<${ErrorNote} error=${error} retry=${reload} />` : html`<${Skeleton} />`}`;
  return html`<${PageHead} title=${name} back=${back} actions=${actions} />
    <div class="stack"><${Card} title="Destination"><${Facts} items=${[["Site", data.site], ["Shares its limits as", data.window], ["Mail servers", data.hosts?.join(", ") || null]]} /><//>
      <div class="stack-tight"><h2>Limits</h2><${Table} label="Limits" columns=${LIMITS} rowKey=${(row) => row.rule} state=${{ rows: data.rules }} empty=${html`<${Empty} icon="settings" title="No limits">The settings of the service apply.<//>`} /></div>
      <div class="stack-tight"><h2>State in each process</h2><${Table} label="State in each process" columns=${PROCESSES} rowKey=${(row) => `${row.process} ${row.site}`} state=${{ rows: data.processes }} empty=${html`<${Empty} icon="server" title="No process knows it">A process learns about a destination with its first mail.<//>`} /></div>
      ${data.processes.some((one) => one.recent.length) && html`<div class="stack-tight"><h2>Recent replies</h2><${Table} label="Recent replies" columns=${RECENT} rowKey=${(row) => row.key} state=${{ rows: data.processes.flatMap((one) => one.recent.map((said, at) => ({ ...said, process: one.process, key: `${one.process} ${at}` }))) }} /></div>`}</div>
    ${asked === "limits" && html`<${SetLimits} name=${name} rules=${data.rules} onClose=${close} />`}
    ${asked === "reset" && html`<${Confirm} title=${`Remove the operator's limits of ${name}?`} confirm="Remove limits" action=${() => call("DELETE /v1/operator/sites/{name}", { path: { name } })} onClose=${close}>The shipped rules and the settings apply again within a second.<//>`}`;
}

const RECENT = [
  { title: "Reply", cell: (row) => html`<span class="mono">${row.said}</span>` },
  { title: "Effect", cell: (row) => row.effect },
  { title: "Process", cell: (row) => row.process },
  { title: "At", end: true, cell: (row) => html`<${Time} relative at=${row.at} />` },
];
const NUMBERS = [["connections", "Connections"], ["messagesPerConnection", "Messages per connection"], ["perSecond", "Messages per second"], ["perMinute", "Messages per minute"], ["perHour", "Messages per hour"], ["recipients", "Recipients per message"]];
const FAMILIES = [["", "Unchanged"], ["null", "Settings of the service"], ["ipv4", "IPv4 first"], ["ipv6", "IPv6 first"], ["ipv4-only", "IPv4 only"], ["ipv6-only", "IPv6 only"]];

function SetLimits({ name, rules, onClose }) {
  const now = Object.fromEntries(rules.map((one) => [NAMES[one.rule], valueOf(one)]));
  const [values, setValues] = useState({});
  const set = (field) => (value) => setValues((old) => ({ ...old, [field]: value }));
  const run = async () => {
    const body = {};
    for (const [field] of NUMBERS) if (values[field]?.trim()) body[field] = values[field].trim() === "-" ? null : Number(values[field]);
    if (values.family) body.family = values.family === "null" ? null : values.family;
    if (values.ladder?.trim()) body.ladderS = values.ladder.trim() === "-" ? null : values.ladder.split(/[\s,]+/).filter(Boolean).map(Number);
    if (values.backOff?.trim()) body.backOff = values.backOff.trim() === "-" ? null : values.backOff.split("\n").map((one) => one.trim()).filter(Boolean);
    if (values.together !== undefined) body.together = values.together;
    if (values.why?.trim()) body.why = values.why.trim();
    const reply = await call("PATCH /v1/operator/sites/{name}", { path: { name }, body });
    toast(`Limits of ${reply.name} changed`);
  };
  return html`<${ActionDialog} title=${`Limits of ${name}`} verb="Set limits" lead="Leave a field blank to keep it; enter a hyphen to remove a limit. Limits apply across all processes within a second." run=${run} onClose=${onClose}>
    <div class="columns">${NUMBERS.map(([field, label]) => html`<${TextField} key=${field} label=${label} placeholder=${now[label]} inputmode="decimal" pattern="-|[0-9]+(\\.[0-9]+)?" value=${values[field]} onValue=${set(field)} />`)}</div>
    <${SelectField} label="Address family" value=${values.family} onValue=${set("family")} options=${FAMILIES} />
    <${TextField} label="Retry schedule" hint="Seconds between attempts, such as 60 300 900." pattern="-|[0-9., ]+" value=${values.ladder} onValue=${set("ladder")} />
    <${TextField} label="Replies that ask to slow down" rows=${2} hint="Words in a reply, one per line." value=${values.backOff} onValue=${set("backOff")} />
    <${CheckField} label="All servers below the name share one limit" checked=${values.together ?? false} onChecked=${set("together")} />
    <${TextField} label="Reason" value=${values.why} onValue=${set("why")} hint="Shown beside the rule." />
  <//>`;
}
