// The deletion of the account: what it means, when it happens, how to undo it.
import { call, refreshSession, session, useAction, useCall, whyNot } from "../core/api.js";
import { Button, Card, Confirm, ErrorNote, Notice, Time, toast } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { useProven } from "./prove.js";

/** The card that schedules the deletion, or keeps the account. */
export function AccountDeletion() {
  const state = useCall("GET /v1/account/deletion");
  const [asking, setAsking] = useState(false);
  const { account } = session.value;
  const why = session.value.account.status === "suspended" && account.role === "owner" ? undefined : whyNot("owner") ?? undefined;
  const changed = async (text) => {
    await refreshSession();
    state.reload();
    toast(text);
  };
  const [schedule, { error }, dialog] = useProven(async (proof) => {
    await call("POST /v1/account/deletion", { body: proof });
    await changed("The account will be deleted in 14 days");
  });
  const [keep, keeping] = useAction(async () => {
    await call("DELETE /v1/account/deletion");
    await changed("Account kept");
  });
  const { data } = state;
  if (!data) return state.error && html`<${Card} title="Delete the account"><${ErrorNote} error=${state.error} retry=${state.reload} /><//>`;
  return html`<${Card} title="Delete the account"><div class="stack">
    ${data.status === "none" && html`<p>Everything is erased after 14 days: messages, contacts, domains, keys, log and sub-accounts. Until then the account works as usual, and the owner can keep it. The operator keeps invoices as the law requires.</p>
      <div class="row"><${Button} danger icon="trash-2" why=${why} onClick=${() => setAsking(true)}>Delete account<//></div>`}
    ${data.status === "scheduled" && html`<${Notice} tone="warn" title="The account will be deleted.">Requested <${Time} at=${data.requestedAt} />, erased on <strong><${Time} at=${data.scheduledFor} /></strong> (<${Time} at=${data.scheduledFor} relative />). Until then it works as usual.<//>
      <div class="row"><${Button} kind="primary" why=${why} busy=${keeping.busy} onClick=${keep}>Keep the account<//></div>`}
    ${data.status === "erasing" && html`<${Notice} tone="bad" title="The account is being erased.">This can't be undone any more.<//>`}
    <${ErrorNote} error=${error ?? keeping.error} />${dialog}
    ${asking && html`<${Confirm} title=${`Delete the account ${account.name}?`} typed=${account.name} confirm="Delete account" action=${async () => {}} onClose=${(yes) => { setAsking(false); if (yes) schedule(); }}>
      <p>It is erased in 14 days with all its messages, contacts, domains, keys and sub-accounts. Nobody can restore it after that. Until then, an owner can cancel the deletion here.</p><//>`}
  </div><//>`;
}
