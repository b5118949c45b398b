// One delivery of a webhook: the exact request and answer of each attempt.
import { call, useAction, useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Card, Chip, Code, CopyLine, ErrorNote, Facts, Notice, Skeleton, Time, toast } from "../core/ui.js";
import { duration, html, plural, undirected, useEffect, useState } from "../core/view.js";
import { SignatureChecker } from "./signature_checker.js";
import { DeliveryChip } from "./webhook_health.js";

const PENDING_POLL_MS = 2000;
const SIGNATURE = "Service-Signature";

/** The card of a delivery; polls until it has ended. */
export function DeliveryDetail({ endpoint, id, onReplayed, onClose }) {
  const [pending, setPending] = useState(true);
  const { data, error, reload } = useCall("GET /v1/webhooks/{id}/deliveries/{event}", { path: { id: endpoint.id, event: id } }, { pollMs: pending ? PENDING_POLL_MS : true });
  useEffect(() => { if (data) setPending(data.delivery.state === "pending"); }, [data]);
  const [replay, state] = useAction(() => call("POST /v1/webhooks/deliveries/{id}/replay", { path: { id }, body: { webhookId: endpoint.id } }));
  const [checking, setChecking] = useState(null);
  const again = async () => {
    if ((await replay()) === undefined) return;
    toast("Queued again");
    reload();
    onReplayed();
  };
  const close = html`<${Button} kind="quiet" icon="x" label="Close the delivery" onClick=${onClose} />`;
  if (!data) return html`<${Card} title="Delivery" actions=${close}>${error ? html`<${ErrorNote} error=${error} retry=${reload} />` : html`<${Skeleton} lines=${8} />`}<//>`;
  const { delivery, body, exchanges } = data;
  const actions = html`<${Button} icon="rotate-ccw" role="member" busy=${state.busy} onClick=${again}>Replay<//>${close}`;
  return html`<${Card} title=${delivery.type ?? "Delivery"} actions=${actions}><div class="stack">
    <${ErrorNote} error=${state.error} />
    <${Facts} items=${[
      ["State", html`<${DeliveryChip} delivery=${delivery} />`],
      ["Delivery id", html`<${CopyLine} text=${delivery.id} />`],
      ["Event", html`<${Time} at=${delivery.createdAt} />`],
      delivery.recipient && ["Recipient", html`<span class="wrap">${delivery.recipient}</span>`],
      delivery.subject !== null && ["Subject", html`<span class="wrap">${undirected(delivery.subject) || "(no subject)"}</span>`],
      delivery.messageId && ["Message", html`<a href=${href(`/messages/${delivery.messageId}`)}>Open its waybill</a>`],
      delivery.nextAttemptAt && ["Next try", html`<${Time} at=${delivery.nextAttemptAt} relative />`],
      delivery.error && ["Last error", html`<span class="bad">${delivery.error}</span>`],
    ]} />
    ${body === null ? html`<${Notice} tone="warn">The event is older than your plan's retention, so its body can't be shown.<//>` : html`<section class="stack-tight"><div class="row-wide"><h3>Body of every attempt</h3><span class="soft small">${plural(new TextEncoder().encode(body).length, "byte")}, indented here, copied as posted</span></div><${Code} text=${indented(body)} copied=${body} label="Body as posted" /></section>`}
    ${exchanges.length === 0 && html`<p class="soft">No attempt has been made yet.</p>`}
    ${[...exchanges].reverse().map((one) => html`<${Attempt} key=${`${one.attempt} ${one.url}`} exchange=${one} attempt=${delivery.attempts.findLast((other) => other.attempt === one.attempt)} onCheck=${body !== null && (() => setChecking({ header: headerOf(one), body }))} />`)}
  </div><//>
  ${checking && html`<${SignatureChecker} header=${checking.header} body=${checking.body} onClose=${() => setChecking(null)} />`}`;
}

/** Return a body with one field per line; a body that is no JSON as it is. */
function indented(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

const headerOf = (exchange) => exchange.requestHeaders?.find((one) => one.name === SIGNATURE)?.value ?? "";

function Attempt({ exchange, attempt, onCheck }) {
  const { url, requestHeaders, answerHeaders, answer, statusCode } = exchange;
  return html`<section class="stack-tight domain-record"><div class="row-wide"><h3>Attempt ${exchange.attempt}</h3>
      <span class="row"><span class="soft small">${attempt && html`<${Time} at=${attempt.at} />`}${attempt?.milliseconds != null && `, ${duration(attempt.milliseconds)}`}</span>${statusCode === null ? html`<${Chip} tone="bad">no response<//>` : html`<${Chip} tone=${statusCode < 300 ? "good" : "bad"}>${String(statusCode)}<//>`}</span></div>
    ${attempt?.error && html`<p class="bad">${attempt.error}</p>`}
    ${requestHeaders === null ? html`<p class="soft small">The request of this attempt wasn't recorded.</p>` : html`<div class="row-wide"><span class="label soft small">Request</span>${onCheck && html`<${Button} kind="quiet" icon="shield-check" onClick=${onCheck}>Check the signature<//>`}</div><${Code} text=${`POST ${url}\n${lines(requestHeaders)}`} label=${`Request of attempt ${exchange.attempt}`} />`}
    ${statusCode !== null && html`<span class="label soft small">Response</span><${Code} text=${[`HTTP ${statusCode}`, answerHeaders && lines(answerHeaders), answer ? `\n${answer}` : answer === "" ? "\n(empty body)" : null].filter((one) => one !== null).join("\n")} label=${`Answer to attempt ${exchange.attempt}`} />`}
  </section>`;
}

const lines = (headers) => headers.map((one) => `${one.name}: ${one.value}`).join("\n");
