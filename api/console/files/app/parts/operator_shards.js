// The operator's view of shards: members, load, splits, and changes that are planned before they are made.
import { call, useAction, useCall } from "../core/api.js";
import { Button, CheckField, Chip, Dialog, Empty, ErrorNote, Facts, Form, Menu, Segments, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, number, plural, useState } from "../core/view.js";

/** Members, the busiest shards, and split domains. */
export function OperatorShards() {
  const { data, error, loading, reload } = useCall("GET /v1/operator/shards", { query: { limit: 100 } }, { pollMs: true });
  const [asked, ask] = useState(null);
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  const state = (rows) => ({ rows: rows ?? [], loading, error: null, reload });
  const menu = html`<${Button} icon="split" onClick=${() => ask({ change: "split" })}>Split a domain<//><${Button} icon="settings" onClick=${() => ask({ change: "balance", by: data?.balancedBy })}>Balance<//>`;
  return html`<div class="stack">
    <div class="toolbar"><span class="soft">Shards are distributed by ${data?.balancedBy ?? "…"}.</span><span class="grow"></span>${menu}</div>
    <div class="stack-tight"><h2>Members</h2><${Table} label="Members" columns=${memberColumns(ask)} rowKey=${(row) => row.member} state=${state(data?.members)} empty=${html`<${Empty} icon="server" title="No mta process runs">Each mta process is a member that owns shards.<//>`} /></div>
    ${data?.splits.length > 0 && html`<div class="stack-tight"><h2>Split domains</h2><${Table} label="Split domains" columns=${splitColumns(ask)} rowKey=${(row) => row.domain} state=${state(data.splits)} /></div>`}
    <div class="stack-tight"><h2>Busiest shards</h2><${Table} label="Shards" columns=${shardColumns(ask)} rowKey=${(row) => String(row.shard)} state=${state(data?.shards)} empty=${html`<${Empty} icon="layers" title="No shards">The first mta process makes them.<//>`} /></div>
    ${asked && html`<${ShardChange} key=${JSON.stringify(asked)} ...${asked} members=${data?.members ?? []} onClose=${(done) => { ask(null); if (done) reload(); }} />`}
  </div>`;
}

const memberColumns = (ask) => [
  { title: "Member", cell: (row) => html`<span class="strong">${row.member}</span>` },
  { title: "Shards", end: true, cell: (row) => number(row.shards) },
  { title: "Waiting", end: true, cell: (row) => number(row.waiting) },
  { title: "Messages/s", end: true, cell: (row) => number(row.rate) },
  { title: "Load", end: true, cell: (row) => number(row.burden) },
  { title: "Weight", end: true, cell: (row) => row.weight },
  { title: "State", cell: (row) => html`${row.draining ? html`<${Chip} tone="warn">draining<//>` : html`<${Chip} tone="good">active<//>`}${row.why && html` <span class="soft small">${row.why}</span>`}` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.member}`} items=${[{ text: row.draining ? "End draining" : "Drain", icon: row.draining ? "play" : "pause", onSelect: () => ask({ change: "drain", name: row.member, undo: row.draining }) }, { text: "Set the weight", icon: "settings", onSelect: () => ask({ change: "weight", name: row.member, weight: row.weight }) }]} />` },
];

const shardColumns = (ask) => [
  { title: "Shard", cell: (row) => html`<span class="strong numeric">${row.shard}</span>` },
  { title: "Owner", cell: (row) => row.owner ?? html`<span class="bad">none</span>` },
  { title: "Waiting", end: true, cell: (row) => number(row.waiting) },
  { title: "Messages/s", end: true, cell: (row) => number(row.rate) },
  { title: "Lag", end: true, cell: (row) => (row.lagS ? duration(row.lagS * 1000) : "–") },
  { title: "Oldest due", end: true, cell: (row) => html`<${Time} relative at=${row.oldestDue} />` },
  { title: "Pinned to", cell: (row) => row.pinned ?? html`<span class="soft">–</span>` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of shard ${row.shard}`} items=${[{ text: "Move", icon: "arrow-left", onSelect: () => ask({ change: "move", shard: row.shard }) }, row.pinned && { text: "Unpin", icon: "x", onSelect: () => ask({ change: "move", shard: row.shard, unpin: true }) }]} />` },
];

const splitColumns = (ask) => [
  { title: "Domain", cell: (row) => html`<span class="strong">${row.domain}</span>` },
  { title: "Shards", end: true, cell: (row) => number(row.parts) },
  { title: "By", cell: (row) => row.whose },
  { title: "Reason", cell: (row) => row.why },
  { title: "Since", cell: (row) => html`<${Time} relative at=${row.since} />` },
  { title: "Rows moved", end: true, cell: (row) => number(row.movedRows) },
  { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} onClick=${() => ask({ change: "merge", domain: row.domain })}>Merge<//>` },
];

const CHANGES = {
  move: { title: "Move shards", send: (body) => call("POST /v1/operator/shards/move", { body }) },
  drain: { title: "Drain", send: (body) => call("POST /v1/operator/shards/drain", { body }) },
  weight: { title: "Set the weight", send: (body) => call("POST /v1/operator/shards/weight", { body }) },
  balance: { title: "Balance the shards", send: (body) => call("POST /v1/operator/shards/balance", { body }) },
  split: { title: "Split a domain", send: (body) => call("POST /v1/operator/shards/split", { body }) },
  merge: { title: "Merge a domain", send: (body) => call("POST /v1/operator/shards/merge", { body }) },
};

