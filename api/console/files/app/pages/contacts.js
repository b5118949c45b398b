// Contacts: people whom broadcasts can reach, with their fields, consent and lists.
import { call, download, useAction, useCall, usePages } from "../core/api.js";
import { go, location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { breakable, Button, CheckField, Chip, Confirm, Dialog, Empty, ErrorNote, fieldError, Form, Menu, PageHead, SearchField, SelectField, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, plural, useState } from "../core/view.js";
import { CONSENTS, CONSENT_TEXTS, FieldsEditor, fieldsOf } from "../parts/contact_fields.js";
import { LocaleField } from "../parts/locale_field.js";
import { ReasonChip } from "../parts/reason_chip.js";
import { SenderField } from "../parts/sender_field.js";

const loadViews = () => import("../parts/saved_views.js");

export function Contacts() {
  const { query } = location.value;
  const filters = { search: query.get("search"), list: query.get("list") };
  const state = usePages("GET /v1/contacts", { query: filters }, { pollMs: true });
  const lists = useCall("GET /v1/lists", { query: { limit: 100 } });
  const me = useCall("GET /v1/me");
  const [chosen, setChosen] = useState(new Set());
  const [open, setOpen] = useState(null); // "new", "list" or "delete"
  const names = Object.fromEntries((lists.data?.data ?? []).map((one) => [one.id, one.name]));
  const limit = me.data?.limits.find((one) => one.resource === "contacts");
  const close = (done) => {
    setOpen(null);
    if (!done) return;
    setChosen(new Set());
    state.reload();
    me.reload();
  };
  const actions = html`<${Menu} label="Export" text="Export" kind="plain" items=${exportItems(filters.list)} />
    <${Button} icon="upload" role="member" to="/contacts/import" query=${{ list: filters.list }}>Import CSV<//><${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen("new")}>New contact<//>`;
  return html`<${PageHead} title="Contacts" lead=${`People whom broadcasts can reach.${!limit ? "" : limit.limit === null ? ` You have ${plural(limit.used, "contact")}.` : ` ${number(limit.used)} of ${number(limit.limit)} contacts used.`}`} actions=${actions} />
    <div class="toolbar"><${SearchField} label="Search address or name" value=${filters.search} onValue=${(search) => setQuery({ search })} />
      <div class="toolbar-select"><${SelectField} label="List" hideLabel value=${filters.list} options=${[["", "All lists"], ...Object.entries(names)]} onValue=${(list) => setQuery({ list })} /></div><${Lazy} load=${loadViews} name="SavedViews" page="contacts" />
      ${chosen.size > 0 && html`<span class="row"><strong>${plural(chosen.size, "contact")}</strong><${Button} role="member" onClick=${() => setOpen("list")}>Add to list<//><${Button} role="member" danger icon="trash-2" onClick=${() => setOpen("delete")}>Delete<//></span>`}</div>
    <${Table} label="Contacts" columns=${columns(names)} state=${state} rowTo=${(row) => `/contacts/${row.id}`} selection=${{ chosen, onChange: setChosen }} empty=${filters.search || filters.list ? html`<${NoMatch} />` : html`<${NoContacts} onNew=${() => setOpen("new")} />`} />
    ${open === "new" && html`<${NewContact} lists=${lists.data?.data ?? []} list=${filters.list} onClose=${(made) => (made ? go(`/contacts/${made}`) : close(false))} />`}
    ${open === "list" && html`<${AddToList} ids=${[...chosen]} lists=${lists.data?.data ?? []} onClose=${close} />`}
    ${open === "delete" && html`<${DeleteContacts} ids=${[...chosen]} onClose=${close} />`}`;
}

const exportItems = (list) => [["csv", "CSV"], ["ndjson", "NDJSON, one contact per line"]].map(([format, text]) => ({ text: list ? `${text}, this list` : text, icon: "download", onSelect: () => save(format, list) }));

async function save(format, list) {
  try {
    await download("GET /v1/contacts/export", { query: { format, list } }, `contacts.${format}`);
  } catch (error) {
    if (!error.type) throw error;
    toast(error.message, { tone: "bad" });
  }
}

/** Return the names of the lists of a contact. */
const listsOf = (row, names) => row.lists.map((id) => names[id] ?? id).join(", ");

const columns = (names) => [
  { title: "Address", cell: (row) => html`${row.name && html`<span class="card-only">${row.name}</span>`}<span class="contact-line"><span class="wrap address long">${breakable(row.email)}</span>${row.lists.length > 0 && html`<span class="card-lists">${`, ${listsOf(row, names)}`}</span>`}</span>` },
  { title: "Name", narrow: "away", cell: (row) => (row.name ? html`<span class="cut contact-name" title=${row.name}>${row.name}</span>` : html`<span class="soft">–</span>`) },
  { title: "Consent", narrow: "away", cell: (row) => row.consent.replaceAll("_", " ") },
  { title: "Lists", narrow: "away", cell: (row) => (row.lists.length ? html`<span class="cut contact-lists" title=${listsOf(row, names)}>${listsOf(row, names)}</span>` : html`<span class="soft">–</span>`) },
  { title: "Broadcasts", narrow: "aside", cell: (row) => (row.suppressed ? html`<${ReasonChip} reason=${row.suppressionReason} />` : row.confirmed ? html`<${Chip} tone="good">reachable<//>` : html`<${Chip} tone="warn">unconfirmed<//>`) },
  { title: "Created", narrow: "away", cell: (row) => html`<${Time} at=${row.createdAt} relative />` },
];

function NoMatch() {
  return html`<${Empty} icon="search" title="No contact matches" action=${html`<${Button} onClick=${() => setQuery({ search: null, list: null })}>Clear filters<//>`}>The search covers the whole address and name.<//>`;
}

function NoContacts({ onNew }) {
  const curl = `curl ${window.location.origin}/v1/contacts -H "Authorization: Bearer $KEY" \\\n  -H "Content-Type: application/json" -d '{"email": "ann@example.com", "consent": "signed_up"}'`;
  return html`<${Empty} icon="users" title="No contacts yet" curl=${curl} action=${html`<div class="row"><${Button} kind="primary" icon="plus" role="member" onClick=${onNew}>New contact<//><${Button} icon="upload" role="member" to="/contacts/import">Import CSV<//></div>`}>Contacts are the people your broadcasts go to. Record how each one gave consent, and your broadcasts stay welcome.<//>`;
}

function NewContact({ lists, list, onClose }) {
  const [draft, setDraft] = useState({ email: "", name: "", consent: "signed_up", lists: list ? [list] : [], confirm: false, from: "", locale: "en" });
  const [rows, setRows] = useState([]);
  const set = (change) => setDraft((old) => ({ ...old, ...change }));
  const [create, { busy, error }] = useAction(() => call("POST /v1/contacts", { body: contactBody(draft, rows) }));
  const submit = async () => {
    const made = await create();
    if (made === undefined) return;
    toast(draft.confirm ? `${made.email} created; a confirmation link was sent` : `${made.email} created`);
    onClose(made.id);
  };
  const flip = (id, on) => set({ lists: on ? [...draft.lists, id] : draft.lists.filter((one) => one !== id) });
  const known = error?.type === "conflict" && error.details.id;
  return html`<${Dialog} title="New contact" onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Create contact<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Address" type="email" required autofocus value=${draft.email} onValue=${(email) => set({ email })} error=${fieldError(error, "email")} />
      <${TextField} label="Name" maxlength="320" value=${draft.name} onValue=${(name) => set({ name })} error=${fieldError(error, "name")} />
      <${SelectField} label="Consent" value=${draft.consent} onValue=${(consent) => set({ consent })} options=${CONSENTS} hint=${CONSENT_TEXTS[draft.consent]} />
      <${FieldsEditor} rows=${rows} onRows=${setRows} error=${fieldError(error, "fields")} />
      ${lists.length > 0 && html`<fieldset><legend>Lists</legend>${lists.map((one) => html`<${CheckField} label=${one.name} checked=${draft.lists.includes(one.id)} onChecked=${(on) => flip(one.id, on)} />`)}</fieldset>`}
      <${CheckField} label="Send a confirmation link" hint="Broadcasts skip the contact until the link is used." checked=${draft.confirm} onChecked=${(confirm) => set({ confirm })} />
      ${draft.confirm && html`<${SenderField} value=${draft.from} onValue=${(from) => set({ from })} error=${fieldError(error, "from")} /><${LocaleField} value=${draft.locale} onValue=${(locale) => set({ locale })} />`}
      ${known ? html`<p>A contact with this address already exists. <a href=${`./contacts/${known}`} onClick=${(event) => { event.preventDefault(); onClose(known); }}>Show the contact</a></p>` : html`<${ErrorNote} error=${error} fields=${["email", "name", "fields", "from"]} />`}
    <//><//>`;
}

function contactBody(draft, rows) {
  const { email, name, consent, lists, confirm, from, locale } = draft;
  const body = { email: email.trim(), name: name.trim() || null, consent, lists, fields: fieldsOf(rows) };
  return confirm ? { ...body, confirm, from, locale } : body;
}

function AddToList({ ids, lists, onClose }) {
  const [list, setList] = useState(lists[0]?.id ?? "");
  const [add, { busy, error }] = useAction(() => call("POST /v1/lists/{id}/members", { path: { id: list }, body: { contacts: ids } }));
  const submit = async () => {
    const reply = await add();
    if (reply === undefined) return;
    toast(`${plural(reply.added, "contact")} added, ${number(reply.already)} were already on the list`);
    onClose(true);
  };
  return html`<${Dialog} title=${`Add ${plural(ids.length, "contact")} to a list`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} why=${list ? null : "You have no list yet. Create one first."} onClick=${submit}>Add<//>`}>
    ${lists.length ? html`<${SelectField} label="List" value=${list} onValue=${setList} options=${lists.map((one) => [one.id, one.name])} />` : html`<p>You have no list yet. Create one first.</p><${Button} to="/lists">Show lists<//>`}
    <${ErrorNote} error=${error} /><//>`;
}

function DeleteContacts({ ids, onClose }) {
  const [done, setDone] = useState(0);
  const remove = async () => {
    for (const [at, id] of ids.entries()) {
      await call("DELETE /v1/contacts/{id}", { path: { id } }).catch((error) => { if (error.status !== 404) throw error; });
      setDone(at + 1);
    }
  };
  const end = (ok) => {
    if (ok) toast(`${plural(ids.length, "contact")} deleted`);
    onClose(ok || done > 0);
  };
  return html`<${Confirm} title=${`Delete ${plural(ids.length, "contact")}?`} confirm="Delete contacts" typed=${ids.length > 10 ? String(ids.length) : undefined} action=${remove} onClose=${end}>Their fields, consent and list memberships are deleted. Suppressions are kept, so a new import can't email people who opted out.${done > 0 ? ` ${number(done)} deleted so far.` : ""}<//>`;
}
