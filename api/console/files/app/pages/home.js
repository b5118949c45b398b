// The first page: first steps until mail flows; then whether it arrives, what needs a person, figures and limits.
import { call, useAction, useCall } from "../core/api.js";
import { go, href } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Card, Chip, ErrorNote, Icon, Meter, PageHead, Skeleton, Time, toast } from "../core/ui.js";
import { html, number, useState, undirected } from "../core/view.js";
import { notices, session } from "../core/api.js";
import { NoticeLine } from "../parts/notices.js";

const DAYS = 30;
const LAST_DAYS = { days: DAYS };
const loadArrival = () => import("../parts/arrival.js");
const loadNumbers = () => import("../parts/message_numbers.js");

export function Home({ service }) {
  const domains = useCall("GET /v1/domains", { query: { limit: 20 } }, { pollMs: true });
  const keys = useCall("GET /v1/api-keys", { query: { limit: 1 } });
  const newest = useCall("GET /v1/messages", { query: { limit: 8 } }, { pollMs: 5000 });
  const known = domains.data && keys.data && newest.data;
  const sent = newest.data?.data.length > 0;
  const error = domains.error ?? keys.error ?? newest.error;
  return html`<${PageHead} title="Home" lead=${`${session.value.account.name}: whether your email arrives, what needs attention, and the last ${DAYS} days.`} actions=${html`<${Button} kind="primary" icon="send" to="/messages/new">Send a message<//>`} />
    <div class="stack">
      <${ErrorNote} error=${error} retry=${() => { domains.reload(); keys.reload(); newest.reload(); }} />
      ${!known && !error && html`<${Skeleton} lines=${6} />`}
      ${known && html`<${FirstSteps} domains=${domains.data.data} keys=${keys.data.data} messages=${newest.data.data} local=${service.local} onSent=${newest.reload} />`}
      <div class="home-top">${known && html`<${Attention} />`}${sent && html`<${Lazy} load=${loadArrival} name="Arrival" />`}</div>
      ${sent && html`<${Lazy} load=${loadNumbers} name="MessageFigures" title=${`Last ${DAYS} days`} query=${LAST_DAYS} />`}
      <div class="columns">
        ${sent && html`<${Newest} rows=${newest.data.data} />`}
        <${Limits} />
      </div>
    </div>`;
}

/** The steps until mail flows; nothing once all are done. */
function FirstSteps({ domains, keys, messages, local, onSent }) {
  const verified = domains.find((one) => one.status === "verified");
  const delivered = messages.find((one) => one.status === "delivered");
  const steps = [
    { done: Boolean(verified), title: "Verify a domain", text: verified ? `${verified.name} is verified: you can send from any address at this domain.` : "Publish a DNS record that proves the domain is yours. Your email is signed with its key.", action: (kind) => html`<${Button} kind=${kind} to="/domains" icon="globe">Set up a domain<//>` },
    { done: messages.length > 0, title: "Send a first message", text: "To your own address, or to a test recipient that accepts everything.", action: verified && ((kind) => html`<${TestMessage} kind=${kind} domain=${verified.name} onSent=${onSent} />`) },
    { done: Boolean(delivered), title: "Watch its waybill", text: "Every step is recorded: accepted, each attempt with the server's reply, delivered.", action: messages[0] && ((kind) => html`<${Button} kind=${kind} to=${`/messages/${messages[0].id}`} icon="route">Open the waybill<//>`) },
    { done: keys.length > 0, title: "Create an API key", text: "Your application sends with a key, over HTTP or SMTP.", action: (kind) => html`<${Button} kind=${kind} to="/api-keys" icon="key">Create a key<//>` },
  ];
  if (steps.every((step) => step.done)) return null;
  const next = steps.findIndex((step) => !step.done);
  return html`<${Card} title="First steps" actions=${html`<span class="soft small">${steps.filter((step) => step.done).length} of ${steps.length} done</span>`}>
    <ol class="stack">${steps.map((step, at) => html`<li class="step" key=${step.title}>
      <span class=${step.done ? "good" : "soft"}><${Icon} name=${step.done ? "circle-check" : "circle"} size=${20} /><span class="visually-hidden">${step.done ? "Done" : "To do"}: </span></span>
      <div class="grow"><h3>${step.title}</h3><p class="soft">${step.text}</p></div>
      ${!step.done && step.action && html`<div>${step.action(at === next ? "primary" : "plain")}</div>`}
    </li>`)}</ol>
    ${local && html`<p class="small soft step-note">Local mode: no email leaves this machine. <a href=${href("/sink")}>The local sink</a> shows what was delivered.</p>`}
  <//>`;
}

/** Sends one message to a recipient that accepts everything, and opens its waybill. */
function TestMessage({ kind, domain, onSent }) {
  const [send, { busy, error }] = useAction(() =>
    call("POST /v1/emails", { body: { from: `hello@${domain}`, to: [session.value.user.email], subject: "Your first message", text: "It works. This message was sent from the console.", tags: ["first-steps"] } }),
  );
  const run = async () => {
    const reply = await send();
    if (!reply) return;
    toast("The message was accepted");
    onSent();
    go(`/messages/${reply.id}`);
  };
  return html`<div class="stack-tight"><${Button} kind=${kind} icon="send" busy=${busy} role="member" onClick=${run}>Send it to ${session.value.user.email}<//><${ErrorNote} error=${error} /></div>`;
}

/** What the bell tells, on the page itself. */
function Attention() {
  const { data } = notices.value;
  if (data.length === 0) return null;
  return html`<div class="attention"><${Card} title="Needs attention"><ul>${data.map((one) => html`<${NoticeLine} key=${one.id} notice=${one} unread />`)}</ul><//></div>`;
}

function Newest({ rows }) {
  return html`<${Card} flush title="Newest messages" actions=${html`<a href=${href("/messages")}>All messages</a>`}>
    <ul>${rows.map((row) => html`<li class="home-line" key=${row.id}><a class="grow cut" href=${href(`/messages/${row.id}`)}>${undirected(row.subject) || "(no subject)"}</a><${Chip}>${row.status}<//><${Time} at=${row.createdAt} relative /></li>`)}</ul>
  <//>`;
}

const NAMES = { daily: "Today", monthly: "This month" };

function Limits() {
  const me = useCall("GET /v1/me", {}, { pollMs: 30_000 });
  const [all, setAll] = useState(false);
  if (me.error) return html`<${ErrorNote} error=${me.error} retry=${me.reload} />`;
  if (!me.data) return html`<${Card} title="Limits"><${Skeleton} /><//>`;
  const { sending, limits, plan } = me.data;
  const meters = [
    [NAMES.daily, sending.sentToday, sending.dailyLimit],
    [NAMES.monthly, sending.sentThisMonth, sending.monthlyLimit],
    ...limits.filter((one) => one.limit !== null && (all || (one.limit > 1 && one.used / one.limit >= 0.5))).map((one) => [one.resource.replaceAll("_", " "), one.used, one.limit]),
  ];
  return html`<${Card} title=${`Limits of the ${plan} plan`} actions=${html`<button type="button" class="link-button small" onClick=${() => setAll(!all)}>${all ? "Show fewer" : "Show all"}</button>`}>
    <div class="stack-tight">${meters.map(([name, used, limit]) => html`<div key=${name}><div class="row-wide small"><span class="capital">${name}</span><span class="numeric soft">${number(used)} of ${number(limit)}</span></div><${Meter} label=${name} value=${used} max=${limit} /></div>`)}</div>
  <//>`;
}
