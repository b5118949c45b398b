// Inbound routes: what happens with mail to an address or a domain.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, CheckField, Chip, Confirm, Dialog, Empty, ErrorNote, fieldError, Form, Menu, Notice, SelectField, TextField, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";

const ACTIONS = [["mailbox", "Keep in the inbox"], ["webhook", "Post to webhooks only"], ["both", "Keep and post to webhooks"], ["forward", "Forward to an address"]];
const INCLUDES = [["text", "Text"], ["html", "HTML"], ["replyText", "Reply only: the text without quotes and signature"], ["headers", "Headers"]];
const ACTION = Object.fromEntries(ACTIONS);

/** Return why a route does something else than its action, or null. */
export function whyDifferent(route) {
  if (route.effective === route.action) return null;
  if (!route.enabled) return "The route is disabled, so messages stay in the inbox.";
  if (route.action === "forward") return "The forwarding address is no longer confirmed, so messages stay in the inbox.";
  return route.webhookId ? "The webhook endpoint is disabled or deleted, so messages stay in the inbox." : "No active webhook endpoint is subscribed to inbound.received, so messages stay in the inbox.";
}

/** The list of routes. */
export function InboundRoutes() {
  const state = usePages("GET /v1/inbound/routes", {}, { pollMs: true });
  const webhooks = useCall("GET /v1/webhooks", { query: { limit: 100 } });
  const [open, setOpen] = useState(null); // "new", or {kind: "edit" | "delete", row}
  const close = (done) => {
    setOpen(null);
    if (done) state.reload();
  };
  const create = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen({ kind: "edit" })}>New route<//>`;
  const curl = `curl ${window.location.origin}/v1/inbound/routes -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"address": "support@example.com", "action": "both", "include": ["text"]}'`;
  return html`<div class="stack"><div class="row-wide"><span class="soft">An address's route takes precedence over its domain's route, even when disabled.</span>${create}</div>
    <${Table} label="Routes" columns=${columns(webhooks.data?.data ?? [], setOpen, state.reload)} state=${state} empty=${html`<${Empty} icon="route" title="No routes" action=${create} curl=${curl}>All messages stay in the inbox. A route posts them to your webhooks or forwards them.<//>`} /></div>
    ${open?.kind === "edit" && html`<${EditRoute} route=${open.row} webhooks=${webhooks.data?.data ?? []} onClose=${close} />`}
    ${open?.kind === "delete" && html`<${Confirm} title=${`Delete the route of ${targetOf(open.row)}?`} confirm="Delete route" action=${() => call("DELETE /v1/inbound/routes/{id}", { path: { id: open.row.id } })} onClose=${(done) => { if (done) toast("Route deleted"); close(done); }}>${open.row.address ? "The domain's route applies from now on. Without one, messages stay in the inbox." : "Messages to addresses without their own route stay in the inbox."}<//>`}`;
}

const targetOf = (route) => route.address ?? `all addresses of ${route.domain}`;

const columns = (webhooks, onOpen, reload) => [
  { title: "For", cell: (row) => html`<span class="strong wrap address">${targetOf(row)}</span>` },
  { title: "Action", cell: (row) => html`<span>${ACTION[row.action]}</span>` },
  { title: "To", cell: (row) => html`<${Target} route=${row} webhooks=${webhooks} />` },
  { title: "Now", cell: (row) => html`<${Effective} route=${row} />` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of the route of ${targetOf(row)}`} items=${[
    { text: "Edit", icon: "pencil", onSelect: () => onOpen({ kind: "edit", row }) },
    { text: row.enabled ? "Disable" : "Enable", icon: row.enabled ? "pause" : "play", onSelect: () => enable(row, reload) },
    { text: "Delete", icon: "trash-2", danger: true, onSelect: () => onOpen({ kind: "delete", row }) },
  ]} />` },
];

function Target({ route, webhooks }) {
  if (route.action === "forward") return html`<span class="wrap">${route.forwardTo}</span>`;
  if (route.action === "mailbox") return html`<span class="soft">–</span>`;
  const endpoint = webhooks.find((one) => one.id === route.webhookId);
  const parts = route.include.length > 0 && html`<div class="small soft">with ${route.include.join(", ")}</div>`;
  return html`<div class="wrap small">${route.webhookId ? html`<a href=${href(`/webhooks/${route.webhookId}`)}>${endpoint?.url ?? route.webhookId}</a>` : "every endpoint subscribed to inbound.received"}${parts}</div>`;
}

function Effective({ route }) {
  const why = whyDifferent(route);
  if (!why) return html`<${Chip}>active<//>`;
  return html`<div><${Chip} tone="warn">mailbox<//><div class="small soft wrap">${why}</div></div>`;
}

