// The page of one contact.
import { call, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, href } from "../core/router.js";
import { Button, Card, Chip, Confirm, CopyLine, Dialog, ErrorNote, Facts, fieldError, Form, Notice, PageHead, SelectField, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { CONSENT_TEXTS, FieldsEditor, fieldsOf, rowsOf } from "../parts/contact_fields.js";
import { LocaleField } from "../parts/locale_field.js";
import { ReasonChip, reasonText } from "../parts/reason_chip.js";
import { SenderField } from "../parts/sender_field.js";

export function Contact({ id }) {
  const state = useCall("GET /v1/contacts/{id}", { path: { id } }, { pollMs: true });
  const lists = useCall("GET /v1/lists", { query: { limit: 100 } });
  const [open, setOpen] = useState(null); // "delete" or "confirm"
  const contact = state.data;
  const back = ["/contacts", "Contacts"];
  if (!contact) return html`<${PageHead} title="Contact" back=${back} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  const actions = html`${!contact.confirmed && html`<${Button} icon="mail" role="member" onClick=${() => setOpen("confirm")}>Send confirmation link<//>`}<${Button} danger icon="trash-2" role="member" onClick=${() => setOpen("delete")}>Delete contact<//>`;
  return html`<${PageHead} title=${contact.email} lead=${contact.name} back=${back} actions=${actions} />
    <div class="stack">${contact.suppressed && html`<${Suppressed} contact=${contact} />`}
      ${!contact.confirmed && html`<${Notice} tone="warn" title="Not confirmed.">A confirmation link was sent. Broadcasts skip this contact until it is used; then the consent becomes signed up.<//>`}
      <div class="columns"><div class="stack"><${EditContact} key=${contact.id} contact=${contact} onSaved=${state.reload} /></div>
        <div class="stack"><${ConsentCard} contact=${contact} /><${Memberships} contact=${contact} lists=${lists} onChanged=${state.reload} /></div></div></div>
    ${open === "confirm" && html`<${MailConfirmation} contact=${contact} onClose=${() => { setOpen(null); state.reload(); }} />`}
    ${open === "delete" && html`<${Confirm} title=${`Delete ${contact.email}?`} confirm="Delete contact" action=${() => call("DELETE /v1/contacts/{id}", { path: { id } })} onClose=${(done) => { setOpen(null); if (done) { toast(`${contact.email} is deleted`); go("/contacts"); } }}>The contact's fields, consent and list memberships are deleted. Messages already sent stay in the log. ${contact.suppressed ? "The suppression is kept, so a new import can't email the address." : ""}<//>`}`;
}

function Suppressed({ contact }) {
  return html`<${Notice} tone="warn" title="Suppressed:" action=${html`<${Button} to="/suppressions" query=${{ search: contact.email }}>Show the suppression<//>`}><${ReasonChip} reason=${contact.suppressionReason} /> ${reasonText(contact.suppressionReason)}<//>`;
}

function ConsentCard({ contact }) {
  const by = contact.consentBy;
  const who = by?.startsWith("key_") ? html`<a href=${href("/api-keys")}>API key ${by}</a>` : by?.startsWith("usr_") ? html`<a href=${href("/team")}>Member ${by}</a>` : by;
  return html`<${Card} title="Consent"><${Facts} items=${[
    ["Consent", html`<${Chip} tone="">${contact.consent}<//> <span class="small soft">${CONSENT_TEXTS[contact.consent]}</span>`],
    ["Given", html`<${Time} at=${contact.consentAt} />`],
    ["Recorded by", who],
    ["Confirmed by email", contact.confirmed ? "Not needed, or done" : "Waiting for confirmation"],
    ["Created", html`<${Time} at=${contact.createdAt} />`],
    ["Changed", html`<${Time} at=${contact.updatedAt} />`],
    ["Id", html`<${CopyLine} text=${contact.id} />`],
    ["Messages", html`<a href=${href("/messages", { recipient: contact.email })}>Messages to this address</a>`],
  ]} /><//>`;
}

