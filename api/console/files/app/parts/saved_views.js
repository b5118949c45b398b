// Saved views of a list: choose one, save the present filters under a name, rename, share and delete.
import { call, hasRole, useAction, useCall } from "../core/api.js";
import { go, location } from "../core/router.js";
import { Button, CheckField, Dialog, ErrorNote, fieldError, Form, Menu, TextField, toast } from "../core/ui.js";
import { html, useState } from "../core/view.js";

const PASSING = ["request", "new"]; // parts of an address that are no filters

/** Return the filters in the address of the page as text, in an order of their own. */
function filtersText(query) {
  const kept = new URLSearchParams([...query].filter(([name]) => !PASSING.includes(name)));
  kept.sort();
  return kept.toString();
}

/** The menu of the views of `page`: messages, suppressions, requests, contacts or inbox. */
export function SavedViews({ page }) {
  const views = useCall("GET /v1/views", { query: { page }, quiet: true });
  const [open, setOpen] = useState(null);
  const text = filtersText(location.value.query);
  const rows = views.data?.data ?? [];
  const current = rows.find((one) => filtersText(new URLSearchParams(one.query)) === text);
  const show = (one) => {
    const query = new URLSearchParams(one.query);
    go(`/${page}`, { query: Object.fromEntries([...query.keys()].map((name) => [name, query.getAll(name)])) });
  };
  const close = (changed) => {
    setOpen(null);
    if (changed) views.reload();
  };
  const items = [
    ...rows.map((one) => ({ text: `${one.name}${one.own ? "" : ` (${one.ownerName})`}${one === current ? " (shown)" : ""}`, icon: one.shared ? "users" : "star", onSelect: () => show(one) })),
    text && !current && { text: "Save these filters", icon: "plus", onSelect: () => setOpen("save") },
    rows.length > 0 && { text: "Manage views", icon: "settings", onSelect: () => setOpen("manage") },
    rows.length === 0 && !text && { text: "Set filters, then save them here", icon: "info", why: "There are no saved views, and no filter is set.", onSelect: () => {} },
  ];
  return html`<${Menu} label="Views" text=${current?.name ?? "Views"} kind="plain" start items=${items} />
    ${open === "save" && html`<${SaveDialog} page=${page} query=${text} onClose=${close} />`}
    ${open === "manage" && html`<${ManageDialog} rows=${rows} onChanged=${views.reload} onClose=${() => close(false)} />`}`;
}

function SaveDialog({ page, query, onClose }) {
  const [name, setName] = useState("");
  const [shared, setShared] = useState(false);
  const [save, { busy, error }] = useAction(() => call("POST /v1/views", { body: { page, name: name.trim(), query, shared } }));
  const submit = async () => {
    const made = await save();
    if (made === undefined) return;
    toast(`View “${made.name}” saved`);
    onClose(true);
  };
  return html`<${Dialog} title="Save these filters" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Save view<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Name" required autofocus maxlength="60" value=${name} onValue=${setName} error=${fieldError(error, "name")} />
      <${CheckField} label="Share with the account" hint="Everyone on the account can use it." checked=${shared} onChecked=${setShared} /><//>
    <${ErrorNote} error=${error} fields=${["name"]} />
  <//>`;
}

function ManageDialog({ rows, onChanged, onClose }) {
  return html`<${Dialog} title="Manage views" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Close<//>`}>
    <ul class="stack" aria-label="Views">${rows.map((one) => html`<${OneView} key=${one.id} row=${one} onChanged=${onChanged} />`)}</ul>
  <//>`;
}

function OneView({ row, onChanged }) {
  const [name, setName] = useState(row.name);
  const [run, { busy, error }] = useAction((operation, body) => call(operation, { path: { id: row.id }, body }));
  const may = row.own || hasRole("admin");
  const change = async (body) => { if ((await run("PATCH /v1/views/{id}", body)) !== undefined) onChanged(); };
  const remove = async () => { if ((await run("DELETE /v1/views/{id}")) !== undefined) onChanged(); };
  if (!may) return html`<li>${row.name} <span class="soft">shared by ${row.ownerName}</span></li>`;
  const rename = () => name.trim() && name.trim() !== row.name && change({ name: name.trim() });
  return html`<li class="stack-tight"><${Form} onSubmit=${rename}><div class="row-wide view-line"><${TextField} label="Name" hideLabel maxlength="60" value=${name} onValue=${setName} onBlur=${rename} />
      <${CheckField} label="Shared" checked=${row.shared} onChecked=${(shared) => change({ shared })} />
      <${Button} kind="quiet" icon="trash-2" danger label=${`Delete the view ${row.name}`} busy=${busy} onClick=${remove} /></div><//>
    ${!row.own && html`<span class="small soft">Shared by ${row.ownerName}</span>`}<${ErrorNote} error=${error} /></li>`;
}
