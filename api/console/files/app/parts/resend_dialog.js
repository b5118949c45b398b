// The dialog that sends chosen messages again.
import { call, useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, toast } from "../core/ui.js";
import { html, number, plural, useState } from "../core/view.js";

const MAX_RESEND = 100; // of one request

/** Send messages again, 100 per request, and list those that were refused. */
export function ResendDialog({ ids, onClose }) {
  const [outcome, setOutcome] = useState(null);
  const send = async () => {
    const found = { accepted: 0, duplicates: 0, refused: [] };
    for (let at = 0; at < ids.length; at += MAX_RESEND) {
      const reply = await call("POST /v1/messages/resend", { body: { ids: ids.slice(at, at + MAX_RESEND) } });
      found.accepted += reply.accepted;
      found.refused.push(...reply.data.filter((one) => one.status === "refused"));
    }
    if (found.refused.length === 0) {
      toast(`${plural(found.accepted, "message")} resent`);
      onClose(true);
    } else setOutcome(found);
  };
  const [run, { busy, error }] = useAction(send);
  if (outcome) {
    return html`<${Dialog} title="Some messages were not resent" onClose=${() => onClose(true)} foot=${html`<${Button} kind="primary" onClick=${() => onClose(true)}>Close<//>`}>
      <p>${plural(outcome.accepted, "message")} resent, ${number(outcome.refused.length)} rejected.</p>
      <ul class="stack-tight">${outcome.refused.slice(0, 50).map((one) => html`<li key=${one.index}><code>${one.resentFrom}</code><div class="soft">${one.error.message}</div></li>`)}</ul>
    <//>`;
  }
  const foot = html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${run}>Send again<//>`;
  return html`<${Dialog} title=${`Send ${plural(ids.length, "message")} again?`} onClose=${() => onClose(false)} foot=${foot}>
    <p>Each is sent as a new message to the same recipients, is checked again and counts toward your limits. Messages that are still being sent are rejected.</p>
    <${ErrorNote} error=${error} />
  <//>`;
}