function EditContact({ contact, onSaved }) {
  const [draft, setDraft] = useState(null); // {name, rows} once changed
  const shown = draft ?? { name: contact.name ?? "", rows: rowsOf(contact.fields) };
  useEffect(() => (draft ? guardLeaving("This contact has unsaved changes. Leave and discard them?") : undefined), [Boolean(draft)]);
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/contacts/{id}", { path: { id: contact.id }, body: { name: shown.name.trim() || null, fields: changes(contact.fields, fieldsOf(shown.rows)) } }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    await onSaved();
    setDraft(null);
    toast("Contact saved");
  };
  return html`<${Card} title="Name and fields"><${Form} onSubmit=${submit}>
    <${TextField} label="Name" maxlength="320" value=${shown.name} onValue=${(name) => setDraft({ ...shown, name })} error=${fieldError(error, "name")} />
    <${FieldsEditor} rows=${shown.rows} onRows=${(rows) => setDraft({ ...shown, rows })} />
    <${ErrorNote} error=${error} fields=${["name"]} />
    <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${busy} disabled=${!draft}>Save<//>${draft && html`<${Button} onClick=${() => setDraft(null)}>Discard changes<//>`}</div><//><//>`;
}

/** Return the fields to set, with null for those that were removed. */
function changes(before, after) {
  const removed = Object.keys(before).filter((name) => !(name in after)).map((name) => [name, null]);
  return { ...Object.fromEntries(removed), ...after };
}

function Memberships({ contact, lists, onChanged }) {
  const all = lists.data?.data ?? [];
  const others = all.filter((one) => !contact.lists.includes(one.id));
  const [chosen, setChosen] = useState("");
  const [change, { busy, error }] = useAction(async (operation, list) => {
    if (operation === "add") await call("POST /v1/lists/{id}/members", { path: { id: list }, body: { contacts: [contact.id] } });
    else await call("DELETE /v1/lists/{id}/members/{contactId}", { path: { id: list, contactId: contact.id } });
    await onChanged();
    setChosen("");
  });
  const name = (id) => all.find((one) => one.id === id)?.name ?? id;
  return html`<${Card} title="Lists"><div class="stack-tight">
    ${contact.lists.length === 0 && html`<p class="soft">This contact isn't on any list.</p>`}
    <ul class="stack-tight">${contact.lists.map((id) => html`<li class="row-wide" key=${id}><a href=${href(`/lists/${id}`)}>${name(id)}</a>${contact.optedOutOf.includes(id) && html`<${Chip} tone="warn">opted out<//>`}<${Button} kind="quiet" icon="x" role="member" label=${`Remove from ${name(id)}`} onClick=${() => change("remove", id)} /></li>`)}</ul>
    ${others.length > 0 && html`<div class="row"><div class="grow"><${SelectField} label="List to add" hideLabel value=${chosen} onValue=${setChosen} options=${[["", "Choose a list"], ...others.map((one) => [one.id, one.name])]} /></div><${Button} role="member" busy=${busy} disabled=${!chosen} onClick=${() => change("add", chosen)}>Add to list<//></div>`}
    <${ErrorNote} error=${error} /></div><//>`;
}

function MailConfirmation({ contact, onClose }) {
  const [from, setFrom] = useState("");
  const [locale, setLocale] = useState("en");
  const [send, { busy, error }] = useAction(() => call("POST /v1/contacts/{id}/confirmation", { path: { id: contact.id }, body: { from, locale } }));
  const submit = async () => {
    if ((await send()) === undefined) return;
    toast(`Confirmation link sent to ${contact.email}`);
    onClose();
  };
  return html`<${Dialog} title="Send another confirmation link" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Send link<//>`}>
    <${Form} onSubmit=${submit}><p>The previous link stops working. You can send a contact at most 5 of these emails, one per minute.</p>
      <${SenderField} value=${from} onValue=${setFrom} error=${fieldError(error, "from")} /><${LocaleField} value=${locale} onValue=${setLocale} /><${ErrorNote} error=${error} fields=${["from"]} /><//><//>`;
}
