// Sub-accounts: accounts of customers or projects within this account's allowance.
import { call, hasRole, refreshSession, session, useAction, useCall, usePages, whyNot } from "../core/api.js";
import { go } from "../core/router.js";
import { Button, Chip, Confirm, CopyLine, Dialog, Empty, ErrorNote, fieldError, Form, Menu, Notice, PageHead, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, useState } from "../core/view.js";

const LEAD = "A sub-account gives a customer or project its own keys, domains, streams, suppressions and log. Its messages count toward your monthly limit, and it warms up separately.";
const BY = {
  parent: "suspended by you",
  inherited: "suspended with this account",
  rates: "suspended for too many bounces or complaints",
  operator: "suspended by the operator",
};

/** The page of the sub-accounts. */
export function SubAccounts() {
  const me = useCall("GET /v1/me");
  if (!hasRole("admin")) return html`<${PageHead} title="Sub-accounts" lead=${LEAD} /><${Notice}>Only admins and the owner can see sub-accounts. Your role is ${session.value.account.role}.<//>`;
  if (me.error) return html`<${PageHead} title="Sub-accounts" lead=${LEAD} /><${ErrorNote} error=${me.error} retry=${me.reload} />`;
  if (!me.data) return html`<${PageHead} title="Sub-accounts" lead=${LEAD} /><div class="card card-body"><${Skeleton} /></div>`;
  if (me.data.parentId) return html`<${PageHead} title="Sub-accounts" lead=${LEAD} /><${Notice}>You're in a sub-account, which can't have its own sub-accounts. Switch to the parent account at the top of the navigation.<//>`;
  const cap = me.data.limits.find((one) => one.resource === "sub_accounts");
  return html`<${SubAccountList} none=${cap?.limit === 0 ? `The plan ${me.data.plan} includes no sub-accounts. Compare the plans on the page Billing.` : undefined} />`;
}

