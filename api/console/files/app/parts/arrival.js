// "Is my mail arriving?": a line per mailbox provider, in words, today against the days before.
import { useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Card, ErrorNote, Icon, Skeleton } from "../core/ui.js";
import { ReceiversLine } from "./receiver_states.js";
import { date, duration, html, localTime, number, percent, plural, serviceNow, timeOfDay } from "../core/view.js";

const FEW = 10; // settled deliveries, below which a share says less than the numbers
const SAME_SHARE = 0.005; // differences of the delivered share that are no news
const SAME_TIME = 1.5; // the same as a factor between medians
const FALLEN = 0.02; // a fall of the delivered share that is a warning
const LOW = [0.95, 0.9]; // delivered shares below which a line is a warning, or bad

// Why a server defers, by the class of its reply (engine/delivery/reply_codes.py).
const REASONS = {
  __proto__: null,
  auth: "not authenticated",
  dns: "mail servers not found in DNS",
  greylisted: "greylisting",
  local: "a fault of this service",
  mailbox_full: "mailbox full",
  network: "no connection",
  policy: "refused by a policy",
  protocol: "a fault of the server",
  rate: "rate limited",
  reputation: "sender reputation",
  system: "a fault of the server",
  tls: "no secure connection",
  unavailable: "the server is not available",
  unknown_after_dot: "the connection broke",
};

/** Return the delivered share of figures in words: "99.2% delivered", "3 of 4 delivered", "all 12 delivered". */
function shareOf(figures) {
  const delivered = figures.delivered + figures.complained;
  if (delivered === figures.settled && delivered > 1) return `all ${number(delivered)} delivered`;
  if (figures.settled < FEW) return `${number(delivered)} of ${number(figures.settled)} delivered`;
  return `${percent(figures.deliveryRate)} delivered`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Return how today compares with the days before, behind what differs: "99.2% delivered, down from 99.8% in the 7 days before, median 1.4 s". */
function compared({ today, before, deferred }, days) {
  const share = capital(shareOf(today)).replace(/^All (.*)/, deferred ? "$1" : "$&"); // the deferred ones are not delivered
  const median = today.p50Ms === null ? null : `median ${duration(today.p50Ms)}`;
  const then = `in the ${days} days before`;
  const parts = [share, median];
  if (before.settled >= FEW && today.settled >= FEW) {
    const change = today.deliveryRate - before.deliveryRate;
    const factor = today.p50Ms === null || before.p50Ms === null ? 1 : (today.p50Ms + 50) / (before.p50Ms + 50);
    if (Math.abs(change) > SAME_SHARE) parts.splice(1, 0, `${change < 0 ? "down" : "up"} from ${percent(before.deliveryRate)} ${then}`);
    else if (factor > SAME_TIME || factor < 1 / SAME_TIME) parts.push(`${factor > 1 ? "slower" : "faster"} than ${duration(before.p50Ms)} ${then}`);
    else parts.push(`as ${then}`);
  }
  return `${parts.filter(Boolean).join(", ")}.`;
}

/** Return when mail was deferred first: "10:20", with the date unless it is today. */
const since = (iso) => (localTime(iso).slice(0, 10) === localTime(serviceNow()).slice(0, 10) ? timeOfDay(iso) : `${date(iso)}, ${timeOfDay(iso)}`);

/** Return the sentences of a provider's line; `row` is of GET /v1/analytics/providers, `days` as it says. */
export function sentences(row, days) {
  const { today, before, deferred } = row;
  const found = [];
  if (today.settled > 0) {
    found.push(compared(row, days));
  } else if (before.settled > 0) found.push(`Nothing delivered yet today; ${shareOf(before)} in the ${days} days before.`);
  if (deferred) {
    const code = [deferred.smtpCode, deferred.enhancedCode].filter(Boolean).join(" ");
    const reason = REASONS[deferred.class] ?? "the server asks to try later";
    found.push(`${plural(deferred.messages, "email")} deferred since ${since(deferred.since)}${deferred.class || code ? `: ${reason}${code ? ` (${code})` : ""}` : ""}.`);
  }
  return found;
}

/** Return the tone of a provider's line: good, warn or bad. */
export function toneOf({ today, before, deferred }) {
  const rate = today.settled >= FEW ? today.deliveryRate : 1;
  if (rate < LOW[1]) return "bad";
  const fell = before.settled >= FEW && today.settled >= FEW && before.deliveryRate - today.deliveryRate > FALLEN;
  return deferred || fell || rate < LOW[0] ? "warn" : "good";
}

/** Return the answer to the question, in one sentence. */
export function answer(rows) {
  const named = rows.filter((row) => toneOf(row) !== "good").map((row) => (row.provider === "other" ? "the other providers" : row.name));
  if (rows.length === 0) return "Nothing was delivered in the last days.";
  if (named.length === 0) return "Yes.";
  if (named.length === rows.length) return "Not all of it.";
  return `Mostly. Look at ${new Intl.ListFormat("en").format(named)}.`;
}

const ICONS = { good: ["circle-check", "In order"], warn: ["triangle-alert", "Needs a look"], bad: ["circle-alert", "Failing"] };

/** The card of the first page. */
export function Arrival() {
  const { data, error, reload } = useCall("GET /v1/analytics/providers", {}, { pollMs: 30_000 });
  if (error && !data) return html`<${ErrorNote} error=${error} retry=${reload} />`;
  if (!data) return html`<${Card} title="Is my mail arriving?"><${Skeleton} /><//>`;
  return html`<${Card} title="Is my mail arriving?" actions=${html`<a href=${href("/deliverability")}>By domain</a>`}><div class="stack-tight">
    <p class="title-text">${answer(data.data)}</p>
    <${ReceiversLine} />
    <ul class="stack-tight">${data.data.map((row) => html`<li class="arrival" key=${row.provider}><${Line} row=${row} days=${data.days} /></li>`)}</ul>
    ${data.data.length > 0 && html`<p class="small soft">Today in UTC. Company domains hosted at Google count as Gmail, those at Microsoft as Microsoft. Amber means that email is deferred, or that less than ${percent(LOW[0], 0)} or ${FALLEN * 100} points less than before was delivered.</p>`}
  </div><//>`;
}

/** The link from a line that needs a look to the messages or bounces behind it. */
function Cause({ row: { name, deferred } }) {
  const at = deferred?.domain;
  if (at) return html`<a class="nowrap" href=${href("/messages", { recipientDomain: at })}>Messages to ${at}</a>`;
  return html`<a class="nowrap" href=${href("/deliverability/bounces", { days: "1" })} aria-label=${`Bounces of today, for ${name}`}>Bounces of today</a>`;
}

function Line({ row, days }) {
  const tone = toneOf(row);
  const [icon, words] = ICONS[tone];
  return html`<span class=${tone}><${Icon} name=${icon} size=${18} /><span class="visually-hidden">${words}: </span></span>
    <strong>${row.name}</strong><span class="numeric">${sentences(row, days).join(" ")}${tone !== "good" && html` <${Cause} row=${row} />`}</span>`;
}
