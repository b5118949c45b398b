// Streams: categories of an account's mail, such as transactional and announcements.
import { call, useAction, usePages } from "../core/api.js";
import { Button, Confirm, CopyLine, Dialog, Empty, ErrorNote, fieldError, Form, Menu, PageHead, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, plural, useState } from "../core/view.js";

const KEPT = "You can't delete the transactional stream. Messages without a stream belong to it.";
const USES = { __proto__: null, transactional: "Messages without a stream: receipts, codes, notices", announcements: "Broadcasts without a stream" };

export function Streams() {
  const state = usePages("GET /v1/streams");
  const [creating, setCreating] = useState(false);
  const [removing, setRemoving] = useState(null);
  const [changing, setChanging] = useState(null);
  const columns = [
    { title: "Name", cell: (row) => html`<span class="strong">${row.name}</span>` },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Takes", cell: (row) => html`<span class="soft">${USES[row.id] ?? "Messages sent with its id"}</span>` },
    { title: "Content", cell: (row) => html`<span class="soft">${retention(row)}</span>` },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${[{ text: "Show messages", icon: "send", to: "/messages", query: { stream: row.id } }, { text: "Content retention", icon: "lock", onSelect: () => setChanging(row) }, { text: "Delete", icon: "trash-2", danger: true, why: row.deletable ? null : KEPT, onSelect: () => setRemoving(row) }]} />` },
  ];
  const create = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setCreating(true)}>New stream<//>`;
  const close = (done) => {
    setRemoving(null);
    if (!done) return;
    toast(`Stream ${removing.name} deleted`);
    state.reload();
  };
  return html`<${PageHead} title="Streams" lead="Streams keep receipts separate from announcements. Limit keys to a stream, filter messages and statistics by it, and let people unsubscribe without losing transactional email." actions=${create} />
    <${Table} label="Streams" columns=${columns} state=${state} empty=${html`<${Empty} icon="split" title="No streams" action=${create} curl=${`curl ${window.location.origin}/v1/streams -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' -d '{"name": "Announcements"}'`}>Create a stream for each kind of email you send.<//>`} />
    ${creating && html`<${NewStream} onClose=${(made) => { setCreating(false); if (made) state.reload(); }} />`}
    ${changing && html`<${Retention} stream=${changing} onClose=${(saved) => { setChanging(null); if (saved) state.reload(); }} />`}
    ${removing && html`<${Confirm} title=${`Delete the stream ${removing.name}?`} confirm="Delete stream" action=${() => call("DELETE /v1/streams/{id}", { path: { id: removing.id } })} onClose=${close}>New sends with <code>${removing.id}</code> are rejected, and broadcasts on it pause. Messages already accepted are still sent. You can use the id again later.<//>`}`;
}

const KEEP = "Kept as long as your plan keeps messages";
const retention = (row) => (row.retainContent ? "kept" : row.contentUntil === null ? "deleted after delivery" : `deleted ${plural(row.contentUntil, "hour")} after delivery`);

/** Choose how long the stream keeps the content of its messages. */
function Retention({ stream, onClose }) {
  const [kept, setKept] = useState(stream.retainContent ? "keep" : stream.contentUntil === null ? "delete" : "hours");
  const [hours, setHours] = useState(String(stream.contentUntil ?? 24));
  const body = kept === "keep" ? { retainContent: true } : { retainContent: false, contentUntil: kept === "hours" ? Number(hours) : null };
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/streams/{id}", { path: { id: stream.id }, body }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast("Content retention saved");
    onClose(true);
  };
  return html`<${Dialog} title=${`Content of ${stream.name}`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Save<//>`}>
    <${Form} onSubmit=${submit}>
      <${SelectField} label="Bodies and attachments" value=${kept} onValue=${setKept} options=${[["keep", KEEP], ["delete", "Deleted after the last delivery"], ["hours", "Deleted some hours after it"]]} hint="Applies to messages sent from now on. A send can choose otherwise." />
      ${kept === "hours" && html`<${TextField} label="Hours" type="number" min="1" max="720" required value=${hours} onValue=${setHours} error=${fieldError(error, "contentUntil")} hint="From the last recipient's outcome, 1 to 720." />`}
      <${ErrorNote} error=${error} fields=${["contentUntil"]} />
    <//>
  <//>`;
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
      <${TextField} label="Name" autofocus maxlength="120" value=${name} onValue=${setName} error=${problem("name")} hint="Shown in the console, such as Announcements." />
      <${TextField} label="Id" value=${id} onValue=${setId} error=${problem("id")} hint="Sends use this id. Lower-case letters, digits and hyphens. Leave blank to generate one from the name." />
      ${!problem("id") && html`<${ErrorNote} error=${error} fields=${["id", "name"]} />`}
    <//>
  <//>`;
}
