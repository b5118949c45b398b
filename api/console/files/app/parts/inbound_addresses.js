// Claimed addresses: claim, label, disable, delete; the managed receiving domain.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { useAskedForNew } from "../core/router.js";
import { Button, Card, Chip, Confirm, Code, CopyLine, Dialog, Empty, ErrorNote, fieldError, Form, Menu, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, useState } from "../core/view.js";

/** The list of claimed addresses. */
export function InboundAddresses({ service }) {
  const state = usePages("GET /v1/inbound/addresses", {}, { pollMs: true });
  const domains = useCall("GET /v1/inbound/domains", { query: { limit: 100 } });
  const me = useCall("GET /v1/me");
  const [open, setOpen] = useState(null); // {kind: "claim" | "label" | "delete", row}
  const close = (done) => {
    setOpen(null);
    if (!done) return;
    state.reload();
    me.reload();
  };
  useAskedForNew("member", () => setOpen({ kind: "claim" }));
  const limit = me.data?.limits.find((one) => one.resource === "inbound_addresses");
  const claim = html`<${Button} kind="primary" icon="plus" role="member" why=${whyFull(limit)} onClick=${() => setOpen({ kind: "claim" })}>Claim address<//>`;
  return html`<div class="stack">
    <div class="row-wide"><span class="soft">${limit && limit.limit !== 0 ? `${number(limit.used)} ${limit.limit === null ? "" : `of ${number(limit.limit)} `}addresses claimed.` : ""}</span>${claim}</div>
    <${Table} label="Claimed addresses" columns=${columns(setOpen, state.reload)} state=${state} empty=${html`<${NoAddresses} action=${claim} domain=${verified(domains)[0]?.name} />`} />
    ${domains.data?.managed && html`<${Managed} managed=${domains.data.managed} at=${service.incoming} />`}
    <${ErrorNote} error=${domains.error} retry=${domains.reload} /></div>
    ${open?.kind === "claim" && html`<${ClaimAddress} domains=${verified(domains)} onClose=${close} />`}
    ${open?.kind === "label" && html`<${LabelAddress} row=${open.row} onClose=${close} />`}
    ${open?.kind === "delete" && html`<${Confirm} title=${`Delete the address ${open.row.address}?`} confirm="Delete address" action=${() => call("DELETE /v1/inbound/addresses/{id}", { path: { id: open.row.id } })} onClose=${(done) => { if (done) toast(`${open.row.address} is deleted`); close(done); }}>Email to it is rejected from now on, and its route is deleted. Received messages are kept. To reject email temporarily, disable the address instead.<//>`}`;
}

const verified = (domains) => (domains.data?.data ?? []).filter((one) => one.status === "verified");

function whyFull(limit) {
  if (!limit || limit.limit === null || limit.used < limit.limit) return undefined;
  return limit.limit === 0 ? "Your plan doesn't include receiving. Upgrade under Billing." : `You've reached your plan's limit of ${number(limit.limit)} addresses. Delete one or upgrade the plan.`;
}

const columns = (onOpen, reload) => [
  { title: "Address", cell: (row) => html`<${CopyLine} text=${row.address} />` },
  { title: "Label", cell: (row) => html`<span class="wrap">${row.label ?? html`<span class="soft">–</span>`}</span>` },
  { title: "State", cell: (row) => html`<${Chip} tone=${row.enabled ? "good" : "warn"}>${row.enabled ? "receives" : "disabled"}<//>` },
  { title: "Last message", cell: (row) => html`<${Time} at=${row.lastReceivedAt} relative />` },
  { title: "Claimed", cell: (row) => html`<${Time} at=${row.createdAt} />` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.address}`} items=${[
    { text: "Show messages", icon: "inbox", to: "/inbox", query: { address: row.address } },
    { text: "Change label", icon: "pencil", onSelect: () => onOpen({ kind: "label", row }) },
    { text: row.enabled ? "Disable: reject email" : "Enable", icon: row.enabled ? "pause" : "play", onSelect: () => enable(row, reload) },
    { text: "Delete", icon: "trash-2", danger: true, onSelect: () => onOpen({ kind: "delete", row }) },
  ]} />` },
];

