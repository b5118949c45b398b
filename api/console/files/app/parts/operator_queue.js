// The operator's view of the queue: pending deliveries in groups, holds, and what can be done with them.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, Chip, Confirm, Dialog, Empty, ErrorNote, Figures, Form, Menu, Segments, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, number, plural, useState } from "../core/view.js";

const VIEWS = [["domain", "By domain"], ["site", "By destination"], ["account", "By account"], ["shard", "By shard"]];
const KINDS = [["domain", "Recipient domain"], ["site", "Destination (mail servers)"], ["account", "Account"], ["message", "Message"]];
const TIMES = [["", "Until resumed"], ["900", "15 minutes"], ["3600", "1 hour"], ["21600", "6 hours"], ["86400", "1 day"]];

const nameOf = ({ kind, target }) => (kind === "site" && target === "*" ? "the whole queue" : `${kind} ${target}`);

/** Pending deliveries and the holds in force. */
export function OperatorQueue() {
  const by = location.value.query.get("by") ?? "domain";
  const state = useCall("GET /v1/operator/queue", { query: { by, limit: 100 } }, { pollMs: true });
  const [asked, ask] = useState(null); // {action, kind, target}
  const { data, error, loading, reload } = state;
  const columns = [
    { title: { domain: "Recipient domain", site: "Destination", account: "Account", shard: "Shard" }[by] ?? "Name", cell: (row) => html`<span class="strong wrap">${row.name}</span>` },
    { title: "Deliveries", end: true, cell: (row) => number(row.rows) },
    { title: "Recipients", end: true, cell: (row) => number(row.recipients) },
    { title: "Due now", end: true, cell: (row) => number(row.due) },
    { title: "Retrying", end: true, cell: (row) => number(row.retrying) },
    { title: "Held", end: true, cell: (row) => (row.held ? html`<span class="warn">${number(row.held)}</span>` : "0") },
    { title: "Oldest", end: true, cell: (row) => duration(row.ageS * 1000) },
    { title: "Next due", end: true, cell: (row) => html`<${Time} relative at=${row.nextDue} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => by !== "shard" && html`<${QueueMenu} kind=${by} target=${row.name} ask=${ask} />` },
  ];
  return html`<div class="stack">
    <div class="toolbar"><${Segments} label="Group by" options=${VIEWS} value=${by} onValue=${(value) => setQuery({ by: value })} /><span class="grow"></span>
      <${Button} icon="pause" onClick=${() => ask({ action: "suspend", kind: "domain", target: "" })}>Hold mail<//></div>
    ${data && html`<${Figures} items=${[["Pending deliveries", number(data.rows), "one message to one domain each"], ["Holds in force", number(data.holds.length)]]} />`}
    <${Holds} holds=${data?.holds ?? []} ask=${ask} />
    <${Table} label="Pending deliveries" columns=${columns} rowKey=${(row) => row.name} state=${{ rows: data?.waiting ?? [], loading, error, reload }} empty=${html`<${Empty} icon="circle-check" title="The queue is empty">Deliveries waiting for their time or a retry appear here.<//>`} />
    ${asked && html`<${QueueAction} key=${`${asked.action} ${asked.target}`} ...${asked} onClose=${(done) => { ask(null); if (done) reload(); }} />`}
  </div>`;
}

function QueueMenu({ kind, target, ask }) {
  const item = (action, text, icon, danger) => ({ text, icon, danger, onSelect: () => ask({ action, kind, target }) });
  return html`<${Menu} label=${`Actions of ${target}`} items=${[item("flush", "Attempt now", "refresh-cw"), item("suspend", "Hold", "pause"), item("bounce", "Fail all", "ban", true)]} />`;
}

function Holds({ holds, ask }) {
  if (!holds.length) return null;
  const columns = [
    { title: "Held", cell: (row) => html`<span class="strong wrap">${row.target === "*" ? "Everything" : row.target}</span>` },
    { title: "Kind", cell: (row) => html`<${Chip} tone="warn">${row.kind}<//>` },
    { title: "Reason", cell: (row) => row.reason },
    { title: "Since", cell: (row) => html`<${Time} relative at=${row.since} />` },
    { title: "Until", cell: (row) => (row.until ? html`<${Time} at=${row.until} />` : html`<span class="soft">resumed</span>`) },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} icon="play" onClick=${() => ask({ action: "resume", kind: row.kind, target: row.target })}>Resume<//>` },
  ];
  return html`<div class="stack-tight"><h2>Holds</h2><${Table} label="Holds" columns=${columns} rowKey=${(row) => `${row.kind} ${row.target}`} state=${{ rows: holds }} /></div>`;
}

