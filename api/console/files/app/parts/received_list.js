// The list of received mail: rows to open, select and walk through with j and k.
import { href } from "../core/router.js";
import { inField } from "../core/table.js";
import { Button, Chip, ErrorNote, Icon, Skeleton, Time } from "../core/ui.js";
import { classes, html, number, useEffect, useRef, undirected } from "../core/view.js";

/** Return how a person reads the sender: the name, else the address. */
export const senderOf = (mail) => undirected(mail.from?.name) || mail.from?.address || "Unknown sender";

/**
 * Received messages, newest first, below `head`. `chosen`: Set of ids; `onOpen(id, event)` is called when a row is followed; `open` is the
 * id that stands beside the list.
 */
export function ReceivedList({ head, state, open, onOpen, chosen, onChosen, empty }) {
  const body = useRef(null);
  useListKeys(body);
  const { rows, loading, error, next, reload } = state;
  if (error && rows.length === 0) return html`<div class="card card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`;
  if (rows.length === 0) return html`<div class="card">${loading ? html`<div class="card-body"><${Skeleton} lines=${8} /></div>` : empty}</div>`;
  const flip = (id, on) => {
    const copy = new Set(chosen);
    copy[on ? "add" : "delete"](id);
    onChosen(copy);
  };
  return html`<div class="card">${head}${error && html`<div class="card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`}
    <ul class="mail-list" ref=${body} aria-label="Received messages" aria-busy=${loading ? "true" : "false"}>${rows.map((mail) => html`<li key=${mail.id} class=${classes("mail-row", mail.id === open && "current", !mail.read && "unread")}>
      <input type="checkbox" aria-label=${`Select ${mail.subject || "message without a subject"} from ${senderOf(mail)}`} checked=${chosen.has(mail.id)} onChange=${(event) => flip(mail.id, event.currentTarget.checked)} />
      <a class="mail-link" href=${href(`/inbox/${mail.id}`)} aria-current=${mail.id === open ? "true" : undefined} onClick=${(event) => onOpen(mail.id, event)}>
        <span class="row-wide"><span class="grow cut mail-from">${!mail.read && html`<span class="visually-hidden">Unread: </span>`}${senderOf(mail)}</span><span class="small soft"><${Time} at=${mail.receivedAt} relative /></span></span>
        <span class="cut mail-subject">${undirected(mail.subject) || "(no subject)"}</span>
        <span class="cut small soft">${undirected(mail.snippet) || "–"}</span>
        <span class="row mail-marks"><${Chip} tone="">${mail.recipient}<//>${mail.spam && html`<${Chip} tone="warn">spam<//>`}${mail.fallback && html`<${Chip} tone="warn">route failed<//>`}${mail.attachments.length > 0 && html`<span class="small soft row"><${Icon} name="paperclip" size=${13} />${number(mail.attachments.length)}<span class="visually-hidden"> attachments</span></span>`}</span>
      </a></li>`)}</ul>
    ${next && html`<div class="table-foot"><span>${number(rows.length)} shown</span><${Button} busy=${loading} onClick=${next}>Show more<//></div>`}</div>`;
}

/** j and k move the focus over the rows and open nothing; x selects the row with the focus. */
function useListKeys(body) {
  useEffect(() => {
    const press = (event) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || inField(event.target) || document.querySelector("dialog[open]") || !body.current) return;
      const links = [...body.current.querySelectorAll("a.mail-link")];
      const at = links.indexOf(document.activeElement);
      if (event.key === "j" || event.key === "k") {
        const target = links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))];
        target?.focus();
        target?.scrollIntoView({ block: "nearest" });
      } else if (event.key === "x" && at >= 0) {
        links[at].parentElement.querySelector("input").click();
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
