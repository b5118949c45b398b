// The attachments of a received mail.
import { download } from "../core/api.js";
import { Button, Card, Chip, Icon, toast } from "../core/ui.js";
import { bytes, html, plural, undirected } from "../core/view.js";

/** The attachments with download; infected ones say why they are blocked. */
export function ReceivedAttachments({ mail }) {
  if (mail.attachments.length === 0) return null;
  return html`<${Card} title=${plural(mail.attachments.length, "attachment")} flush><ul>${mail.attachments.map((one) => html`<li class="attachment row-wide" key=${one.id}>
    <span class="row grow"><${Icon} name="paperclip" /><span class="grow"><span class="wrap strong">${undirected(one.filename) || "unnamed"}</span><br /><span class="small soft wrap">${one.content_type} · ${bytes(one.size_bytes)}${one.cid ? " · shown in the HTML" : ""}</span>
      ${one.scan === "infected" && html`<br /><span class="small bad wrap">Blocked: the virus scanner found ${one.signature ?? "a virus"}.</span>`}</span></span>
    <span class="row"><${Chip}>${one.scan}<//><${Button} kind="quiet" icon="download" label=${`Download ${one.filename || "the attachment"}`} why=${one.scan === "infected" ? "This attachment is infected, so you can't download it." : undefined} onClick=${() => save(mail, one)} /></span></li>`)}</ul><//>`;
}

async function save(mail, attachment) {
  try {
    await download("GET /v1/inbound/messages/{id}/attachments/{attachmentId}", { path: { id: mail.id, attachmentId: attachment.id } }, attachment.filename || attachment.id);
  } catch (error) {
    if (!error.type) throw error;
    toast(error.message, { tone: "bad" });
  }
}
