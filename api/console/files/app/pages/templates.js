// Templates and layouts: the lists. The editors are in template_editor.js and layout_editor.js.
import { usePages } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, CopyLine, Empty, PageHead, SearchField, Tabs, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number } from "../core/view.js";

const EXAMPLE = `-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '{"id": "receipt", "subject": "Your order {{order}}", "text": "Hello {{name}}"}'`;

const LAYOUT_EXAMPLE = `-H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '{"id": "brand", "html": "<main>{{{content}}}</main><p>Shop Ltd.</p>"}'`;
const TABS = [["templates", "Templates"], ["layouts", "Layouts"]];

export function Templates() {
  const tab = location.value.query.get("tab") === "layouts" ? "layouts" : "templates";
  const create = tab === "layouts" ? html`<${Button} kind="primary" icon="plus" role="member" to="/layouts/new">New layout<//>` : html`<${Button} kind="primary" icon="plus" role="member" to="/templates/new">New template<//>`;
  return html`<${PageHead} title="Templates" lead="Reusable content with variables and a version history. Each send names the template and passes the values. A layout is a frame that templates share." actions=${create} />
    <${Tabs} label="Templates and layouts" items=${TABS} current=${tab} onSelect=${(key) => setQuery({ tab: key === "layouts" ? key : null, search: null })} />
    ${tab === "layouts" ? html`<${LayoutTable} create=${create} />` : html`<${TemplateTable} create=${create} />`}`;
}

function LayoutTable({ create }) {
  const state = usePages("GET /v1/layouts");
  const columns = [
    { title: "Name", cell: (row) => row.name ?? row.id },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Templates", end: true, cell: (row) => number(row.templates) },
    { title: "Version", end: true, cell: (row) => row.version },
    { title: "Changed", cell: (row) => html`<${Time} at=${row.updatedAt} relative />` },
  ];
  const empty = html`<${Empty} icon="layout-template" title="No layouts" action=${create} curl=${`curl ${window.location.origin}/v1/layouts ${LAYOUT_EXAMPLE}`}>Write header, logo and footer once for all templates that use the layout.<//>`;
  return html`<${Table} label="Layouts" columns=${columns} state=${state} rowTo=${(row) => `/layouts/${row.id}`} empty=${empty} />`;
}

function TemplateTable({ create }) {
  const search = location.value.query.get("search") ?? "";
  const state = usePages("GET /v1/templates", { query: { search } });
  const columns = [
    { title: "Name", cell: (row) => row.name ?? row.id },
    { title: "Id", cell: (row) => html`<${CopyLine} text=${row.id} />` },
    { title: "Subject", cell: (row) => html`<span class="wrap">${row.subject ?? "–"}</span>` },
    { title: "Version", end: true, cell: (row) => row.version },
    { title: "Changed", cell: (row) => html`<${Time} at=${row.updatedAt} relative />` },
  ];
  const empty = search
    ? html`<${Empty} icon="search" title="Nothing found" action=${html`<${Button} onClick=${() => setQuery({ search: null })}>Show all templates<//>`}>No template has “${search}” in its id, name or subject.<//>`
    : html`<${Empty} icon="layout-template" title="No templates" action=${create} curl=${`curl ${window.location.origin}/v1/templates ${EXAMPLE}`}>Write the content once, then change it here without touching your application.<//>`;
  return html`<div class="toolbar"><${SearchField} label="Search by name, id or subject" value=${search} onValue=${(value) => setQuery({ search: value })} /></div>
    <${Table} label="Templates" columns=${columns} state=${state} rowTo=${(row) => `/templates/${row.id}`} empty=${empty} />`;
}
