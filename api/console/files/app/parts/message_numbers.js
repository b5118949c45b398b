// Messages by day or hour and status: of the account, a domain, a stream or a tag.
import { useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Card, ErrorNote, Figures, SearchField, SelectField, Skeleton } from "../core/ui.js";
import { html, percent, shortNumber, zone } from "../core/view.js";

const loadPlot = () => import("./plot.js");

/** The tab with the numbers of messages in the last `days` days; one day is shown by the hour. */
export function MessageNumbers({ days }) {
  const query = location.value.query;
  const filters = { domain: query.get("domain") ?? "", stream: query.get("stream") ?? "", tag: query.get("tag") ?? "" };
  const domains = useCall("GET /v1/domains", { query: { limit: 100 }, quiet: true });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 }, quiet: true });
  return html`<div class="toolbar">
      <${SelectField} label="Domain" hideLabel value=${filters.domain} onValue=${(value) => setQuery({ domain: value })} options=${[["", "All domains"], ...(domains.data?.data ?? []).map((one) => [one.name, one.name])]} />
      <${SelectField} label="Stream" hideLabel value=${filters.stream} onValue=${(value) => setQuery({ stream: value })} options=${[["", "All streams"], ...(streams.data?.data ?? []).map((one) => [one.id, one.name])]} />
      <${SearchField} label="Tag" value=${filters.tag} onValue=${(value) => setQuery({ tag: value })} />
    </div>
    <${MessageFigures} title=${days === "1" ? "Today, by the hour" : `Last ${days} days`} query=${{ days, bucket: days === "1" ? "hour" : "day", ...filters }} />
    <p class="small soft note">A message counts when it was created, with its present status.</p>`;
}

/** A card with the figures and the plot of the messages that match `query`, that of GET /v1/stats/messages. */
export function MessageFigures({ title, query }) {
  const { data, error, reload } = useCall("GET /v1/stats/messages", { query: { tz: zone.value, ...query } }, { pollMs: 60_000 });
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${8} />`;
  const { totals } = data;
  const rate = (value, digits) => (value === null ? "nothing settled yet" : `${percent(value, digits)} of what is settled`);
  const items = [
    ["Messages", shortNumber(totals.total), query.bucket === "hour" ? null : weeksCompared(data.data)],
    ["Delivered", shortNumber(totals.delivered), rate(totals.deliveryRate)],
    ["Bounced", shortNumber(totals.bounced), rate(totals.bounceRate, 2)],
    ["Complaints", shortNumber(totals.complained), rate(totals.complaintRate, 2)],
  ];
  return html`<${Card} title=${title}><div class="stack"><${Figures} items=${items} /><${Lazy} load=${loadPlot} name="MessagePlot" rows=${data.data} bucket=${query.bucket} /></div><//>`;
}

/** Return how the messages of the last 7 days compare with the 7 days before, in words; null where there are fewer. */
function weeksCompared(rows) {
  if (rows.length < 14) return null;
  const sum = (part) => part.reduce((all, row) => all + row.total, 0);
  return compared(sum(rows.slice(-7)), sum(rows.slice(-14, -7)));
}

/** Return the change of a week's number in words: "7 days: +4% on the week before". */
export function compared(now, before) {
  if (before === 0) return now ? "all in the last 7 days" : null;
  const change = Math.round(((now - before) / before) * 100);
  if (change === 0) return "7 days: no change on the week before";
  return `7 days: ${change > 0 ? "+" : "−"}${Math.abs(change)}% on the week before`;
}
