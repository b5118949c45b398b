// The roles of an account, what each may do, and the field that chooses one.
import { session } from "../core/api.js";
import { SelectField } from "../core/ui.js";
import { html } from "../core/view.js";

const ROLES = [["member", "Member"], ["admin", "Admin"], ["owner", "Owner"]];
const MAY = {
  member: "Reads everything, sends email, and works with templates, contacts and streams.",
  admin: "Also manages keys, domains, webhooks, people and billing.",
  owner: "Also deletes the account and transfers it.",
};

/** A selection of a role; only owners can make owners. */
export function RoleField({ value, onValue, ...rest }) {
  const offered = session.value.account.role === "owner" ? ROLES : ROLES.slice(0, 2);
  return html`<${SelectField} label="Role" value=${value} onValue=${onValue} options=${offered} hint=${MAY[value]} ...${rest} />`;
}
