// Suppressions: addresses that the account does not send to, with their causes.
import { call, download, usePages, useAction } from "../core/api.js";
import { href, location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { breakable, Button, Confirm, CopyButton, Dialog, Empty, ErrorNote, fieldError, Form, Menu, Notice, PageHead, SearchField, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { ReasonChip } from "../parts/reason_chip.js";
import { SuppressionFile } from "../parts/suppression_file.js";

const loadViews = () => import("../parts/saved_views.js");

const FILTER = [["", "All reasons"], ["bounce", "Bounce"], ["complaint", "Complaint"], ["unsubscribe", "Unsubscribe"], ["manual", "Manual"]];
const COMPLAINT = "This person reported your email as spam. Mailbox providers block senders who email them again, so you can't remove this suppression.";

export function Suppressions() {
  const { query } = location.value;
  const filters = { search: query.get("search"), reason: query.get("reason") };
  const state = usePages("GET /v1/suppressions", { query: filters }, { pollMs: true });
  const [open, setOpen] = useState(null); // "add", "file", or a row to lift
  const filtered = Boolean(filters.search || filters.reason);
  const close = (done) => {
    setOpen(null);
    if (done) state.reload();
  };
  const actions = html`<${Menu} label="Export" text="Export" kind="plain" items=${[["csv", "CSV"], ["ndjson", "NDJSON, one suppression per line"]].map(([format, text]) => ({ text, icon: "download", onSelect: () => save(format, filters.reason) }))} />
    <${Button} icon="upload" role="member" onClick=${() => setOpen("file")}>Import file<//><${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen("add")}>Suppress address<//>`;
  return html`<${PageHead} title="Suppressions" lead="Addresses you don't send to. Bounces, complaints and unsubscribes are added automatically." actions=${actions} />
    <div class="toolbar"><${SearchField} label="Search addresses" value=${filters.search} onValue=${(search) => setQuery({ search })} />
      <div class="toolbar-select"><${SelectField} label="Reason" hideLabel value=${filters.reason} options=${FILTER} onValue=${(reason) => setQuery({ reason })} /></div><${Lazy} load=${loadViews} name="SavedViews" page="suppressions" /></div>
    <${Table} label="Suppressions" columns=${columns(setOpen)} state=${state} rowKey=${(row) => row.address} empty=${filtered ? html`<${NoMatch} />` : html`<${NoSuppressions} onAdd=${() => setOpen("add")} />`} />
    ${open === "add" && html`<${AddSuppression} onClose=${close} />`}
    ${open === "file" && html`<${SuppressionFile} onClose=${close} />`}
    ${open?.address && html`<${LiftSuppression} row=${open} onClose=${close} />`}`;
}

async function save(format, reason) {
  try {
    await download("GET /v1/suppressions/export", { query: { format, reason } }, `suppressions.${format}`);
  } catch (error) {
    if (!error.type) throw error;
    toast(error.message, { tone: "bad" });
  }
}

const columns = (onLift) => [
  { title: "Address", cell: (row) => html`<span class="copy-line"><span class="strong wrap address">${breakable(row.address)}</span><${CopyButton} text=${row.address} label=${`Copy ${row.address}`} /></span>` },
  { title: "Reason", cell: (row) => html`<${ReasonChip} reason=${row.reason} />` },
  { title: "Cause", cell: (row) => html`<${Cause} row=${row} />` },
  { title: "Added", cell: (row) => html`<${Time} at=${row.createdAt} />` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.address}`} items=${[
    { text: "Messages to this address", icon: "send", to: "/messages", query: { to: row.address } },
    { text: "Remove suppression", icon: "trash-2", danger: true, why: row.reason === "complaint" ? COMPLAINT : null, onSelect: () => onLift(row) },
  ]} />` },
];

function Cause({ row }) {
  const link = row.messageId && html`<a href=${href(`/messages/${row.messageId}`)}>Message</a>`;
  if (!row.detail && !link) return html`<span class="soft">–</span>`;
  return html`<span class="wrap small">${row.detail}${row.detail && link ? " · " : ""}${link}</span>`;
}

function NoMatch() {
  return html`<${Empty} icon="search" title="No suppression matches" action=${html`<${Button} onClick=${() => setQuery({ search: null, reason: null })}>Clear filters<//>`}>You can send to every address that isn't listed.<//>`;
}

function NoSuppressions({ onAdd }) {
  const curl = `curl ${window.location.origin}/v1/suppressions -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"address": "ann@example.com", "reason": "unsubscribe"}'`;
  return html`<${Empty} icon="ban" title="No address is suppressed" action=${html`<${Button} kind="primary" icon="plus" role="member" onClick=${onAdd}>Suppress address<//>`} curl=${curl}>Addresses that bounce permanently, complain or unsubscribe appear here. Import the suppressions of your previous service before you send.<//>`;
}

function AddSuppression({ onClose }) {
  const [address, setAddress] = useState("");
  const [reason, setReason] = useState("manual");
  const [add, { busy, error }] = useAction(() => call("POST /v1/suppressions", { body: { address: address.trim(), reason } }));
  const submit = async () => {
    const made = await add();
    if (made === undefined) return;
    toast(made.reason === reason ? `${made.address} suppressed` : `${made.address} was already suppressed for a stronger reason: ${made.reason}`);
    onClose(true);
  };
  return html`<${Dialog} title="Suppress address" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Suppress<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Address" type="email" required autofocus value=${address} onValue=${setAddress} error=${fieldError(error, "address")} />
      <${SelectField} label="Reason" value=${reason} onValue=${setReason} options=${[["manual", "Manual: block all email"], ["unsubscribe", "Unsubscribe: block all except transactional email"]]} hint="If the address already has a stronger reason, that one is kept." />
      <${ErrorNote} error=${error} fields=${["address"]} />
    <//><//>`;
}

const LIFTED = {
  bounce: "Messages to it are sent again. If the mailbox still doesn't exist, they bounce and hurt your domain's reputation.",
  unsubscribe: "This person unsubscribed. Remove this only if they asked you to; otherwise they may report you as spam.",
  manual: "Messages to it are sent again.",
};

/** The question before a suppression is lifted, with the consequences of its reason. */
function LiftSuppression({ row, onClose }) {
  const done = (ok) => {
    if (ok) toast(`${row.address} can receive your email again`);
    onClose(ok);
  };
  return html`<${Confirm} title=${`Remove the suppression of ${row.address}?`} confirm="Remove suppression" action=${() => call("DELETE /v1/suppressions/{address}", { path: { address: row.address } })} onClose=${done}>
    ${row.reason === "complaint" ? html`<${Notice} tone="warn">${COMPLAINT}<//>` : LIFTED[row.reason]}<//>`;
}
