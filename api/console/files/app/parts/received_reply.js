// The form that answers a received mail.
import { call, useAction } from "../core/api.js";
import { guardLeaving } from "../core/router.js";
import { Button, Dialog, ErrorNote, fieldError, Form, Notice, SelectField, TextField } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { useVerifiedDomains } from "./sender_field.js";

const quoted = (mail) => (mail.text ?? "").split("\n").slice(0, 200).map((line) => `> ${line}`).join("\n");
const answered = (subject) => (/^(re|aw|sv):/i.test(subject) ? subject : `Re: ${subject}`);

/** Write and send an answer; `onClose(true)` after it was accepted. */
export function Reply({ mail, onClose }) {
  const to = mail.replyTo?.address ?? mail.from?.address ?? "";
  const own = mail.recipient.replace(/\+[^@]*@/, "@");
  const [draft, setDraft] = useState({ from: own, to, subject: answered(mail.subject), text: "", quote: true });
  const domains = useVerifiedDomains();
  const set = (change) => setDraft((old) => ({ ...old, ...change }));
  useEffect(() => (draft.text ? guardLeaving("This reply wasn't sent. Leave and discard it?") : undefined), [Boolean(draft.text)]);
  const text = draft.quote && mail.text ? `${draft.text}\n\n${senderLine(mail)}\n${quoted(mail)}\n` : draft.text;
  const [send, { busy, error }] = useAction(() => call("POST /v1/inbound/messages/{id}/reply", { path: { id: mail.id }, body: { from: draft.from, to: draft.to, subject: draft.subject, text } }));
  const submit = async () => { if ((await send()) !== undefined) onClose(true); };
  const close = () => { if (!draft.text || window.confirm("Discard the reply?")) onClose(false); };
  const foreign = domains && !domains.some((name) => draft.from.toLowerCase().endsWith(`@${name}`));
  return html`<${Dialog} wide title=${`Reply to ${mail.from?.name ?? to}`} onClose=${close} foot=${html`<${Button} onClick=${close}>Cancel<//><${Button} kind="primary" icon="send" role="member" busy=${busy} disabled=${!draft.text.trim()} onClick=${submit}>Send reply<//>`}>
    <${Form} onSubmit=${submit} style=${{ maxWidth: "none" }}>
      <div class="columns"><${TextField} label="From" type="email" required value=${draft.from} onValue=${(from) => set({ from })} error=${fieldError(error, "from")} /><${TextField} label="To" type="email" required value=${draft.to} onValue=${(value) => set({ to: value })} error=${fieldError(error, "to")} /></div>
      ${foreign && html`<${Notice} tone="warn">${draft.from} isn't at a verified domain, so it can't send. Use ${domains.length ? `an address under ${domains.join(" or ")}` : "a domain after you have verified it"}.<//>`}
      <${TextField} label="Subject" value=${draft.subject} onValue=${(subject) => set({ subject })} error=${fieldError(error, "subject")} />
      <${TextField} label="Text" rows="10" autofocus value=${draft.text} onValue=${(value) => set({ text: value })} error=${fieldError(error, "text")} />
      ${mail.text && html`<${SelectField} label="Original message" value=${draft.quote ? "yes" : "no"} onValue=${(value) => set({ quote: value === "yes" })} options=${[["yes", "Quote it below the reply"], ["no", "Leave it out"]]} />`}
      <${ErrorNote} error=${error} fields=${["from", "to", "subject", "text"]} />
    <//><//>`;
}

const senderLine = (mail) => `On ${new Date(mail.receivedAt).toUTCString()}, ${mail.from?.name ?? mail.from?.address ?? "you"} wrote:`;
