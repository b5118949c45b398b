// The versions of a template: their list, what differs between any two, and restoring one.
import { usePages } from "../core/api.js";
import { Button, Dialog, SelectField, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { Differences } from "./differences.js";

const PARTS = [["subject", "Subject"], ["html", "HTML"], ["text", "Text"]];
const declared = (version) => (version.variables ?? []).map((one) => `${one.name}${one.required ? ", required" : ""}${one.default === null ? "" : `, default ${JSON.stringify(one.default)}`}`).join("\n");

const layoutOf = ({ layout, layoutVersion }) => (!layout ? "" : layoutVersion ? `${layout}, version ${layoutVersion}` : layout);

/** The versions of template `id`; `current` is the latest. `onRestore(version)` puts one into the editor. */
export function Versions({ id, current, onRestore }) {
  const state = usePages("GET /v1/templates/{id}/versions", { path: { id }, query: {} }, { limit: 20 });
  const [chosen, setChosen] = useState(null);
  const columns = [
    { title: "Version", cell: (row) => html`<span class="strong">${row.version}</span>${row.version === current.version ? html` <span class="soft">latest</span>` : ""}` },
    { title: "Subject", cell: (row) => html`<span class="wrap">${row.subject ?? "–"}</span>` },
    { title: "Saved", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} onClick=${() => setChosen(row)}>Compare<span class="visually-hidden"> version ${row.version}</span><//>` },
  ];
  return html`<${Table} label="Versions" columns=${columns} rowKey=${(row) => row.version} state=${state} />
    ${chosen && html`<${VersionDialog} chosen=${chosen} others=${state.rows} current=${current} onClose=${() => setChosen(null)} onRestore=${() => { setChosen(null); onRestore(chosen); }} />`}`;
}

function VersionDialog({ chosen, others, current, onClose, onRestore }) {
  const before = others.find((one) => one.version === chosen.version - 1);
  const [against, setAgainst] = useState(String(chosen.version === current.version ? (before ?? chosen).version : current.version));
  const other = others.find((one) => String(one.version) === against) ?? chosen;
  const [from, to] = chosen.version <= other.version ? [chosen, other] : [other, chosen];
  const options = others.filter((one) => one.version !== chosen.version).map((one) => [String(one.version), `Version ${one.version}${one.version === current.version ? " (latest)" : ""}`]);
  const restore = chosen.version !== current.version && html`<${Button} kind="primary" icon="rotate-ccw" role="member" onClick=${onRestore}>Put version ${chosen.version} into the editor<//>`;
  return html`<${Dialog} title=${`Version ${chosen.version}`} wide onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Close<//>${restore}`}>
    ${options.length > 0 ? html`<${SelectField} label="Compare with" value=${against} onValue=${setAgainst} options=${options} /><p class="soft">From version ${from.version} to version ${to.version}:</p>` : html`<p class="soft">This is the only version.</p>`}
    <${AllDifferences} from=${from} to=${to} />
  <//>`;
}

/** What differs between two versions, part by part; parts that are the same are named in one line. */
export function AllDifferences({ from, to }) {
  const layouts = from.layout === to.layout && !(from.layoutVersion && to.layoutVersion) ? ["", ""] : [layoutOf(from), layoutOf(to)]; // a draft has no version
  const parts = [...PARTS.map(([part, label]) => [label, from[part] ?? "", to[part] ?? ""]), ["Variables", declared(from), declared(to)], ["Layout", ...layouts]];
  const same = parts.filter(([, before, after]) => before === after).map(([label]) => label);
  return html`${parts.filter(([, before, after]) => before !== after).map(([label, before, after]) => html`<${Differences} key=${label} label=${label} before=${before} after=${after} />`)}
    ${same.length > 0 && html`<p class="soft small">No difference: ${same.join(", ")}.</p>`}`;
}
