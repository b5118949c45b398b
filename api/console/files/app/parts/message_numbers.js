// Messages by day or hour and status: of the account, a domain, a stream or a tag.
import { useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Card, ErrorNote, Figures, SearchField, SelectField, Skeleton } from "../core/ui.js";
import { html, number, percent, serviceNow, shortNumber, zone } from "../core/view.js";

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

const figure = (count) => (count < 100_000 ? number(count) : shortNumber(count));

/** A card with the figures and the plot of the messages that match `query`, that of GET /v1/stats/messages. */
export function MessageFigures({ title, query }) {
  const { data, error, reload } = useCall("GET /v1/stats/messages", { query: { tz: zone.value, ...query } }, { pollMs: 60_000 });
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${8} />`;
  const { totals } = data;
  const rate = (value, digits) => (value === null ? "none finished yet" : `${percent(value, digits)} of finished deliveries`);
  const items = [
    ["Messages", figure(totals.total), query.bucket === "hour" ? null : weeksCompared(data.data)],
    ["Delivered", figure(totals.delivered), rate(totals.deliveryRate)],
    ["Bounced", figure(totals.bounced), rate(totals.bounceRate, 2)],
    ["Complaints", figure(totals.complained), rate(totals.complaintRate, 2)],
  ];
  return html`<${Card} title=${title}><div class="stack"><${Figures} items=${items} /><${Lazy} load=${loadPlot} name="MessagePlot" rows=${data.data} bucket=${query.bucket} /></div><//>`;
}

const QUARTER_MS = 900_000;
const HOUR_MS = 3_600_000;
const MOST_HOURS = 31 * 24; // that the operation counts by the hour
const KEPT_MS = 365 * 24 * HOUR_MS; // the operation begins no earlier
const MIN_BARS = 3; // of a broadcast that has ended, below which a plot tells no more than its figures
const SHOWN_HOURS = 6; // at least, so that a broadcast of minutes is no single bar

/** Return the query for the messages of the time in which a broadcast was sent, to quarter hours; `now` in milliseconds. */
export function timeOf({ startedAt, finishedAt, stream, from }, now) {
  const start = Date.parse(startedAt);
  const ended = finishedAt ? Date.parse(finishedAt) : Math.floor(now / HOUR_MS) * HOUR_MS; // the same query for an hour
  const end = Math.max(ended + HOUR_MS, start + SHOWN_HOURS * HOUR_MS);
  const quarter = (at, round) => new Date(round(at / QUARTER_MS) * QUARTER_MS).toISOString().replace(".000Z", "Z");
  return { bucket: end - start > MOST_HOURS * HOUR_MS ? "day" : "hour", from: quarter(start, Math.floor), until: quarter(end, Math.ceil), stream, domain: domainOf(from) };
}

/** Return the domain of a sender such as "Ann <ann@example.com>". */
const domainOf = (sender) => sender.slice(sender.lastIndexOf("@") + 1).replace(/>\s*$/, "").toLowerCase();

/** The card of a broadcast that has started: the messages of its stream and domain in its time. */
export function BroadcastNumbers({ broadcast }) {
  const query = timeOf(broadcast, serviceNow());
  const isKept = serviceNow() - Date.parse(broadcast.startedAt) < KEPT_MS;
  const { data, error, reload } = useCall("GET /v1/stats/messages", { query: { tz: zone.value, ...query } }, { skip: !isKept, pollMs: 60_000 });
  if (!isKept) return null;
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Skeleton} lines=${6} />`;
  const rows = broadcast.finishedAt ? data.data.slice(0, data.data.findLastIndex((row) => row.total > 0) + 1) : data.data;
  if (broadcast.finishedAt && rows.filter((row) => row.total > 0).length < MIN_BARS) return null;
  return html`<${Card} title="While it was sent"><div class="stack-tight"><${Lazy} load=${loadPlot} name="MessagePlot" rows=${rows} bucket=${query.bucket} />
    <p class="small soft">All messages of the stream ${query.stream} from ${query.domain} in this time, by the ${query.bucket} of their creation.</p></div><//>`;
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
