// Receiving: claimed addresses, routes, MX records of domains, MTA-STS policies.
import { go } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { PageHead, Tabs } from "../core/ui.js";
import { html } from "../core/view.js";

const PARTS = {
  __proto__: null,
  addresses: ["Addresses", "Mail to a claimed address is received; anything else under your domains is refused.", () => import("../parts/inbound_addresses.js"), "InboundAddresses"],
  routes: ["Routes", "A route decides what happens with mail to an address or a domain. Mail without a route stays in the mailbox.", () => import("../parts/inbound_routes.js"), "InboundRoutes"],
  domains: ["Domains", "Mail arrives once the MX record of a domain names this service.", () => import("../parts/inbound_domains.js"), "InboundDomains"],
  "mta-sts": ["MTA-STS", "A policy tells other servers to deliver to you over verified TLS only.", () => import("../parts/mta_sts.js"), "MtaSts"],
};

export function Receiving({ part = "addresses", service }) {
  const shown = PARTS[part] ? part : "addresses";
  const [, lead, load, name] = PARTS[shown];
  return html`<${PageHead} title="Addresses and routes" lead=${lead} />
    <${Tabs} label="Receiving" items=${Object.entries(PARTS).map(([key, [text]]) => [key, text])} current=${shown} onSelect=${(key) => go(key === "addresses" ? "/receiving" : `/receiving/${key}`)} />
    <${Lazy} key=${shown} load=${load} name=${name} service=${service} />`;
}
