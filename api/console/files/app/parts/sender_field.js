// The choice of a From address under a verified domain.
import { useCall } from "../core/api.js";
import { TextField } from "../core/ui.js";
import { html, useEffect, useId } from "../core/view.js";

/** Return the names of the account's verified domains, null until known. */
export function useVerifiedDomains() {
  const { data } = useCall("GET /v1/domains", { query: { limit: 100 } });
  return data ? data.data.filter((one) => one.status === "verified").map((one) => one.name) : null;
}

/** A field for the sender; it offers hello@ each verified domain. */
export function SenderField({ label = "From", value, onValue, error }) {
  const id = useId();
  const domains = useVerifiedDomains();
  useEffect(() => {
    if (domains?.length && !value) onValue(`hello@${domains[0]}`);
  }, [domains?.join()]);
  return html`<${TextField} label=${label} required list=${id} value=${value} onValue=${onValue} error=${error} hint=${domains?.length === 0 ? "You have no verified domain yet. Add one first." : "An address at a verified domain."} />
    <datalist id=${id}>${(domains ?? []).map((name) => html`<option value=${`hello@${name}`}></option>`)}</datalist>`;
}
