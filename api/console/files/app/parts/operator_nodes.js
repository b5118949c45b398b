// The operator's list of processes, and the readiness of the API process that answers.
import { useCall } from "../core/api.js";
import { Card, Chip, Empty, ErrorNote, Facts, Figures, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { bytes, duration, html, number } from "../core/view.js";

const MEBIBYTE = 1024 * 1024;

const COLUMNS = [
  { title: "Process", cell: (row) => html`<span class="strong">${row.name}</span>` },
  { title: "Kind", cell: (row) => row.kind },
  { title: "Host", cell: (row) => row.host },
  { title: "State", cell: (row) => (row.state === "here" ? html`<${Chip} tone="good">running<//>` : html`<${Chip} tone="bad">gone<//>`) },
  { title: "Shards", end: true, cell: (row) => number(row.shards) },
  { title: "In hand", end: true, cell: (row) => number(row.inHand) },
  { title: "Messages/s", end: true, cell: (row) => number(row.rate) },
  { title: "Memory", end: true, cell: (row) => (row.memoryMb == null ? "–" : bytes(row.memoryMb * MEBIBYTE)) },
  { title: "Version", cell: (row) => html`<span class="soft">${row.version}</span>` },
  { title: "Since", end: true, cell: (row) => html`<${Time} relative at=${row.since} />` },
  { title: "Seen", end: true, cell: (row) => row.lastSeenS < 10 ? "just now" : `${duration(row.lastSeenS * 1000)} ago` },
];

const CHECKS = { postgres: "PostgreSQL", redis: "Redis", queue: "Queue", partitions: "Partitions", disk: "Disk" };

/** The processes of all hosts. */
export function OperatorNodes() {
  const { data, error, loading, reload } = useCall("GET /v1/operator/nodes", {}, { pollMs: true });
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  const rows = data?.processes ?? [];
  return html`<div class="stack">
    ${data && html`<${Figures} items=${[["Hosts", number(data.hosts)], ["Processes", number(rows.length - data.gone)], ["Gone", html`<span class=${data.gone ? "bad" : ""}>${number(data.gone)}</span>`, data.gone ? "ended without notice" : null], ["This API process", html`<${Chip} tone=${data.readiness.status === "ready" ? "good" : "bad"}>${data.readiness.status}<//>`]]} />`}
    <${Table} label="Processes" columns=${COLUMNS} rowKey=${(row) => `${row.host} ${row.name} ${row.pid}`} state=${{ rows, loading, error, reload }} empty=${html`<${Empty} icon="server" title="No process is registered">Each process of the service registers itself within seconds of its start.<//>`} />
    ${data && html`<${Card} title="Readiness to accept messages"><${Facts} items=${Object.entries(data.readiness.checks).map(([name, check]) => [CHECKS[name] ?? name, html`<${Check} check=${check} />`])} /><//>`}
  </div>`;
}

function Check({ check }) {
  const said = [
    check.detail,
    check.effect,
    check.oldestDueSeconds != null && (check.oldestDueSeconds < 1 ? "no delivery is late" : `the oldest delivery is due since ${duration(check.oldestDueSeconds * 1000)}`),
    check.weeksAhead != null && `${check.weeksAhead} weeks of partitions ahead`,
    check.freeBytes != null && `${bytes(check.freeBytes)} free`,
  ].filter(Boolean).join("; ");
  return html`<span class="row"><${Chip} tone=${check.ok ? "good" : "bad"}>${check.ok ? "ok" : "failing"}<//><span class="soft">${said}</span></span>`;
}
