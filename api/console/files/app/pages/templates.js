// Templates: the list. The editor is in template_editor.js.
import { usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, CopyLine, Empty, PageHead, SearchField, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html } from "../core/view.js";

const EXAMPLE = `-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '{"id": "receipt", "subject": "Your order {{order}}", "text": "Hello {{name}}"}'`;

export function Templates() {
  const search = location.value.query.get("search") ?? "";
  const state = usePages("GET /v1/templates", { query: { search } });
  const columns = [
    { title: "Name", cell: (row) => row.name ?? row.id },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Subject", cell: (row) => html`<span class="wrap">${row.subject ?? "–"}</span>` },
    { title: "Version", end: true, cell: (row) => row.version },
    { title: "Changed", cell: (row) => html`<${Time} at=${row.updatedAt} relative />` },
  ];
  const create = html`<${Button} kind="primary" icon="plus" role="member" to="/templates/new">New template<//>`;
  const empty = search
    ? html`<${Empty} icon="search" title="Nothing found" action=${html`<${Button} onClick=${() => setQuery({ search: null })}>Show all templates<//>`}>No template has “${search}” in its id, name or subject.<//>`
    : html`<${Empty} icon="layout-template" title="No templates" action=${create} curl=${`curl ${window.location.origin}/v1/templates ${EXAMPLE}`}>Write the content once; then change it here without touching your application.<//>`;
  return html`<${PageHead} title="Templates" lead="Content with variables, kept with all its versions. A send names the template and gives the values." actions=${create} />
    <div class="toolbar"><${SearchField} label="Search by name, id or subject" value=${search} onValue=${(value) => setQuery({ search: value })} /></div>
    <${Table} label="Templates" columns=${columns} state=${state} rowTo=${(row) => `/templates/${row.id}`} empty=${empty} />`;
}