async function enable(row, reload) {
  try {
    await call("PATCH /v1/inbound/addresses/{id}", { path: { id: row.id }, body: { enabled: !row.enabled } });
    toast(row.enabled ? `${row.address} now rejects email` : `${row.address} now receives email`);
    reload();
  } catch (error) {
    if (!error.type) throw error;
    toast(error.message, { tone: "bad" });
  }
}

function NoAddresses({ action, domain }) {
  const curl = `curl ${window.location.origin}/v1/inbound/addresses -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"address": "support@${domain ?? "example.com"}"}'`;
  return html`<${Empty} icon="at-sign" title="No address claimed" action=${action} curl=${curl}>Claim support@ or *@ a verified domain. Email to it appears in the inbox, goes to your webhooks, or is forwarded.<//>`;
}

/** The domain that the service gives to the account: any address under it receives at once. */
function Managed({ managed, at }) {
  const address = `test@${managed.name}`;
  const server = at ? `${at.host}:${at.port}` : managed.name;
  return html`<${Card} title="Managed receiving domain"><div class="stack-tight">
    <p>Every address at this domain receives email without any setup. Use it to try receiving, or for replies.</p>
    <${CopyLine} text=${address} label="Copy an address of the managed domain" />
    <p class="soft">The first message to it claims *@${managed.name}, which counts as one address.</p>
    <${Code} text=${`swaks --server ${server} --to ${address} --from ann@example.com --header "Subject: Hello" --body "It works"`} label="Example with swaks" /></div><//>`;
}

function ClaimAddress({ domains, onClose }) {
  const [kind, setKind] = useState("one");
  const [local, setLocal] = useState("");
  const [chosen, setDomain] = useState("");
  const domain = chosen || (domains[0]?.name ?? ""); // the dialog may open before the domains are known
  const [label, setLabel] = useState("");
  const address = `${kind === "all" ? "*" : local.trim()}@${domain}`;
  const [claim, { busy, error }] = useAction(() => call("POST /v1/inbound/addresses", { body: { address, label: label.trim() || null } }));
  const submit = async () => {
    if ((await claim()) === undefined) return;
    toast(`${address} claimed`);
    onClose(true);
  };
  const why = domains.length ? undefined : "Verify a domain first.";
  return html`<${Dialog} title="Claim address" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} why=${why} disabled=${kind === "one" && !local.trim()} onClick=${submit}>Claim<//>`}>
    ${domains.length === 0 ? html`<p>You claim addresses at verified domains, and you have none yet.</p><div><${Button} to="/domains">Add a domain<//></div>` : html`<${Form} onSubmit=${submit}>
      <${SelectField} label="What to claim" value=${kind} onValue=${setKind} options=${[["one", "One address"], ["all", "Every address you haven't claimed (*@)"]]} />
      ${kind === "one" && html`<${TextField} label="Name before the @" required autofocus placeholder="support" value=${local} onValue=${setLocal} error=${fieldError(error, "address")} hint=${`support+42@${domain} reaches support@${domain} too.`} />`}
      <${SelectField} label="Domain" value=${domain} onValue=${setDomain} options=${domains.map((one) => [one.name, one.name])} />
      <${TextField} label="Label" maxlength="120" value=${label} onValue=${setLabel} error=${fieldError(error, "label")} />
      <p class="soft">You claim <strong class="wrap">${kind === "one" && !local.trim() ? `…@${domain}` : address}</strong>.</p>
      <${ErrorNote} error=${error} fields=${kind === "one" ? ["address", "label"] : ["label"]} />
    <//>`}<//>`;
}

function LabelAddress({ row, onClose }) {
  const detail = useCall("GET /v1/inbound/addresses/{id}", { path: { id: row.id } });
  const [label, setLabel] = useState(row.label ?? "");
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/inbound/addresses/{id}", { path: { id: row.id }, body: { label: label.trim() || null } }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast("Label saved");
    onClose(true);
  };
  return html`<${Dialog} title=${`Label of ${row.address}`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Save<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Label" autofocus maxlength="120" value=${label} onValue=${setLabel} error=${fieldError(error, "label")} hint="Only your team sees it." />
    ${detail.data && html`<p class="soft">${number(detail.data.unread)} unread messages.</p>`}<${ErrorNote} error=${error} fields=${["label"]} /><//><//>`;
}
