// The list behind the bell: what needs a person, with a link to where it is solved.
import { call, notices, useAction } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, Dialog, Empty, ErrorNote, Icon, Time } from "../core/ui.js";
import { html, shortUrl, useEffect, useRef } from "../core/view.js";

const PLACES = { whk: "/webhooks/", dom: "/domains/", brd: "/broadcasts/" };
const PAGES = { alert_firing: "/alerts", agent_sends_waiting: "/approvals" };
const ICONS = { bad: "circle-alert", warn: "triangle-alert", info: "info" };
const WORDS = { bad: "Urgent", warn: "Warning", info: "For information" };

/** Return the page where a notice is solved. */
export function placeOf({ objectId, kind }) {
  const place = PLACES[objectId?.split("_")[0]];
  if (place) return place + objectId;
  return PAGES[kind] ?? "/billing";
}

/** One notice: its sentence as a link; `children` stand at its end. */
export function NoticeLine({ notice, unread, onOpen, children }) {
  return html`<li class="notice-line"><span class=${{ bad: "bad", warn: "warn", info: "soft" }[notice.severity]}><${Icon} name=${ICONS[notice.severity]} /><span class="visually-hidden">${WORDS[notice.severity]}: </span></span>
    <div class="grow"><a class=${unread ? "plain strong wrap" : "plain wrap"} title=${notice.message} href=${href(placeOf(notice))} onClick=${onOpen}>${notice.message.replace(/https?:\/\/\S+/, (url) => shortUrl(url))}</a>${notice.since && html`<div class="small soft"><${Time} at=${notice.since} relative /></div>`}</div>${children}</li>`;
}

/** The dialog of the bell. What it shows counts as seen; those that were unread stay bold while it is open. */
export function Notices({ onClose }) {
  const { data } = notices.value;
  const unread = useRef(new Set(data.filter((one) => one.unread).map((one) => one.id)));
  const [mark, { error }] = useAction((ids, how) => call("POST /v1/notices/marks", { body: { ids, mark: how } }));
  const send = async (ids, how) => {
    const reply = await mark(ids, how);
    if (reply !== undefined) notices.value = reply;
  };
  useEffect(() => { if (unread.current.size) send([...unread.current], "seen"); }, []);
  return html`<${Dialog} title="Notices" onClose=${onClose} foot=${html`${data.length > 1 && html`<${Button} onClick=${() => send(data.map((one) => one.id), "dismissed")}>Dismiss all<//>`}<${Button} onClick=${onClose}>Close<//>`}>
    <${ErrorNote} error=${error} />
    ${data.length === 0 ? html`<${Empty} icon="circle-check" title="Nothing needs you">Alerts that fire, failing webhooks, domains that are no longer verified, broadcasts and emails that wait for approval, and limits appear here.<//>` : html`<ul aria-label="Notices">${data.map((one) => html`<${NoticeLine} key=${one.id} notice=${one} unread=${unread.current.has(one.id)} onOpen=${onClose}><${Button} kind="quiet" icon="x" label=${`Dismiss: ${one.message}`} onClick=${() => send([one.id], "dismissed")} /><//>`)}</ul>`}
  <//>`;
}