/** The dialog of a change: its fields, then the plan of the service, then the change. */
function ShardChange({ change, members, onClose, ...known }) {
  const [values, setValues] = useState(() => ({ shards: String(known.shard ?? ""), to: "", weight: String(known.weight ?? 1), by: known.by ?? "load", domain: known.domain ?? "", parts: "4", byRule: true, reason: "" }));
  const [plan, setPlan] = useState(null);
  const set = (name) => (value) => {
    setValues((old) => ({ ...old, [name]: value }));
    setPlan(null);
  };
  const [run, { busy, error }] = useAction((dryRun) => CHANGES[change].send({ ...bodyOf(change, known, values), dryRun }));
  const ask = async () => {
    const reply = await run(true);
    if (reply) setPlan(reply);
  };
  const apply = async () => {
    if (!(await run(false))) return;
    toast("The change has started. The list shows its progress");
    onClose(true);
  };
  const title = known.name ? `${known.undo ? "End draining of" : CHANGES[change].title} ${known.name}` : known.unpin ? `Unpin shard ${known.shard}` : CHANGES[change].title;
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind=${plan ? "plain" : "primary"} busy=${busy && !plan} type="submit" form="shard-change">Show the plan<//>${plan && html`<${Button} kind="primary" busy=${busy} onClick=${apply}>Apply the plan<//>`}`}>
    <${Form} id="shard-change" onSubmit=${ask}><${ChangeFields} change=${change} known=${known} values=${values} set=${set} members=${members} /><${ErrorNote} error=${error} /><//>
    ${plan && html`<${Plan} plan=${plan} />`}
  <//>`;
}

function bodyOf(change, known, { shards, to, weight, by, domain, parts, byRule, reason }) {
  const why = reason.trim() ? { reason: reason.trim() } : {};
  if (change === "move") return { shards: shards.split(/[\s,]+/).filter(Boolean).map(Number), to: known.unpin ? null : to, ...why };
  if (change === "drain") return { name: known.name, undo: Boolean(known.undo), ...why };
  if (change === "weight") return { name: known.name, weight: Number(weight), ...why };
  if (change === "balance") return { by };
  if (change === "split") return { domain: domain.trim(), parts: Number(parts), ...why };
  return { domain: domain.trim(), byRule, ...why };
}

function ChangeFields({ change, known, values, set, members }) {
  const reason = change !== "balance" && html`<${TextField} label="Reason (optional)" value=${values.reason} onValue=${set("reason")} hint="Shown with the shards." />`;
  if (change === "move") {
    return html`<${TextField} label="Shards" required value=${values.shards} onValue=${set("shards")} hint="Numbers, separated by spaces or commas." />
      ${!known.unpin && html`<${SelectField} label="To" required value=${values.to} onValue=${set("to")} options=${[["", "Choose a member"], ...members.map((one) => [one.member, one.member])]} />`}${reason}`;
  }
  if (change === "weight") return html`<${TextField} label="Weight" type="number" min="0.01" max="100" step="0.01" required value=${values.weight} onValue=${set("weight")} hint="Relative share of the load; 1 is the default." />${reason}`;
  if (change === "balance") return html`<${Segments} label="Distribute shards by" options=${[["load", "Load of the last minute"], ["count", "Number"]]} value=${values.by} onValue=${set("by")} />`;
  if (change === "split") return html`<${TextField} label="Recipient domain" required value=${values.domain} onValue=${set("domain")} /><${TextField} label="Shards" type="number" min="2" max="64" required value=${values.parts} onValue=${set("parts")} />${reason}`;
  if (change === "merge") return html`<p>The mail to ${values.domain} goes through one shard again.</p><${CheckField} label="The automatic rule may split it again" checked=${values.byRule} onChecked=${set("byRule")} />${reason}`;
  return html`<p>${known.undo ? "The member may own shards again." : "All shards move to other members, while mail flows. The member then has no work and can be stopped."}</p>${reason}`;
}

const spaced = (name) => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/^./, (letter) => letter.toUpperCase());

function Plan({ plan }) {
  const said = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const isMove = plan.steps.length > 0 && "from" in plan.steps[0];
  const columns = isMove
    ? [{ title: "Shard", cell: (row) => row.shard }, { title: "From", cell: (row) => row.from ?? "none" }, { title: "To", cell: (row) => row.to ?? "none" }, { title: "Messages/s", end: true, cell: (row) => number(row.rate) }]
    : [{ title: "Shard", cell: (row) => row.shard }, { title: "Now", cell: (row) => (row.now ? "yes" : "no") }, { title: "Then", cell: (row) => (row.then ? "yes" : "no") }];
  return html`<section class="stack-tight" aria-label="Plan"><h3>Plan</h3>
    <${Facts} items=${Object.entries(plan.plan).map(([name, value]) => [spaced(name), said(value)])} />
    ${plan.steps.length ? html`<${Table} label="Steps of the plan" columns=${columns} rowKey=${(row) => String(row.shard)} state=${{ rows: plan.steps.slice(0, 100) }} />` : html`<p class="soft">No shard has to move.</p>`}
    ${plan.steps.length > 100 && html`<p class="soft small">${plural(plan.steps.length, "step")}, the first 100 are shown.</p>`}
  </section>`;
}
