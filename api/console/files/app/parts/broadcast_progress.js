// How far a broadcast is, and what became of one that has ended: a sentence, figures, the addresses that bounced.
import { useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Card, Figures, Time } from "../core/ui.js";
import { duration, html, number, percent, plural, serviceNow } from "../core/view.js";
import { ProgressBar } from "./progress_bar.js";

const SKIPS = { suppressed: "suppressed", removed: "deleted or removed from the list before their turn", template_error: "missing a value that the content requires", unconfirmed: "with an unconfirmed address", unsubscribed: "opted out of the list" };
const MAX_BOUNCED = 20; // addresses that the page lists
const ENDS = { __proto__: null, stopped: "Stopped", canceled: "Canceled" };

/** The card of a broadcast that is no draft; `audience` is the link to its list or segment. */
export function Progress({ broadcast, audience }) {
  const { counts, skipped, status, id } = broadcast;
  const ended = status === "sent" || status in ENDS;
  const left = Object.entries(skipped).filter(([, count]) => count > 0);
  const actions = counts.accepted > 0 && html`<${Button} icon="send" to="/messages" query=${{ broadcast: id }}>Show messages<//>`;
  return html`<${Card} title=${ended ? "Result" : "Progress"} actions=${actions}><div class="stack">
    ${ended ? html`<${Ending} broadcast=${broadcast} audience=${audience} />` : html`<${HowFar} broadcast=${broadcast} />`}
    <${Outcomes} counts=${counts} />
    ${left.length > 0 && html`<p class="small soft">${plural(counts.skipped, "recipient")} got no message: ${left.map(([why, count]) => `${number(count)} ${SKIPS[why] ?? why.replaceAll("_", " ")}`).join(", ")}.</p>`}
    ${ended && counts.bounced > 0 && html`<${Bounced} id=${id} total=${counts.bounced} />`}
  </div><//>`;
}

function Ending({ broadcast, audience }) {
  const { status, counts, startedAt, finishedAt } = broadcast;
  const to = plural(counts.accepted, "contact");
  if (status === "sent") return html`<p>Sent <${Time} at=${startedAt} minute />, to ${to} of ${audience}.</p>`;
  if (!startedAt) return html`<p>${ENDS[status]} before it started.</p>`;
  return html`<p>${ENDS[status]} <${Time} at=${finishedAt ?? broadcast.updatedAt} minute />, after ${to} of ${number(counts.recipients)}, of ${audience}.</p>`;
}

function HowFar({ broadcast }) {
  const { counts } = broadcast;
  return html`<div><div class="row-wide small"><span>${number(counts.accepted + counts.skipped)} of ${number(counts.recipients)} recipients</span><span class="soft">${plural(counts.waiting ?? 0, "recipient")} waiting<${Rate} broadcast=${broadcast} /></span></div><${ProgressBar} label="Progress" value=${counts.accepted + counts.skipped} max=${counts.recipients} /></div>`;
}

/** The figures of the messages; a bounce or complaint rate at which an alert fires is red. */
function Outcomes({ counts }) {
  const rules = useCall("GET /v1/alerts/rules", { quiet: true });
  const reached = counts.delivered + counts.bounced + counts.failed + counts.rejected + counts.complained;
  const onWay = Math.max(0, counts.accepted - reached);
  const rate = (label, count, kind, digits) => {
    const limit = rules.data?.data.find((one) => one.kind === kind && one.enabled)?.threshold ?? 1;
    const high = reached > 0 && count / reached >= limit;
    return [label, high ? html`<span class="bad">${number(count)}</span>` : number(count), reached ? percent(count / reached, digits) : null];
  };
  return html`<${Figures} items=${[["Accepted", number(counts.accepted), onWay ? `${number(onWay)} on their way` : null], rate("Delivered", counts.delivered), rate("Bounced", counts.bounced, "bounce_rate"), rate("Complaints", counts.complained, "complaint_rate", 2), ["Failed", number(counts.failed + counts.rejected)], ["Unsubscribed", number(counts.unsubscribed)]]} />`;
}

/** The addresses that bounced, with what their servers said. */
function Bounced({ id, total }) {
  const query = { broadcast: id, status: "bounced" };
  const { data } = useCall("GET /v1/messages", { query: { ...query, limit: MAX_BOUNCED }, quiet: true });
  const rows = (data?.data ?? []).flatMap((message) => message.recipients.filter((one) => one.status === "bounced").map((one) => ({ ...one, message: message.id })));
  if (rows.length === 0) return null;
  return html`<div class="stack-tight"><h3>Bounced addresses</h3>
    <ul class="stack-tight small">${rows.map((one) => html`<li class="wrap" key=${one.message}><a href=${href(`/messages/${one.message}`)}>${one.address}</a>${one.lastResponse && html` <span class="soft">${one.lastResponse}</span>`}</li>`)}</ul>
    ${total > MAX_BOUNCED && html`<p class="small"><a href=${href("/messages", query)}>All ${number(total)} bounced messages</a></p>`}</div>`;
}

/** How fast a broadcast that is sending has gone since its start, and how long the rest takes at that rate. */
function Rate({ broadcast }) {
  const { counts, startedAt, status } = broadcast;
  const passedMs = serviceNow() - Date.parse(startedAt);
  if (status !== "sending" || !startedAt || !counts.accepted || passedMs < 5000) return "";
  const perMinute = (counts.accepted / passedMs) * 60_000;
  const rest = counts.waiting ? `, about ${duration((counts.waiting / perMinute) * 60_000)} left` : "";
  return `, ${number(Math.max(1, Math.round(perMinute)))} per minute since the start${rest}`;
}
