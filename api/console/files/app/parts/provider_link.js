// Where a sign-in at the service's identity provider begins.
import { address, BASE, CONSOLE } from "../core/api.js";

/** Return the address that begins a sign-in at the identity provider, and returns to a page of the console. */
export function providerLink(next) {
  const [, template] = "GET /v1/auth/idp/start".split(" ");
  return BASE.slice(0, -1) + address(template, {}, { returnTo: CONSOLE + (next ?? "/") });
}
