// One list with its members.
import { call, download, useAction, useCall, usePages } from "../core/api.js";
import { go, location, setQuery } from "../core/router.js";
import { breakable, Button, Chip, Dialog, Empty, ErrorNote, Facts, Menu, Notice, PageHead, SearchField, Skeleton, Time, toast, CopyLine } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, plural, useState } from "../core/view.js";
import { ReasonChip } from "../parts/reason_chip.js";
import { DeleteList, ListDialog } from "./lists.js";

export function List({ id }) {
  const state = useCall("GET /v1/lists/{id}", { path: { id } }, { pollMs: true });
  const search = location.value.query.get("search");
  const members = usePages("GET /v1/contacts", { query: { list: id, search } }, { pollMs: true });
  const [chosen, setChosen] = useState(new Set());
  const [open, setOpen] = useState(null); // "rename", "delete" or "add"
  const list = state.data;
  const back = ["/lists", "Lists and segments"];
  const [remove, removing] = useAction(async (contacts) => {
    for (const contactId of contacts) await call("DELETE /v1/lists/{id}/members/{contactId}", { path: { id, contactId } });
  });
  if (!list) return html`<${PageHead} title="List" back=${back} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} />`}`;
  const changed = () => {
    setOpen(null);
    setChosen(new Set());
    state.reload();
    members.reload();
  };
  const removeMembers = async (contacts) => {
    if ((await remove(contacts)) === undefined) return;
    toast(`${plural(contacts.length, "contact")} removed from ${list.name}`);
    changed();
  };
  const export_ = () => download("GET /v1/contacts/export", { query: { format: "csv", list: id } }, "contacts.csv").catch((error) => toast(error.message, { tone: "bad" }));
  const add = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen("add")}>Add contacts<//>`;
  const actions = html`<${Button} icon="upload" role="member" to="/contacts/import" query=${{ list: id }}>Import CSV<//>${add}<${Menu} label="More actions" kind="plain" items=${[
    { text: "Rename", icon: "pencil", onSelect: () => setOpen("rename") },
    { text: "Export as CSV", icon: "download", onSelect: export_ },
    { text: "Opt-outs of this list", icon: "ban", to: `/lists/${id}/opt-outs` },
    { text: "New broadcast to this list", icon: "megaphone", to: "/broadcasts/new", query: { list: id } },
    { text: "Delete list", icon: "trash-2", danger: true, onSelect: () => setOpen("delete") },
  ]} />`;
  return html`<${PageHead} title=${list.name} lead=${list.description} back=${back} actions=${actions} />
    <div class="stack"><${Facts} items=${[["Contacts", number(list.contacts)], ["Id", html`<${CopyLine} text=${list.id} />`], ["Created", html`<${Time} at=${list.createdAt} />`]]} />
    <${ErrorNote} error=${removing.error} />
    <div><div class="toolbar"><${SearchField} label="Search members" value=${search} onValue=${(text) => setQuery({ search: text })} />
      ${chosen.size > 0 && html`<span class="row"><strong>${plural(chosen.size, "contact")}</strong><${Button} role="member" busy=${removing.busy} onClick=${() => removeMembers([...chosen])}>Remove from list<//></span>`}</div>
    <${Table} label="Members" columns=${columns(id, (row) => removeMembers([row.id]))} state=${members} rowTo=${(row) => `/contacts/${row.id}`} selection=${{ chosen, onChange: setChosen }}
      empty=${html`<${Empty} icon="users" title=${search ? "No member matches" : "The list is empty"} action=${search ? html`<${Button} onClick=${() => setQuery({ search: null })}>Clear search<//>` : add}>${search ? "The search covers the whole address and name." : "Add existing contacts, or import a CSV into this list."}<//>`} /></div></div>
    ${open === "add" && html`<${AddMembers} list=${list} onClose=${changed} />`}
    ${open === "rename" && html`<${ListDialog} list=${list} onClose=${changed} />`}
    ${open === "delete" && html`<${DeleteList} list=${list} onClose=${(gone) => { setOpen(null); if (gone) go("/lists"); }} />`}`;
}

function Reach({ row, list }) {
  if (row.suppressed) return html`<${ReasonChip} reason=${row.suppressionReason} />`;
  if (row.optedOutOf.includes(list)) return html`<${Chip} tone="warn">opted out of this list<//>`;
  return html`<${Chip} tone=${row.confirmed ? "good" : "warn"}>${row.confirmed ? "reachable" : "unconfirmed"}<//>`;
}

const columns = (list, onRemove) => [
  { title: "Address", cell: (row) => html`<span class="wrap address">${breakable(row.email)}</span>` },
  { title: "Name", cell: (row) => (row.name ? html`<span class="wrap">${row.name}</span>` : html`<span class="soft">–</span>`) },
  { title: "Broadcasts", cell: (row) => html`<${Reach} row=${row} list=${list} />` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Button} kind="quiet" icon="x" role="member" label=${`Remove ${row.email} from the list`} onClick=${() => onRemove(row)} />` },
];

function AddMembers({ list, onClose }) {
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState(new Set());
  const state = usePages("GET /v1/contacts", { query: { search } }, { limit: 25 });
  const [add, { busy, error }] = useAction(() => call("POST /v1/lists/{id}/members", { path: { id: list.id }, body: { contacts: [...chosen] } }));
  const submit = async () => {
    const reply = await add();
    if (reply === undefined) return;
    toast(`${plural(reply.added, "contact")} added${reply.already ? `, ${number(reply.already)} were members` : ""}${reply.notFound.length ? `, ${number(reply.notFound.length)} no longer exist` : ""}`);
    onClose();
  };
  const known = [{ title: "Address", cell: (row) => html`<span class="wrap address">${row.email}</span>` }, { title: "Name", cell: (row) => row.name ?? "–" }, { title: "State", cell: (row) => (row.lists.includes(list.id) ? html`<${Chip}>member<//>` : "") }];
  return html`<${Dialog} wide title=${`Add contacts to ${list.name}`} onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} disabled=${chosen.size === 0} onClick=${submit}>${chosen.size ? `Add ${plural(chosen.size, "contact")}` : "Add contacts"}<//>`}>
    ${chosen.size > 1000 && html`<${Notice} tone="warn">You can add at most 1,000 contacts at once.<//>`}
    <${SearchField} label="Search address or name" value=${search} onValue=${setSearch} />
    <${Table} label="Contacts" columns=${known} state=${state} selection=${{ chosen, onChange: setChosen }} empty=${html`<${Empty} icon="users" title="No contact found">Create contacts or import them first.<//>`} />
    <${ErrorNote} error=${error} /><//>`;
}