async function enable(row, reload) {
  try {
    await call("PATCH /v1/inbound/routes/{id}", { path: { id: row.id }, body: { enabled: !row.enabled } });
    toast(row.enabled ? "Route disabled" : "Route enabled");
    reload();
  } catch (error) {
    if (!error.type) throw error;
    toast(error.message, { tone: "bad" });
  }
}

function EditRoute({ route, webhooks, onClose }) {
  const targets = useTargets(!route);
  const [draft, setDraft] = useState({ target: "", action: route?.action ?? "both", webhookId: route?.webhookId ?? "", include: route?.include ?? [], forwardTo: route?.forwardTo ?? "", retainContent: route?.retainContent ?? true });
  const set = (change) => setDraft((old) => ({ ...old, ...change }));
  const [save, { busy, error }] = useAction(() => (route ? call("PATCH /v1/inbound/routes/{id}", { path: { id: route.id }, body: bodyOf(draft) }) : call("POST /v1/inbound/routes", { body: { ...targetBody(draft.target || targets[0]?.[0]), ...bodyOf(draft) } })));
  const submit = async () => {
    const saved = await save();
    if (saved === undefined) return;
    toast(whyDifferent(saved) ?? "Route saved", whyDifferent(saved) ? { tone: "info" } : {});
    onClose(true);
  };
  const posts = draft.action === "webhook" || draft.action === "both";
  const why = route || targets.length ? undefined : "Claim an address or verify a domain first.";
  return html`<${Dialog} title=${route ? `Route of ${targetOf(route)}` : "New route"} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} why=${why} onClick=${submit}>${route ? "Save" : "Create route"}<//>`}>
    <${Form} onSubmit=${submit}>
      ${!route && html`<${SelectField} label="For" value=${draft.target} onValue=${(target) => set({ target })} options=${targets} error=${fieldError(error, "address") ?? fieldError(error, "domain")} />`}
      <${SelectField} label="Action" value=${draft.action} onValue=${(action) => set({ action })} options=${ACTIONS} />
      ${posts && html`<${SelectField} label="Webhook endpoint" value=${draft.webhookId} onValue=${(webhookId) => set({ webhookId })} options=${[["", "Every endpoint subscribed to inbound.received"], ...webhooks.map((one) => [one.id, one.url])]} error=${fieldError(error, "webhookId")} />
        <fieldset><legend>Include in the post</legend>${INCLUDES.map(([key, text]) => html`<${CheckField} label=${text} checked=${draft.include.includes(key)} onChecked=${(on) => set({ include: on ? [...draft.include, key] : draft.include.filter((one) => one !== key) })} />`)}<span class="small soft">Up to 256 KiB in total. Fetch anything larger by id.</span></fieldset>`}
      ${draft.action === "webhook" && html`<${Notice}>Messages are stored but hidden from the inbox unless you filter for them.<//>`}
      ${draft.action === "forward" && html`<${TextField} label="Forward to" type="email" required value=${draft.forwardTo} onValue=${(forwardTo) => set({ forwardTo })} error=${fieldError(error, "forwardTo")} hint="A team member's confirmed address, or one at a verified domain. Each forwarded message counts as a send. Spam stays in the inbox." />`}
      ${(draft.action === "webhook" || draft.action === "forward") && html`<${CheckField} label=${`Delete the content once the message is ${draft.action === "forward" ? "forwarded" : "posted"}`} checked=${!draft.retainContent} onChecked=${(on) => set({ retainContent: !on })} hint="Also when posting or forwarding fails for good. The record stays." />`}
      <${ErrorNote} error=${error} fields=${["address", "domain", "webhookId", "forwardTo"]} />
    <//><//>`;
}

function useTargets(wanted) {
  const addresses = useCall("GET /v1/inbound/addresses", { query: { limit: 100 } }, { skip: !wanted });
  const domains = useCall("GET /v1/inbound/domains", { query: { limit: 100 } }, { skip: !wanted });
  const verified = (domains.data?.data ?? []).filter((one) => one.status === "verified");
  return [...(addresses.data?.data ?? []).map((one) => [`address ${one.address}`, one.address]), ...verified.map((one) => [`domain ${one.name}`, `All addresses of ${one.name}`])];
}

function targetBody(target) {
  const [kind, name] = target.split(" ");
  return { [kind]: name };
}

function bodyOf({ action, webhookId, include, forwardTo, retainContent }) {
  if (action === "forward") return { action, forwardTo: forwardTo.trim(), webhookId: null, include: [], retainContent };
  if (action === "mailbox") return { action, webhookId: null, include: [], forwardTo: null, retainContent: true };
  return { action, webhookId: webhookId || null, include, forwardTo: null, retainContent: action === "webhook" ? retainContent : true };
}
