// The dialogs that create, change, rotate and delete a webhook endpoint, and the button that tests it.
import { call, useAction } from "../core/api.js";
import { go } from "../core/router.js";
import { Button, CheckField, Confirm, Dialog, ErrorNote, fieldError, Form, Notice, SecretDialog, Segments, TextField, Time, toast } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { EVENT_GROUPS, EVENT_TYPES, MAX_CHOSEN } from "./webhook_event_types.js";
import { EndpointOptions, optionFields, optionsOf } from "./webhook_options.js";

/** Return a short text for the event types of an endpoint. */
export const typesInWords = (types) => (types.length === 0 ? "all" : types.length <= 2 ? types.join(", ") : `${types.length} types`);

/** The form of a new endpoint, or of `row`; `onClose` gets the reply, or null. */
export function EndpointForm({ row, onClose }) {
  const [url, setUrl] = useState(row?.url ?? "https://");
  const [description, setDescription] = useState(row?.description ?? "");
  const [all, setAll] = useState(row ? row.eventTypes.length === 0 : true);
  const [types, setTypes] = useState(row?.eventTypes ?? []);
  const [options, setOptions] = useState(optionsOf(row));
  const [active, setActive] = useState(row ? row.status === "active" : true);
  const [save, { busy, error }] = useAction(() => {
    const body = { url: url.trim(), description, eventTypes: all ? [] : types, ...optionFields(options, row) };
    if (!row) return call("POST /v1/webhooks", { body });
    return call("PATCH /v1/webhooks/{id}", { path: { id: row.id }, body: { ...body, status: active ? "active" : "disabled" } });
  });
  const submit = async () => {
    const reply = await save();
    if (reply === undefined) return;
    if (row) toast("Endpoint saved");
    onClose(reply);
  };
  const none = !all && types.length === 0;
  const many = !all && types.length > MAX_CHOSEN ? `Choose at most ${MAX_CHOSEN} types, or choose all events.` : null;
  return html`<${Dialog} title=${row ? "Edit the endpoint" : "Add an endpoint"} wide onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" role="member" busy=${busy} disabled=${none || many} onClick=${submit}>${row ? "Save" : "Add endpoint"}<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="URL" type="url" required autofocus mono value=${url} onValue=${setUrl} error=${fieldError(error, "url")} hint="Receives a POST with JSON for each event. It must respond with 2xx within 10 seconds; redirects aren't followed." />
      <${TextField} label="Description" maxlength="200" value=${description} onValue=${setDescription} error=${fieldError(error, "description")} hint="A note for your team." />
      ${row && html`<${CheckField} label="Active" hint="A disabled endpoint gets no new events. Events already queued are still posted." checked=${active} onChecked=${setActive} />`}
      <${Segments} label="Events" options=${[[true, "All events"], [false, "Chosen events"]]} value=${all} onValue=${setAll} />
    <//>
    ${!all && html`<${TypeChoice} types=${types} onTypes=${setTypes} />`}
    <${EndpointOptions} options=${options} onOptions=${setOptions} error=${error} />
    ${many && html`<${Notice} tone="warn">${many}<//>`}
    <${ErrorNote} error=${error} fields=${["url", "description", "headers"]} />
  <//>`;
}

function TypeChoice({ types, onTypes }) {
  const chosen = new Set(types);
  const set = (type, on) => onTypes(on ? [...types, type] : types.filter((one) => one !== type));
  const unknown = types.filter((type) => !EVENT_TYPES.includes(type));
  const groups = unknown.length ? [...EVENT_GROUPS, ["Unknown in this version", unknown.map((type) => [type, "Matches no event."])]] : EVENT_GROUPS;
  return html`<div class="choices">${groups.map(([name, all]) => html`<fieldset key=${name}><legend>${name}</legend>
    ${all.map(([type, sentence]) => html`<${CheckField} key=${type} label=${html`<code>${type}</code>`} hint=${sentence} checked=${chosen.has(type)} onChecked=${(on) => set(type, on)} />`)}</fieldset>`)}</div>`;
}

/** The question before a new secret, then the secret. */
export function RotateSecret({ row, onClose }) {
  const [reply, setReply] = useState(null);
  const rotate = async () => setReply(await call("POST /v1/webhooks/{id}/rotate", { path: { id: row.id } }));
  if (reply) {
    return html`<${SecretDialog} title="New signing secret" secret=${reply.signingSecret} onClose=${onClose}>
      <p>Until <${Time} at=${reply.previousUntil} /> each post has two signatures: <code>Service-Signature</code> with the new secret and <code>Service-Signature-Previous</code> with the previous one. <code>webhook-signature</code>, if chosen, has both. Update the secret in your application before then.</p><//>`;
  }
  return html`<${Confirm} title="Rotate the signing secret?" danger=${false} confirm="Rotate secret" action=${rotate} onClose=${(done) => { if (!done) onClose(); }}>
    <p>Posts to <span class="wrap">${row.url}</span> are signed with a new secret. For 24 hours, a second header is signed with the previous one, so nothing fails while you switch.</p><//>`;
}

/** The question before an endpoint is deleted. */
export function DeleteEndpoint({ row, onClose }) {
  const done = (deleted) => {
    if (deleted) toast("Endpoint deleted");
    onClose(deleted);
  };
  return html`<${Confirm} title="Delete the endpoint?" confirm="Delete endpoint" action=${() => call("DELETE /v1/webhooks/{id}", { path: { id: row.id } })} onClose=${done}>
    <p><span class="mono">${row.url}</span> gets no more events. Posts already queued are still sent. To pause it, disable it instead.</p><//>`;
}

/** The button that posts a test event to an endpoint. */
export function TestButton({ row, onDone }) {
  const [test, { busy }] = useAction(() => call("POST /v1/webhooks/{id}/test", { path: { id: row.id } }));
  const send = async () => {
    const reply = await test();
    if (reply === undefined) toast("The test event couldn't be sent. Try again.", { tone: "bad" });
    else if (onDone) onDone(reply);
    else go(`/webhooks/${row.id}`, { query: { delivery: reply.id } });
  };
  return html`<${Button} icon="play" role="member" busy=${busy} onClick=${send}>Send a test<//>`;
}
