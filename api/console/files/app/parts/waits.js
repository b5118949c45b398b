// Where the time of deliveries went, by cause: of one attempt on its waybill, and of all mail on Deliverability.
import { useCall } from "../core/api.js";
import { Lazy } from "../core/shell.js";
import { Card, Empty, ErrorNote, Figures, Skeleton } from "../core/ui.js";
import { Table } from "../core/table.js";
import { duration, html, number, percent, useState } from "../core/view.js";

const loadPlot = () => import("./plot.js");
const CAUSES = [["schedule", "Until its scheduled time"], ["queue", "In the queue"], ["siteLimits", "Limits of the receiving servers"], ["otherAccounts", "Mail of other accounts"], ["ownMail", "Your own mail"], ["connection", "Connecting"], ["transaction", "SMTP transaction"], ["retry", "Until the retry"]];
// The waits that differ from day to day for reasons one can act on; each has a pattern of its own.
const PLOTTED = [["ownMail", "Your own mail", "accent"], ["otherAccounts", "Mail of other accounts", "warn"], ["siteLimits", "Limits of the receiving servers", "bad"], ["queue", "In the queue", "good"]];
const MAX_HOURLY_DAYS = 7; // that the operation takes by the hour

/** Return the rows by hour or day, with a null for each one without attempts in between. */
function withoutGaps(rows, stepMs) {
  const known = new Map(rows.map((row) => [Date.parse(row.begin), row]));
  const found = [];
  for (let at = Date.parse(rows[0]?.begin); at <= Date.parse(rows.at(-1)?.begin); at += stepMs) found.push([new Date(at).toISOString(), known.get(at) ?? null]);
  return found;
}

/** One attempt: a sentence, and its causes when asked for. */
export function AttemptWait({ wait }) {
  const [open, setOpen] = useState(false);
  const causes = CAUSES.filter(([key]) => wait.causes[key] > 0);
  return html`<p class="small soft">${wait.text} <button type="button" class="link-button small" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>${open ? "Hide" : "Show"} all causes</button></p>
    ${open && html`<dl class="waybill-rest small">${causes.map(([key, label]) => html`<div key=${key}><dt>${label}</dt><dd>${duration(wait.causes[key])}</dd></div>`)}<div><dt>Fair share</dt><dd>${percent(wait.fairShare)} of the connections</dd></div></dl>`}`;
}

/** The card of all waiting times in the last `days` days, with a plot by hour or day and a row for each provider. */
export function WaitsCard({ days, stream }) {
  const groupBy = Number(days) <= MAX_HOURLY_DAYS ? "hour" : "day";
  const providers = useCall("GET /v1/analytics/waits", { query: { days, stream } }, { pollMs: 60_000 });
  const times = useCall("GET /v1/analytics/waits", { query: { days, stream, groupBy } }, { pollMs: 60_000, quiet: true });
  const { data, error, reload } = providers;
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${6} />`;
  const { total } = data;
  const places = withoutGaps(times.data?.data ?? [], groupBy === "hour" ? 3_600_000 : 86_400_000);
  if (total.attempts === 0) return html`<div class="card"><${Empty} icon="clock" title="No attempts in this period">Here you see how long your mail waited, and for what.<//></div>`;
  const mean = (row, key) => duration(row.causes[key] / row.attempts);
  const items = [
    ["For other accounts", duration(total.otherAccountsP95Ms), "95% of attempts waited no longer"],
    ["For your own mail", mean(total, "ownMail"), "on average"],
    ["For limits of the servers", mean(total, "siteLimits"), "on average"],
    ["Fair share", percent(total.fairShare), "of the connections to a server, on average"],
  ];
  const columns = [
    { title: "Provider", cell: (row) => row.name },
    { title: "Attempts", end: true, cell: (row) => number(row.attempts) },
    { title: "Other accounts, 95%", end: true, cell: (row) => duration(row.otherAccountsP95Ms) },
    ...["otherAccounts", "ownMail", "siteLimits", "queue", "connection", "transaction"].map((key) => ({ title: CAUSES.find(([name]) => name === key)[1], end: true, cell: (row) => mean(row, key) })),
    { title: "Fair share", end: true, cell: (row) => percent(row.fairShare) },
  ];
  return html`<${Card} title="Why deliveries waited"><div class="stack"><${Figures} items=${items} />
    ${places.length > 0 && html`<${Lazy} load=${loadPlot} name="Plot" label=${`Seconds waited by ${groupBy}`} times=${places.map(([at]) => (groupBy === "hour" ? at : at.slice(0, 10)))} series=${PLOTTED.map(([key, label, colour]) => ({ label, colour, values: places.map(([, row]) => (row ? Math.round(row.causes[key] / 1000) : 0)) }))} />`}
    <${Table} label="Waiting times by provider" columns=${columns} rowKey=${(row) => row.provider} state=${{ rows: data.data, loading: false, error, reload }} />
    <p class="small soft note">Means per attempt. The fair share is 1 divided by the number of accounts with mail for the same servers.</p></div><//>`;
}
