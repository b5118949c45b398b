// Messages by day or hour and status, of a domain, a stream or a tag.
import { useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Card, ErrorNote, Figures, SearchField, SelectField, Skeleton } from "../core/ui.js";
import { html, percent, shortNumber, zone } from "../core/view.js";

const SERIES = [["Delivered", "good", "delivered"], ["Bounced", "bad", "bounced"], ["Failed", "accent", "failed"], ["Complained", "warn", "complained"]];

/** The tab with the numbers of messages in the last `days` days; one day is shown by the hour. */
export function MessageNumbers({ days }) {
  const query = location.value.query;
  const filters = { domain: query.get("domain") ?? "", stream: query.get("stream") ?? "", tag: query.get("tag") ?? "" };
  const stats = useCall("GET /v1/stats/messages", { query: { days, tz: zone.value, bucket: days === "1" ? "hour" : "day", ...filters } }, { pollMs: 60_000 });
  const domains = useCall("GET /v1/domains", { query: { limit: 100 }, quiet: true });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 }, quiet: true });
  return html`<div class="toolbar">
      <${SelectField} label="Domain" hideLabel value=${filters.domain} onValue=${(value) => setQuery({ domain: value })} options=${[["", "All domains"], ...(domains.data?.data ?? []).map((one) => [one.name, one.name])]} />
      <${SelectField} label="Stream" hideLabel value=${filters.stream} onValue=${(value) => setQuery({ stream: value })} options=${[["", "All streams"], ...(streams.data?.data ?? []).map((one) => [one.id, one.name])]} />
      <${SearchField} label="Tag" value=${filters.tag} onValue=${(value) => setQuery({ tag: value })} />
    </div>
    <${Numbers} ...${{ stats, days }} />`;
}

function Numbers({ stats, days }) {
  const { data, error, reload } = stats;
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${8} />`;
  const { totals } = data;
  const rate = (value, digits) => (value === null ? "nothing settled yet" : percent(value, digits));
  const items = [
    ["Messages", shortNumber(totals.total), null],
    ["Delivered", shortNumber(totals.delivered), rate(totals.deliveryRate)],
    ["Bounced", shortNumber(totals.bounced), rate(totals.bounceRate, 2)],
    ["Complaints", shortNumber(totals.complained), rate(totals.complaintRate, 2)],
  ];
  const series = SERIES.map(([label, colour, name]) => ({ label, colour, values: data.data.map((row) => row[name]) }));
  const times = data.data.map((row) => (days === "1" ? row.startsAt : row.date));
  return html`<${Card} title=${days === "1" ? "Today, by the hour" : `Last ${days} days`}><div class="stack"><${Figures} items=${items} />
    <${Lazy} load=${loadPlot} name="Plot" label=${days === "1" ? "Messages by hour" : "Messages by day"} times=${times} series=${series} /></div><//>
    <p class="small soft note">A message counts when it was created, with its present status.</p>`;
}

const loadPlot = () => import("./plot.js");
