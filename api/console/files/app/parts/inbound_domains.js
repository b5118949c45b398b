// The MX and DKIM records of receiving domains, as the last check found them.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Card, Chip, Empty, ErrorNote, Notice, Skeleton, Time, toast } from "../core/ui.js";
import { html, plural, useState } from "../core/view.js";
import { DnsRecord } from "./dns_record.js";

/** One card for each domain of the account. */
export function InboundDomains() {
  const state = usePages("GET /v1/inbound/domains", {}, { pollMs: true });
  if (state.error && state.rows.length === 0) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (state.rows.length === 0) return state.loading ? html`<${Skeleton} />` : html`<div class="card"><${Empty} icon="globe" title="No domains" action=${html`<${Button} kind="primary" to="/domains">Add a domain<//>`}>Add a domain, verify it, and publish the MX record shown here.<//></div>`;
  return html`<div class="stack"><${ErrorNote} error=${state.error} retry=${state.reload} />${state.rows.map((domain) => html`<${InboundDomain} key=${domain.id} domain=${domain} onChecked=${() => state.reload({ keep: true })} />`)}
    ${state.next && html`<div><${Button} busy=${state.loading} onClick=${state.next}>Show more<//></div>`}</div>`;
}

function InboundDomain({ domain, onChecked }) {
  const [more, setMore] = useState(false);
  const [verify, { busy, error }] = useAction(() => call("POST /v1/inbound/domains/{id}/verify", { path: { id: domain.id } }));
  const check = async () => {
    const found = await verify();
    if (found === undefined) return;
    toast(found.mx.status === "ok" ? `The MX record of ${domain.name} is correct` : `The MX record of ${domain.name} is ${found.mx.status}`, { tone: found.mx.status === "ok" ? "good" : "bad" });
    onChecked();
  };
  const { mx } = domain;
  const actions = html`<${Chip} tone=${domain.receiving ? "good" : "warn"}>${domain.receiving ? "receives" : "does not receive"}<//><${Button} icon="refresh-cw" role="member" busy=${busy} onClick=${check}>Check now<//>`;
  return html`<${Card} title=${domain.name} actions=${actions}><div class="stack-tight">
    ${domain.status !== "verified" && html`<${Notice} tone="warn" action=${html`<${Button} to=${`/domains/${domain.id}`}>Set up<//>`}>This domain isn't verified, so you can't claim addresses at it yet.<//>`}
    ${domain.status === "verified" && !domain.receiving && html`<${Notice} tone="info">${mx.status !== "ok" ? "Publish the MX record below at your DNS provider." : "The MX record is correct, but no address at the domain is enabled. Claim one."}<//>`}
    <${DnsRecord} record=${mx} />
    ${mx.found.length > 0 && mx.status !== "ok" && html`<p class="small soft">If the domain's mailboxes are elsewhere, keep its MX record and receive here at a subdomain, such as in.${domain.name}.</p>`}
    <p class="soft small">${plural(domain.addresses, "address", "addresses")} claimed · checked <${Time} at=${domain.checkedAt} relative /> · <a href=${href(`/domains/${domain.id}`)}>all records of the domain</a></p>
    <${ErrorNote} error=${error} />
    <details onToggle=${(event) => setMore(event.currentTarget.open)}><summary>DKIM records</summary>${more && html`<${DkimRecords} id=${domain.id} />`}</details></div><//>`;
}

function DkimRecords({ id }) {
  const { data, error, reload } = useCall("GET /v1/inbound/domains/{id}", { path: { id } });
  if (!data) return error ? html`<${ErrorNote} error=${error} retry=${reload} />` : html`<${Skeleton} />`;
  return html`<div class="stack-tight details-body">${data.dkim.map((record) => html`<${DnsRecord} key=${record.host} record=${record} />`)}</div>`;
}