function SubAccountList({ none }) {
  const state = usePages("GET /v1/sub-accounts", {}, { pollMs: true });
  const [open, setOpen] = useState(null); // {what, row}
  const create = html`<${Button} kind="primary" icon="plus" why=${whyNot("admin") ?? none} onClick=${() => setOpen({ what: "edit", row: null })}>New sub-account<//>`;
  const close = (text) => (done) => {
    setOpen(null);
    if (!done) return;
    if (text) toast(text);
    state.reload();
  };
  const columns = [
    { title: "Name", cell: (row) => html`<span class="strong wrap">${row.name}</span>` },
    { title: "Status", cell: (row) => html`<${Status} row=${row} />` },
    { title: "This month", end: true, cell: (row) => html`<span class="numeric">${number(row.sentThisMonth)}${row.monthlyLimit === null ? "" : ` of ${number(row.monthlyLimit)}`}</span>` },
    { title: "Today", end: true, cell: (row) => html`<span class="numeric">${number(row.sentToday)} of ${number(row.dailyLimit)}</span>` },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${actionsOf(row, setOpen)} />` },
  ];
  const empty = html`<${Empty} icon="layers" title="No sub-accounts" action=${create}>Create one for each customer or project whose email, keys and reputation must stay separate. You create its keys under API keys.${none && html` <strong>${none}</strong>`}<//>`;
  return html`<${PageHead} title="Sub-accounts" lead=${LEAD} actions=${create} />
    <${Table} label="Sub-accounts" columns=${columns} state=${state} empty=${empty} />
    ${open?.what === "edit" && html`<${EditDialog} row=${open.row} onClose=${close(null)} />`}
    ${open?.what === "enter" && html`<${EnterDialog} row=${open.row} onClose=${close(null)} />`}
    ${open?.what === "status" && html`<${StatusDialog} row=${open.row} onClose=${close} />`}
    ${open?.what === "delete" && html`<${Confirm} title=${`Delete the sub-account ${open.row.name}?`} typed=${open.row.name} confirm="Delete sub-account" action=${() => call("DELETE /v1/sub-accounts/{id}", { path: { id: open.row.id } })} onClose=${close(`${open.row.name} stopped`)}>It stops sending and receiving immediately, and everything in it is erased in 14 days. Until then you can keep it here.<//>`}`;
}

function Status({ row }) {
  if (row.deletionScheduledFor) return html`<span class="row"><${Chip} tone="bad">to be deleted<//><span class="small soft"><${Time} at=${row.deletionScheduledFor} relative /></span></span>`;
  return html`<span class="row"><${Chip}>${row.status}<//>${row.suspendedBy.length > 0 && html`<span class="small soft">${row.suspendedBy.map((cause) => BY[cause]).join(", ")}</span>`}</span>`;
}

function actionsOf(row, setOpen) {
  const why = whyNot("admin") ?? undefined;
  const paused = row.suspendedBy.includes("parent");
  const elsewhere = row.status === "suspended" && !paused && !row.deletionScheduledFor ? `It is ${row.suspendedBy.map((cause) => BY[cause]).join(", ")}: you can't resume it here.` : undefined;
  return [
    { text: "Work in it", icon: "arrow-right", why, onSelect: () => setOpen({ what: "enter", row }) },
    { text: "Name and limit", icon: "pencil", why, onSelect: () => setOpen({ what: "edit", row }) },
    row.deletionScheduledFor ? { text: "Keep sub-account", icon: "rotate-ccw", why, onSelect: () => setOpen({ what: "status", row }) }
      : { text: row.status === "suspended" ? "Resume" : "Suspend", icon: row.status === "suspended" ? "play" : "pause", why: why ?? elsewhere, onSelect: () => setOpen({ what: "status", row }) },
    !row.deletionScheduledFor && { text: "Delete", icon: "trash-2", danger: true, why: whyNot("owner") ?? undefined, onSelect: () => setOpen({ what: "delete", row }) },
  ];
}

function EditDialog({ row, onClose }) {
  const [name, setName] = useState(row?.name ?? "");
  const [limit, setLimit] = useState(row?.monthlyLimit == null ? "" : String(row.monthlyLimit));
  const [save, { busy, error }] = useAction(() => {
    const body = { name, monthlyLimit: limit === "" ? null : Number(limit) };
    return row ? call("PATCH /v1/sub-accounts/{id}", { path: { id: row.id }, body }) : call("POST /v1/sub-accounts", { body });
  });
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast(row ? `${name} saved` : `Sub-account ${name} opened`);
    onClose(true);
  };
  return html`<${Dialog} title=${row ? `Name and limit of ${row.name}` : "New sub-account"} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>${row ? "Save" : "Create sub-account"}<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Name" required maxlength="120" autofocus value=${name} onValue=${setName} error=${fieldError(error, "name")} />
      <${TextField} label="Messages per month (optional)" hint="The most it can use of your own limit. Leave blank to allow all of it." type="number" min="0" max="2147483647" step="1" value=${limit} onValue=${setLimit} error=${fieldError(error, "monthlyLimit")} />
      <${ErrorNote} error=${error} fields=${["name", "monthlyLimit"]} />
    <//>
  <//>`;
}

function StatusDialog({ row, onClose }) {
  const keeps = Boolean(row.deletionScheduledFor);
  const resumes = keeps || row.status === "suspended";
  const title = keeps ? `Keep ${row.name}?` : resumes ? `Resume ${row.name}?` : `Suspend ${row.name}?`;
  const text = keeps ? "Its deletion is canceled, and it works again." : resumes ? "It sends and receives again with its existing keys." : "Its keys and its email stop working until you resume it. Nothing is deleted.";
  const action = () => call("PATCH /v1/sub-accounts/{id}", { path: { id: row.id }, body: { status: resumes ? "active" : "suspended" } });
  return html`<${Confirm} title=${title} danger=${!resumes} confirm=${keeps ? "Keep sub-account" : resumes ? "Resume" : "Suspend"} action=${action} onClose=${onClose(`${row.name} ${keeps ? "is kept" : resumes ? "resumed" : "suspended"}`)}>${text}<//>`;
}

/** Join a sub-account, unless the person belongs to it, and work in it. */
function EnterDialog({ row, onClose }) {
  const member = session.value.accounts.some((one) => one.id === row.id);
  const enter = async () => {
    if (!member) await call("POST /v1/sub-accounts/{id}/join", { path: { id: row.id } });
    await call("POST /v1/auth/switch", { body: { accountId: row.id } });
    await refreshSession();
    go("/");
    toast(`Switched to ${row.name}`);
  };
  return html`<${Confirm} title=${`Work in ${row.name}?`} danger=${false} confirm=${member ? "Switch to sub-account" : "Join and switch"} action=${enter} onClose=${onClose}>
    ${member ? "The console shows this sub-account until you switch back at the top of the navigation." : "You become an admin of it and use one of its seats. Both audit logs record this. Switch back at the top of the navigation."}<//>`;
}
