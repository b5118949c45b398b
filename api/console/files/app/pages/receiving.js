// Receiving: claimed addresses, routes, MX records of domains, MTA-STS policies.
import { go } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { PageHead, Tabs } from "../core/ui.js";
import { html } from "../core/view.js";

const PARTS = {
  __proto__: null,
  addresses: ["Addresses", "Email to a claimed address is received. Everything else at your domains is rejected.", () => import("../parts/inbound_addresses.js"), "InboundAddresses"],
  routes: ["Routes", "A route decides what happens to email for an address or a domain. Without a route, it stays in the inbox.", () => import("../parts/inbound_routes.js"), "InboundRoutes"],
  domains: ["Domains", "You receive email once the domain's MX record points to this instance.", () => import("../parts/inbound_domains.js"), "InboundDomains"],
  "mta-sts": ["MTA-STS", "A policy tells other mail servers to deliver to you over verified TLS only.", () => import("../parts/mta_sts.js"), "MtaSts"],
};

export function Receiving({ part = "addresses", service }) {
  const shown = PARTS[part] ? part : "addresses";
  const [, lead, load, name] = PARTS[shown];
  return html`<${PageHead} title="Addresses and routes" lead=${lead} />
    <${Tabs} label="Receiving" items=${Object.entries(PARTS).map(([key, [text]]) => [key, text])} current=${shown} onSelect=${(key) => go(key === "addresses" ? "/receiving" : `/receiving/${key}`)} />
    <${Lazy} key=${shown} load=${load} name=${name} service=${service} />`;
}
