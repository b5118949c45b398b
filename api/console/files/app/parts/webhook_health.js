// How a webhook endpoint responds, in words: the chip, the last response, and the facts of its page.
import { Chip, Notice, Time } from "../core/ui.js";
import { html, number, percent, serviceNow } from "../core/view.js";

/** The state of an endpoint; one that fails says since when. */
export function HealthChip({ health }) {
  return html`<span><${Chip}>${health.state}<//>${health.state === "failing" && health.failingSince && html` <span class="small soft nowrap">since <${Time} at=${health.failingSince} /></span>`}</span>`;
}

/** Return the share of delivered posts of the last 24 hours; a dash without posts. */
export const successShare = (health) => (health.successRate === null ? "–" : percent(health.successRate, health.successRate % 1 === 0 ? 0 : 1));

/** The status or error of the last post, and when it was made. */
export function LastResponse({ last }) {
  if (!last) return html`<span class="soft">none yet</span>`;
  const delivered = last.error === null;
  return html`<span><span class=${delivered ? "" : "bad"}>${last.statusCode ?? last.error}</span> <span class="soft small nowrap"><${Time} at=${last.at} relative /></span></span>`;
}

/** Return the facts about its health for the page of an endpoint. */
export function healthFacts({ successRate, posts, lastResponse, nextAttemptAt }) {
  return [
    ["Last 24 hours", successRate === null ? "No posts" : `${successShare({ successRate })} of ${number(posts)} posts delivered`],
    ["Last response", html`<${LastResponse} last=${lastResponse} />`],
    ...(nextAttemptAt ? [["Next attempt", Date.parse(nextAttemptAt) <= serviceNow() ? "due now" : html`<${Time} at=${nextAttemptAt} />`]] : []),
  ];
}

/** The notice on the page of an endpoint that fails. */
export function FailingNotice({ health }) {
  if (health.state !== "failing") return null;
  const { lastResponse: last, failingSince } = health;
  return html`<${Notice} tone="bad" title="Posts to this endpoint are failing.">${failingSince && html`No post has succeeded since <${Time} at=${failingSince} />. `}${last?.error && html`The last one: <q>${last.error}</q>. `}Waybill retries each event and keeps it. Fix your server, send a test, then replay the failed deliveries.<//>`;
}
