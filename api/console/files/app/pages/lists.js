// Lists of contacts, and segments: stored filters of contacts.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { go, location, setQuery } from "../core/router.js";
import { Button, Confirm, Dialog, Empty, ErrorNote, fieldError, Form, Menu, PageHead, Tabs, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { cut, html, number, useState } from "../core/view.js";
import { sentence } from "../parts/segment_filter.js";

const TABS = [["lists", "Lists"], ["segments", "Segments"]];

export function Lists() {
  const tab = location.value.query.get("tab") === "segments" ? "segments" : "lists";
  const lists = usePages("GET /v1/lists", {}, { pollMs: true });
  const me = useCall("GET /v1/me");
  const [creating, setCreating] = useState(false);
  const limit = me.data?.limits.find((one) => one.resource === tab);
  const full = limit && limit.limit !== null && limit.used >= limit.limit ? `You've reached your plan's limit of ${number(limit.limit)} ${tab}. Delete one or upgrade the plan.` : null;
  const create = tab === "lists"
    ? html`<${Button} kind="primary" icon="plus" role="member" why=${full ?? undefined} onClick=${() => setCreating(true)}>New list<//>`
    : html`<${Button} kind="primary" icon="plus" role="member" why=${full ?? undefined} to="/segments/new">New segment<//>`;
  return html`<${PageHead} title="Lists and segments" lead="A list is a set of contacts you choose. A segment is a filter: a broadcast goes to every contact that matches when it starts." actions=${create} />
    <${Tabs} label="Lists and segments" items=${TABS} current=${tab} onSelect=${(key) => setQuery({ tab: key === "lists" ? null : key })} />
    ${tab === "lists" ? html`<${ListTable} state=${lists} create=${create} />` : html`<${SegmentTable} lists=${lists.rows} create=${create} />`}
    ${creating && html`<${ListDialog} onClose=${(made) => { setCreating(false); if (made) go(`/lists/${made.id}`); }} />`}`;
}

function ListTable({ state, create }) {
  const [renaming, setRenaming] = useState(null);
  const [removing, setRemoving] = useState(null);
  const curl = `curl ${window.location.origin}/v1/lists -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"name": "Newsletter"}'`;
  const columns = [
    { title: "Name", cell: (row) => html`<span class="wrap address">${row.name}</span>` },
    { title: "Description", cell: (row) => html`<span class="soft wrap">${cut(row.description ?? "–", 120)}</span>` },
    { title: "Contacts", end: true, cell: (row) => number(row.contacts) },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${[
      { text: "Rename", icon: "pencil", onSelect: () => setRenaming(row) },
      { text: "Import contacts", icon: "upload", to: "/contacts/import", query: { list: row.id } },
      { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setRemoving(row) },
    ]} />` },
  ];
  const done = () => {
    setRenaming(null);
    setRemoving(null);
    state.reload();
  };
  return html`<${Table} label="Lists" columns=${columns} state=${state} rowTo=${(row) => `/lists/${row.id}`} empty=${html`<${Empty} icon="list" title="No lists yet" action=${create} curl=${curl}>Create a list, add contacts or import them, and send a broadcast to it.<//>`} />
    ${renaming && html`<${ListDialog} list=${renaming} onClose=${done} />`}${removing && html`<${DeleteList} list=${removing} onClose=${done} />`}`;
}

function SegmentTable({ lists, create }) {
  const state = usePages("GET /v1/segments", {}, { pollMs: true });
  const [removing, setRemoving] = useState(null);
  const names = Object.fromEntries(lists.map((one) => [one.id, one.name]));
  const curl = `curl ${window.location.origin}/v1/segments -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '{"name": "Pro customers", "filter": {"field": "plan", "op": "eq", "value": "pro"}}'`;
  const columns = [
    { title: "Name", cell: (row) => html`<span class="wrap address">${row.name}</span>` },
    { title: "Who", cell: (row) => html`<span class="small wrap">${cut(sentence(row.filter, names), 160)}</span>` },
    { title: "Changed", cell: (row) => html`<${Time} at=${row.updatedAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${[
      { text: "Edit", icon: "pencil", to: `/segments/${row.id}` },
      { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setRemoving(row) },
    ]} />` },
  ];
  return html`<${Table} label="Segments" columns=${columns} state=${state} rowTo=${(row) => `/segments/${row.id}`} empty=${html`<${Empty} icon="filter" title="No segments yet" action=${create} curl=${curl}>A segment selects contacts by fields, consent, lists and age each time it's used, so it's always up to date.<//>`} />
    ${removing && html`<${DeleteSegment} segment=${removing} onClose=${(gone) => { setRemoving(null); if (gone) state.reload(); }} />`}`;
}

/** Create a list, or change name and description of `list`. `onClose` gets the list. */
export function ListDialog({ list, onClose }) {
  const [draft, setDraft] = useState({ name: list?.name ?? "", description: list?.description ?? "" });
  const body = { name: draft.name.trim(), description: draft.description.trim() || null };
  const [save, { busy, error }] = useAction(() => (list ? call("PATCH /v1/lists/{id}", { path: { id: list.id }, body }) : call("POST /v1/lists", { body })));
  const submit = async () => {
    const saved = await save();
    if (saved === undefined) return;
    toast(list ? `${saved.name} saved` : `List ${saved.name} created`);
    onClose(saved);
  };
  const taken = error?.type === "conflict" ? "Another list has this name." : fieldError(error, "name");
  return html`<${Dialog} title=${list ? `Rename ${list.name}` : "New list"} onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>${list ? "Save" : "Create list"}<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Name" required autofocus maxlength="120" value=${draft.name} onValue=${(name) => setDraft({ ...draft, name })} error=${taken} />
      <${TextField} label="Description" maxlength="500" value=${draft.description} onValue=${(description) => setDraft({ ...draft, description })} error=${fieldError(error, "description")} />
      ${!taken && html`<${ErrorNote} error=${error} fields=${["description"]} />`}
    <//><//>`;
}

/** The question before a list is deleted; a refusal names what still uses it. */
export function DeleteList({ list, onClose }) {
  const done = (gone) => {
    if (gone) toast(`List ${list.name} deleted`);
    onClose(gone);
  };
  return html`<${Confirm} title=${`Delete the list ${list.name}?`} confirm="Delete list" typed=${list.contacts >= 100 ? list.name : undefined} action=${() => call("DELETE /v1/lists/{id}", { path: { id: list.id } })} onClose=${done}>Its ${number(list.contacts)} contacts are kept; only their membership ends. You can't delete a list while a segment uses it, or a broadcast that is scheduled or in review.<//>`;
}

/** The question before a segment is deleted. */
export function DeleteSegment({ segment, onClose }) {
  const done = (gone) => {
    if (gone) toast(`Segment ${segment.name} deleted`);
    onClose(gone);
  };
  return html`<${Confirm} title=${`Delete the segment ${segment.name}?`} confirm="Delete segment" action=${() => call("DELETE /v1/segments/{id}", { path: { id: segment.id } })} onClose=${done}>Its contacts are kept. You can't delete a segment while a broadcast uses it that is scheduled or in review.<//>`;
}
