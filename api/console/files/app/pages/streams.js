// Streams: categories of an account's mail, such as transactional and announcements.
import { call, useAction, usePages } from "../core/api.js";
import { Button, Confirm, CopyLine, Dialog, Empty, ErrorNote, fieldError, Form, Menu, PageHead, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";

const KEPT = "Every account keeps the transactional stream: sends without a stream belong to it.";
const USES = { __proto__: null, transactional: "Sends that name no stream: receipts, codes, notices", announcements: "Broadcasts that name no stream" };

export function Streams() {
  const state = usePages("GET /v1/streams");
  const [creating, setCreating] = useState(false);
  const [removing, setRemoving] = useState(null);
  const columns = [
    { title: "Name", cell: (row) => html`<span class="strong">${row.name}</span>` },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Takes", cell: (row) => html`<span class="soft">${USES[row.id] ?? "Sends that name it"}</span>` },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${[{ text: "Its messages", icon: "send", to: "/messages", query: { stream: row.id } }, { text: "Delete", icon: "trash-2", danger: true, why: row.deletable ? null : KEPT, onSelect: () => setRemoving(row) }]} />` },
  ];
  const create = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setCreating(true)}>New stream<//>`;
  const close = (done) => {
    setRemoving(null);
    if (!done) return;
    toast(`Stream ${removing.name} deleted`);
    state.reload();
  };
  return html`<${PageHead} title="Streams" lead="Each message belongs to a stream. Streams keep receipts apart from announcements: keys can be limited to streams, messages and statistics are filtered by them, and a person who unsubscribes still gets what is transactional." actions=${create} />
    <${Table} label="Streams" columns=${columns} state=${state} empty=${html`<${Empty} icon="split" title="No streams" action=${create} curl=${`curl ${window.location.origin}/v1/streams -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '{"name": "Announcements"}'`}>Create a stream for each kind of mail that you send.<//>`} />
    ${creating && html`<${NewStream} onClose=${(made) => { setCreating(false); if (made) state.reload(); }} />`}
    ${removing && html`<${Confirm} title=${`Delete the stream ${removing.name}?`} confirm="Delete stream" action=${() => call("DELETE /v1/streams/{id}", { path: { id: removing.id } })} onClose=${close}>New sends that name <code>${removing.id}</code> are refused, and broadcasts on it pause. Messages already accepted are still sent and keep their stream. A new stream may take the id again.<//>`}`;
}

function NewStream({ onClose }) {
  const [name, setName] = useState("");
  const [id, setId] = useState("");
  const [create, { busy, error }] = useAction(() => call("POST /v1/streams", { body: { ...(name && { name }), ...(id && { id }) } }));
  const submit = async () => {
    const made = await create();
    if (made === undefined) return;
    toast(`Stream ${made.name} created`);
    onClose(true);
  };
  const problem = (field) => (error?.type === "conflict" && field === "id" ? error.message : fieldError(error, field));
  return html`<${Dialog} title="New stream" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Create stream<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Name" autofocus maxlength="120" value=${name} onValue=${setName} error=${problem("name")} hint="For people, such as Announcements." />
      <${TextField} label="Id" value=${id} onValue=${setId} error=${problem("id")} hint="How sends name it: lower-case letters, digits and hyphens. Empty: made from the name." />
      ${!problem("id") && html`<${ErrorNote} error=${error} fields=${["id", "name"]} />`}
    <//>
  <//>`;
}
