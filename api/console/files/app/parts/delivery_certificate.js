// The dialog with a message's delivery certificate: what it proves, and its downloads.
import { BASE, download, useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, toast } from "../core/ui.js";
import { html } from "../core/view.js";

const OPERATION = "GET /v1/messages/{id}/certificate";

export function DeliveryCertificate({ id, onClose }) {
  const [save, { busy, error }] = useAction(async (format) => {
    await download(OPERATION, { path: { id }, query: { format } }, `${id}-certificate.${format}`);
    return format;
  });
  const take = async (format) => {
    if (await save(format)) toast("Certificate downloaded");
  };
  return html`<${Dialog} title="Delivery certificate" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Close<//><${Button} icon="download" busy=${busy} onClick=${() => take("json")}>Download JSON<//><${Button} kind="primary" icon="download" busy=${busy} onClick=${() => take("pdf")}>Download PDF<//>`}>
    <p>A signed statement about this message. Anyone can verify it, without this service and after the message is deleted.</p>
    <p><b>It proves</b> that this service handled the message with this content, and what the recipients' mail servers replied.</p>
    <p><b>It doesn't prove</b> that someone read the message, or that it reached the inbox and not the spam folder.</p>
    <p class="small soft">Addresses are in it as salted digests. The PDF also shows them in clear. <a href="${BASE}docs/certificates" target="_blank" rel="noopener">How to verify a certificate</a></p>
    <${ErrorNote} error=${error} />
  <//>`;
}
