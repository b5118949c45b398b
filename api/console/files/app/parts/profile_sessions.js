// The person's sessions on all devices.
import { call, CONSOLE, forgetPerson, setSession, usePages } from "../core/api.js";
import { Button, Chip, Confirm, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { deviceOf } from "./devices.js";

const METHODS = { password: "password", passkey: "passkey", identity: "identity provider", link: "one-time link", totp: "code", recovery: "recovery code" };
const methodWords = (method) => method.split("+").map((part) => METHODS[part] ?? part.replaceAll("_", " ")).join(" and ");

/** Forget the session in the browser, and load the sign-in page as a new document. */
export function leaveConsole() {
  setSession(null);
  forgetPerson();
  window.location.assign(`${CONSOLE}/sign-in`);
}

/** The part "Sessions". */
export function Sessions() {
  const state = usePages("GET /v1/auth/sessions", {}, { pollMs: true });
  const [ending, setEnding] = useState(null); // a session, or "others"
  const { rows } = state;
  const columns = [
    { title: "Device", cell: (row) => html`<span class="row"><span class="strong" title=${row.userAgent}>${deviceOf(row.userAgent)}</span>${row.current && html`<${Chip} tone="good">this one<//>`}</span>` },
    { title: "Signed in with", cell: (row) => methodWords(row.method) },
    { title: "Address", cell: (row) => html`<code>${row.ipAddress}</code>` },
    { title: "Account", cell: (row) => row.accountName },
    { title: "Signed in", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Last used", cell: (row) => html`<${Time} at=${row.lastUsedAt} relative />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} danger onClick=${() => setEnding(row)} aria-label=${`End the session ${deviceOf(row.userAgent)}`}>End<//>` },
  ];
  return html`<div class="stack-tight"><div class="row-wide"><p class="soft">A session expires 7 days after its last use, and at most 30 days after sign-in.</p>
      <${Button} why=${rows.length < 2 ? "This is your only session." : undefined} onClick=${() => setEnding("others")}>Sign out other devices<//></div>
    <${Table} label="Sessions" columns=${columns} state=${state} />
    ${ending === "others" && html`<${Confirm} title="Sign out on all other devices?" confirm="Sign out other devices" action=${() => call("POST /v1/auth/sessions/revoke-others")} onClose=${closed("Signed out on other devices", setEnding, state)}>All other devices must sign in again. This one stays signed in.<//>`}
    ${ending?.id && html`<${Confirm} title=${ending.current ? "End this session?" : `End the session ${deviceOf(ending.userAgent)}?`} confirm="End session" action=${() => call("DELETE /v1/auth/sessions/{id}", { path: { id: ending.id } })}
      onClose=${ending.current ? (done) => (done ? leaveConsole() : setEnding(null)) : closed("Session ended", setEnding, state)}>${ending.current ? "You are signed out of this browser." : `It was used from ${ending.ipAddress}. The device must sign in again.`}<//>`}
  </div>`;
}

const closed = (text, setEnding, state) => (done) => {
  setEnding(null);
  if (!done) return;
  toast(text);
  state.reload();
};
