// The plans side by side, and the dialog that buys one.
import { call, useAction, useCall, whyNot } from "../core/api.js";
import { Button, Card, Chip, Dialog, ErrorNote, Form, Notice, Segments, Skeleton, Time, toast } from "../core/ui.js";
import { html, money, number, plural, useState } from "../core/view.js";
import { BillingFields, readFields, writtenFields } from "./billing_profile.js";
import { resourceName } from "./caps.js";

const ORDER = ["free", "starter", "growth", "scale", "enterprise"];
const named = (plan) => plan[0].toUpperCase() + plan.slice(1);
const days = (value) => plural(value, "day");
const OWN_ROWS = [
  ["Messages per month", (plan) => number(plan.monthlyLimit)],
  ["Messages and log kept", (plan) => days(plan.retentionDays)],
  ["Scheduling ahead", (plan) => days(plan.scheduleDays)],
  ["Delivery analytics", (plan) => days(plan.analyticsDays)],
  ["Requests per second and key", (plan) => number(plan.requestsPerSecond)],
];
const LEFT_OUT = new Set(["scheduled_messages", "segments"]); // as many as messages; the same on all plans

/** The comparison of the plans; `state` is the reply of `GET /v1/billing`. */
export function Plans({ state, onChanged }) {
  const { data, error, reload } = useCall("GET /v1/billing/plans");
  const [interval, setInterval] = useState(state.interval ?? "month");
  const [buying, setBuying] = useState(null);
  if (!data) return html`<${Card} title="Plans">${error ? html`<${ErrorNote} error=${error} retry=${reload} />` : html`<${Skeleton} lines=${8} />`}<//>`;
  const plans = data.data;
  const currency = state.currency ?? state.prices[0]?.currency;
  const price = (plan) => plan.prices.find((one) => one.interval === interval && one.currency === currency);
  const sold = state.prices.length > 0;
  const limit = (plan, resource) => plan.limits.find((one) => one.resource === resource)?.limit;
  const shown = (value) => (value === null ? "unlimited" : value === 0 ? html`<span class="soft">–<span class="visually-hidden">none</span></span>` : number(value));
  const resources = plans[0].limits.map((one) => one.resource).filter((resource) => !LEFT_OUT.has(resource));
  const cells = (read) => plans.map((plan) => html`<td class=${plan.current ? "present" : ""}>${read(plan)}</td>`);
  const head = (plan) => html`<th scope="col" class=${plan.current ? "present" : ""}>${named(plan.plan)}${plan.current && html` <${Chip} tone="accent">yours<//>`}<span class="price">${priceWords(plan, price(plan), interval)}</span></th>`;
  const intervals = html`<${Segments} label="Billing period" options=${[["month", "Monthly"], ["year", "Yearly"]]} value=${interval} onValue=${setInterval} />`;
  return html`<${Card} title="Plans" actions=${sold && intervals} flush>
    ${!sold && html`<div class="card-body"><${Notice}>You can't buy plans on this instance. Ask its operator to change yours.<//></div>`}
    <div class="plans" tabindex="0" role="region" aria-label="Comparison of the plans"><table>
      <thead><tr><th scope="col"><span class="visually-hidden">Limit</span></th>${plans.map(head)}</tr></thead>
      <tbody>${OWN_ROWS.map(([label, read]) => html`<tr><th scope="row">${label}</th>${cells(read)}</tr>`)}
        ${resources.map((resource) => html`<tr><th scope="row">${resourceName(resource)}${MONTHLY.has(resource) ? " a month" : ""}</th>${cells((plan) => shown(limit(plan, resource)))}</tr>`)}
        ${sold && html`<tr><th scope="row"><span class="visually-hidden">Choose</span></th>${cells((plan) => html`<${Choice} plan=${plan} price=${price(plan)} interval=${interval} state=${state} onChoose=${() => setBuying({ plan, price: price(plan), interval })} />`)}</tr>`}</tbody>
    </table></div>
    ${sold && html`<div class="card-foot small soft">Prices exclude tax. An upgrade applies when you pay, and unused time of your current plan is credited. A downgrade applies after the paid period. It deletes nothing right away: you can't add anything beyond the new limits, and data older than the new retention is erased after 30 days.</div>`}
    ${buying && html`<${CheckoutDialog} ...${buying} state=${state} onClose=${(done) => { setBuying(null); if (done) onChanged(); }} />`}
  <//>`;
}

const MONTHLY = new Set(["received_messages", "verifications", "address_checks"]);

function priceWords(plan, price, interval) {
  if (price) return `${money(price.amount, price.currency)} a ${interval}`;
  if (plan.plan === "free") return "free";
  return plan.plan === "enterprise" ? "by agreement" : "not for sale";
}

function Choice({ plan, price, interval, state, onChoose }) {
  if (!price) return null;
  const running = state.status === "active" || state.status === "past_due";
  if (state.status === "active" && plan.plan === state.plan && interval === state.interval && !state.pendingPlan) return html`<span class="soft small">current</span>`;
  const larger = ORDER.indexOf(plan.plan) > ORDER.indexOf(state.plan);
  const agreed = state.status === "agreement" ? "Your plan was agreed with the operator. Ask the operator to change it." : undefined;
  return html`<${Button} kind=${larger ? "primary" : "plain"} why=${whyNot("admin") ?? agreed} onClick=${onChoose} aria-label=${`Choose ${named(plan.plan)}`}>${running ? (larger ? "Upgrade" : "Switch") : "Choose"}<//>`;
}

/** Return true if the change waits for the end of the paid period, without a payment now. */
function isSmaller(state, plan, interval) {
  if (state.status !== "active") return false;
  const step = ORDER.indexOf(plan) - ORDER.indexOf(state.plan);
  return step < 0 || (step === 0 && state.interval === "year" && interval === "month");
}

/** Ask for the invoice details, then leave to the provider's page, or schedule the smaller plan. */
function CheckoutDialog({ plan, price, interval, state, onClose }) {
  const [values, setValues] = useState(() => writtenFields(state.profile));
  const [order, { busy, error }] = useAction(() => call("POST /v1/billing/checkout", { body: { plan: plan.plan, interval, profile: readFields(values) } }));
  const submit = async () => {
    const checkout = await order();
    if (checkout === undefined) return;
    if (checkout.url && payable(checkout.url)) {
      window.location.assign(checkout.url);
      return;
    }
    toast(`The account moves to ${named(checkout.plan)} after the paid period`);
    onClose(true);
  };
  return html`<${Dialog} title=${`${named(plan.plan)}, billed ${interval}ly`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Continue<//>`}>
    <${Form} onSubmit=${submit}>
      <p><strong>${money(price.amount, price.currency)}</strong> a ${interval}, without tax. ${isSmaller(state, plan.plan, interval) ? html`The change applies after the paid period, on <${Time} at=${state.currentPeriodEnd} />. You pay nothing now.` : "The next page shows the total with tax and credit for unused time. You pay there; your card data never reaches this instance."}</p>
      <${BillingFields} values=${values} setValues=${setValues} error=${error} />
    <//>
  <//>`;
}

/** Return true if the address of a checkout is one that a browser may open. */
export const payable = (url) => /^https?:\/\//.test(url);
