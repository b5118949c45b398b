// Names of the limits that plans have, and how a limit and its use are shown.
import { Meter } from "../core/ui.js";
import { html, number } from "../core/view.js";

/** The names of the resources of plans, as `GET /v1/me` and `plan_limit_reached` errors give them. */
export const RESOURCES = {
  api_keys: "API keys",
  domains: "Domains",
  streams: "Streams",
  templates: "Templates",
  layouts: "Layouts",
  webhooks: "Webhooks",
  seats: "Seats",
  sub_accounts: "Sub-accounts",
  scheduled_messages: "Scheduled",
  inbound_addresses: "Inbound addresses",
  received_messages: "Received messages",
  contacts: "Contacts",
  lists: "Lists",
  segments: "Segments",
  verifications: "Codes",
  address_checks: "Address checks",
};

/** Return the name of a resource for people. */
export const resourceName = (resource) => RESOURCES[resource] ?? resource.replaceAll("_", " ");

/** A limit with its use and a bar: `limit` null is unlimited. */
export function CapMeter({ label, used, limit, note }) {
  return html`<div class="cap"><div class="row-wide"><span>${label}</span><span class="numeric soft small">${number(used)}${limit === null ? "" : ` of ${number(limit)}`}</span></div>
    ${limit === null ? html`<span class="soft small">No limit on this plan</span>` : limit === 0 ? html`<span class="soft small">Not included in this plan</span>` : html`<${Meter} label=${label} value=${used} max=${limit} />`}
    ${note && html`<span class="soft small">${note}</span>`}</div>`;
}
