// Billing: the subscription, plans, invoice details, invoices, history.
import { call, useAction, useCall, whyNot } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Confirm, ErrorNote, Facts, Notice, PageHead, Skeleton, Tabs, Time, toast } from "../core/ui.js";
import { html, money, useState } from "../core/view.js";
import { payable, Plans } from "../parts/billing_plans.js";
import { BillingProfileCard } from "../parts/billing_profile.js";
import { BillingHistory, Invoices } from "../parts/billing_records.js";

const PARTS = [["plan", "Plan"], ["details", "Invoice details"], ["invoices", "Invoices"], ["history", "History"]];

/** The page of billing. */
export function Billing() {
  const state = useCall("GET /v1/billing", {}, { pollMs: true });
  const asked = location.value.query.get("part");
  const part = PARTS.some(([key]) => key === asked) ? asked : "plan";
  const { data } = state;
  return html`<${PageHead} title="Billing" lead="Your plan, its price and your invoices." chip=${data && html`<${Chip} tone="accent">${data.plan}<//>${data.status !== "free" && html`<${Chip}>${data.status}<//>`}`} />
    <${Tabs} label="Parts of billing" items=${PARTS} current=${part} onSelect=${(key) => setQuery({ part: key === "plan" ? null : key })} />
    ${state.error && html`<${ErrorNote} error=${state.error} retry=${state.reload} />`}
    ${!data && !state.error && html`<div class="card card-body"><${Skeleton} lines=${8} /></div>`}
    ${data && part === "plan" && html`<div class="stack"><${Standing} state=${data} onChanged=${state.reload} /><${Plans} state=${data} onChanged=${state.reload} /></div>`}
    ${data && part === "details" && html`<${BillingProfileCard} profile=${data.profile} onChanged=${state.reload} />`}
    ${part === "invoices" && html`<${Invoices} />`}${part === "history" && html`<${BillingHistory} />`}`;
}

/** The state of the subscription, and what can be done about it. */
function Standing({ state, onChanged }) {
  return html`${state.checkout && html`<${OpenCheckout} checkout=${state.checkout} onChanged=${onChanged} />`}
    ${state.status === "past_due" && html`<${Notice} tone="bad" title="The last payment failed.">You keep the plan for 7 days after the paid period, while the payment is retried. If it still fails, the account moves to the free plan; nothing is deleted right away. To pay another way, choose a plan below.<//>`}
    ${state.status === "paused" && html`<${Notice} tone="warn" title="The subscription is paused.">The limits of the free plan apply. Choose a plan below to start a new period.<//>`}
    ${state.status === "agreement" && html`<${Notice}>Your plan is an agreement with the operator of this instance. Ask the operator to change it.<//>`}
    ${(state.status === "active" || state.status === "past_due") && html`<${Subscription} state=${state} onChanged=${onChanged} />`}`;
}

function Subscription({ state, onChanged }) {
  const [asking, setAsking] = useState(null); // "cancel" or "pause"
  const [resume, { busy, error }] = useAction(async () => {
    await call("POST /v1/billing/resume");
    toast("Subscription continued");
    onChanged();
  });
  const why = whyNot("admin") ?? undefined;
  const end = html`<${Time} at=${state.currentPeriodEnd} />`;
  const next = state.cancelAtPeriodEnd ? html`Canceled: the account moves to the free plan on ${end}` : state.pauseAtPeriodEnd ? html`Pauses on ${end}` : html`Renews on ${end}`;
  const facts = [
    ["Plan", `${state.plan}, ${money(state.amount, state.currency)} a ${state.interval} without tax`],
    ["Paid period", html`<${Time} at=${state.currentPeriodStart} /> to ${end}`],
    ["Then", state.pendingPlan ? html`Changes to ${state.pendingPlan.plan}, ${money(state.pendingPlan.amount, state.currency)} a ${state.pendingPlan.interval}, on <${Time} at=${state.pendingPlan.effectiveAt} />` : next],
    state.credit > 0 && ["Credit", `${money(state.credit, state.currency)} for your next invoices`],
  ];
  const ending = state.cancelAtPeriodEnd || state.pauseAtPeriodEnd;
  return html`<${Card} title="Subscription"><div class="stack"><${Facts} items=${facts} /><${ErrorNote} error=${error} />
    <div class="row">${ending ? html`<${Button} kind="primary" why=${why} busy=${busy} onClick=${resume}>Continue the subscription<//>`
      : html`<${Button} icon="pause" why=${why} onClick=${() => setAsking("pause")}>Pause<//><${Button} danger why=${mayCancel()} onClick=${() => setAsking("cancel")}>Cancel subscription<//>`}</div></div>
    ${asking === "cancel" && html`<${Confirm} title="Cancel the subscription?" confirm="Cancel subscription" action=${() => call("POST /v1/billing/cancel")} onClose=${closed(setAsking, onChanged, "The subscription ends after the paid period")}>You keep the plan ${state.plan} until ${end}. Then the account moves to the free plan: nothing is deleted right away, but you can't add anything beyond its limits. Until then you can continue the subscription.<//>`}
    ${asking === "pause" && html`<${Confirm} title="Pause the subscription?" danger=${false} confirm="Pause" action=${() => call("POST /v1/billing/pause")} onClose=${closed(setAsking, onChanged, "The subscription pauses after the paid period")}>You keep the plan ${state.plan} until ${end}. After that you pay nothing and the limits of the free plan apply. A new payment resumes the plan.<//>`}
  <//>`;
}

/** Cancelling is allowed on a suspended account too. */
function mayCancel() {
  const why = whyNot("admin");
  return why?.startsWith("The account is suspended") ? undefined : why ?? undefined;
}

const closed = (setAsking, onChanged, text) => (done) => {
  setAsking(null);
  if (!done) return;
  toast(text);
  onChanged();
};

function OpenCheckout({ checkout, onChanged }) {
  const [abandon, { busy, error }] = useAction(async () => {
    await call("POST /v1/billing/checkout/abandon");
    toast("Order abandoned");
    onChanged();
  });
  const why = whyNot("admin") ?? undefined;
  return html`<${Notice} tone="info" title=${`An order is waiting for payment: ${checkout.plan}, billed ${checkout.interval}ly.`} action=${html`<div class="row"><${Button} why=${why} busy=${busy} onClick=${abandon}>Abandon<//>${payable(checkout.url ?? "") && html`<${Button} kind="primary" icon="external-link" link=${checkout.url} why=${why}>Pay ${money(checkout.amount, checkout.currency)}<//>`}</div>`}>
    Pay by <${Time} at=${checkout.expiresAt} />. Your plan changes when the payment arrives.<${ErrorNote} error=${error} /><//>`;
}