const ACTIONS = {
  suspend: { verb: "Hold mail", send: (body) => call("POST /v1/operator/queue/suspend", { body }), done: "is held", field: "reason" },
  resume: { verb: "Resume", send: (body) => call("POST /v1/operator/queue/resume", { body }), done: "is resumed", field: "note" },
  flush: { verb: "Attempt now", send: (body) => call("POST /v1/operator/queue/flush", { body }), done: "is attempted now", field: "note" },
  bounce: { verb: "Fail deliveries", send: (body) => call("POST /v1/operator/queue/bounce", { body }), done: "failed", field: "reason" },
};
const EXPLAINED = {
  suspend: "Deliveries stay in the queue and aren't attempted. Each waybill shows the reason. New messages are still accepted.",
  resume: "The hold ends, and due deliveries are attempted.",
  flush: "Pending deliveries are attempted now instead of at their next scheduled time.",
  bounce: "Pending deliveries fail permanently. Senders see them as failed, with the reason below. You can't undo this.",
};

/** The dialog of a change of the queue: hold, resume, attempt now or fail. */
function QueueAction({ action, kind: first, target: known, onClose }) {
  const { verb, send, done, field } = ACTIONS[action];
  const [kind, setKind] = useState(first);
  const [target, setTarget] = useState(known);
  const [words, setWords] = useState("");
  const [forSeconds, setForSeconds] = useState("");
  const run = async () => {
    const body = { kind, target: target.trim(), ...(words.trim() && { [field]: words.trim() }), ...(action === "suspend" && forSeconds && { forSeconds: Number(forSeconds) }) };
    const reply = await send(body);
    const rows = reply.rows == null ? "" : `: ${plural(reply.rows, "delivery", "deliveries")}`;
    const rest = reply.complete ? "" : action === "flush" ? "; more are left, repeat it for them" : "; the rest follows";
    toast(`${nameOf(reply)} ${done}${rows}${rest}`);
  };
  const fixed = known !== "";
  const fields = html`
    ${!fixed && html`<${SelectField} label="Kind" value=${kind} onValue=${setKind} options=${KINDS} />`}
    ${!fixed && html`<${TextField} label="Target" required value=${target} onValue=${setTarget} hint=${kind === "site" ? "As shown in the queue by destination; * holds the whole queue." : kind === "account" ? "acc_…" : kind === "message" ? "msg_…" : "For example example.com"} />`}
    <${TextField} label=${field === "reason" ? "Reason" : "Note (optional)"} required=${field === "reason"} maxlength="200" value=${words} onValue=${setWords} hint="Shown in each waybill." />
    ${action === "suspend" && html`<${SelectField} label="How long" value=${forSeconds} onValue=${setForSeconds} options=${TIMES} />`}`;
  if (action === "bounce") {
    return html`<${Confirm} title=${`Fail all deliveries of ${nameOf({ kind, target })}?`} confirm=${verb} typed=${target} action=${run} onClose=${onClose}><p>${EXPLAINED.bounce}</p><div class="form">${fields}</div><//>`;
  }
  return html`<${ActionDialog} title=${fixed ? `${verb}: ${nameOf({ kind, target })}` : verb} verb=${verb} run=${run} onClose=${onClose} fields=${["target"]} lead=${EXPLAINED[action]}>${fields}<//>`;
}

/** A dialog with fields and one button that runs `run`; closes when the service took it. */
export function ActionDialog({ title, verb, lead, run, onClose, children, danger }) {
  const [go, { busy, error }] = useAction(run);
  const submit = async () => { if ((await go()) !== undefined) onClose(true); };
  const id = `form-${title.replace(/\W+/g, "-")}`;
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" danger=${danger} busy=${busy} type="submit" form=${id}>${verb}<//>`}>
    ${lead && html`<p>${lead}</p>`}<${Form} id=${id} onSubmit=${submit}>${children}<${ErrorNote} error=${error} /><//>
  <//>`;
}

/** Deliveries under holds, message by message. */
export function OperatorHeld() {
  const state = usePages("GET /v1/operator/queue/held", {}, { cursorField: "after", pollMs: true });
  const [asked, ask] = useState(null);
  const columns = [
    { title: "Message and account", cell: (row) => html`<div><code>${row.messageId}</code><div class="soft"><code>${row.accountId}</code></div></div>` },
    { title: "Recipient domain", cell: (row) => row.domain },
    { title: "Recipients", end: true, cell: (row) => number(row.recipients) },
    { title: "Attempts", end: true, cell: (row) => number(row.attempts) },
    { title: "Held by", cell: (row) => html`<div>${nameOf(row.hold)}<div class="soft small">${row.hold.reason}</div></div>` },
    { title: "Since", end: true, cell: (row) => html`<${Time} relative at=${row.hold.since} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.messageId}`} items=${[{ text: "Fail this message", icon: "ban", danger: true, onSelect: () => ask({ action: "bounce", kind: "message", target: row.messageId }) }, { text: "Resume the hold", icon: "play", onSelect: () => ask({ action: "resume", kind: row.hold.kind, target: row.hold.target }) }]} />` },
  ];
  return html`<${Table} label="Held deliveries" columns=${columns} rowKey=${(row) => `${row.messageId} ${row.domain}`} state=${state} empty=${html`<${Empty} icon="circle-check" title="No delivery is held">Hold mail to a domain, a destination, of an account or a message in the tab Queue; its deliveries are listed here.<//>`} />
    ${asked && html`<${QueueAction} ...${asked} onClose=${(done) => { ask(null); if (done) state.reload(); }} />`}`;
}
