// How a webhook endpoint responds, in words: the chip, the last response, and the facts of its page.
import { Chip, Notice, Time } from "../core/ui.js";
import { html, number, percent, plural, serviceNow } from "../core/view.js";

/** The state of an endpoint; one that fails says since when. */
export function HealthChip({ health }) {
  return html`<span><${Chip}>${health.state}<//>${health.state === "failing" && health.failingSince && html` <span class="small soft nowrap">since <${Time} at=${health.failingSince} minute /></span>`}</span>`;
}

/** The state of a delivery: one that failed and is tried again says so. */
export function DeliveryChip({ delivery: { state, attempt, attempts } }) {
  const isRetried = state === "pending" && (attempt ?? attempts?.length) > 0;
  return isRetried ? html`<${Chip} tone="warn">retrying<//>` : html`<${Chip}>${state}<//>`;
}

/** Return the share of delivered posts of the last 24 hours; a dash without posts. */
export const successShare = (health) => (health.successRate === null ? "–" : percent(health.successRate, health.successRate % 1 === 0 ? 0 : 1));

/** The status or error of the last post, and when it was made. */
export function LastResponse({ last }) {
  if (!last) return html`<span class="soft">none yet</span>`;
  const delivered = last.error === null;
  return html`<span><span class=${delivered ? "" : "bad"}>${last.statusCode ?? last.error}</span> <span class="soft small nowrap"><${Time} at=${last.at} relative /></span></span>`;
}

/** Return the four figures of the page of an endpoint: [label, value, note]. */
export function endpointFigures({ eventTypes, health }) {
  const { successRate, posts, lastResponse: last, nextAttemptAt } = health;
  const due = nextAttemptAt && Date.parse(nextAttemptAt) <= serviceNow();
  return [
    ["Last 24 hours", successRate === null ? "No posts" : successShare(health), successRate !== null && `of ${plural(posts, "post")} delivered`],
    ["Last response", last ? html`<span class=${last.error === null ? "" : "bad"}>${last.statusCode ?? "None"}</span>` : "None yet", last && html`<${Time} at=${last.at} relative />`],
    ["Next attempt", !nextAttemptAt ? "None" : due ? "Due now" : html`<${Time} at=${nextAttemptAt} relative />`, nextAttemptAt ? "of a retry" : "no post is waiting"],
    ["Events", eventTypes.length ? number(eventTypes.length) : "All", eventTypes.length ? "of the types, listed below" : "every type"],
  ];
}

/** The notice on the page of an endpoint that fails. */
export function FailingNotice({ health, children }) {
  if (health.state !== "failing") return null;
  const { lastResponse: last, failingSince } = health;
  return html`<${Notice} tone="bad" title="Posts to this endpoint are failing." action=${html`<div class="row">${children}</div>`}>${failingSince && html`No post has succeeded since <${Time} at=${failingSince} minute />. `}${last?.error && html`The last one: <q>${last.error}</q>. `}Waybill retries each event and keeps it. Fix your server, send a test, then replay the failed deliveries.<//>`;
}
