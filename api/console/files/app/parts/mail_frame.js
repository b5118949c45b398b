// The HTML of a mail, drawn in a sandboxed frame with an origin of its own (/console-frame).
import { BASE } from "../core/api.js";
import { Button, Dialog, Notice } from "../core/ui.js";
import { classes, html, useEffect, useRef, useState } from "../core/view.js";

const MIN_HEIGHT = 120;
const MAX_HEIGHT = 20_000;
// Shown as the browser reads it: other scripts in the name of a host as punycode, directions of writing escaped.
const OPENED = /^(https?|mailto):/i;

/**
 * The mail `html` in a frame: `title` names it, `dark` asks for dark colours where mail programs would use them,
 * `width` in px narrows it (null: all), `remote` allows pictures of other hosts. A link shows its address before it is
 * opened.
 */
export function MailFrame({ html: content, title, dark = false, remote = false, width = null }) {
  const frame = useRef(null);
  const [height, setHeight] = useState(MIN_HEIGHT);
  const [onDark, setOnDark] = useState(dark);
  const [link, setLink] = useState(null);
  const sent = useRef({});
  sent.current = { html: content ?? "", dark };
  const post = () => frame.current?.contentWindow?.postMessage(sent.current, "*"); // its origin is opaque: no name to aim at
  useEffect(() => {
    const hear = (event) => {
      if (event.source !== frame.current?.contentWindow || event.data === null || typeof event.data !== "object") return;
      const { kind } = event.data;
      if (kind === "ready") post();
      else if (kind === "height") {
        setHeight(Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, Number(event.data.height) || 0)));
        setOnDark(event.data.dark === true);
      }
      else if (kind === "link" && event.data.href) setLink({ href: String(event.data.href).slice(0, 4000), text: String(event.data.text ?? "") });
    };
    addEventListener("message", hear);
    return () => removeEventListener("message", hear);
  }, []);
  useEffect(post, [content, dark]);
  const address = `${BASE}console-frame${remote ? "/remote-images" : ""}`;
  return html`<iframe key=${address} ref=${frame} class=${classes("mail-frame", onDark && "dark")} title=${title} src=${address} sandbox="allow-scripts" referrerpolicy="no-referrer" style=${{ height: `${height}px`, maxWidth: width ? `${width}px` : "none" }}></iframe>
    ${link && html`<${LinkDialog} ...${link} onClose=${() => setLink(null)} />`}`;
}

/** Shows where a link leads, before it is opened. */
function LinkDialog({ href, text, onClose }) {
  const url = OPENED.test(href) && URL.canParse(href) ? new URL(href) : null;
  const known = url !== null;
  const foot = html`<${Button} onClick=${onClose}>Close<//>${known && html`<${Button} kind="primary" icon="external-link" link=${url.href} target="_blank" rel="noopener noreferrer" onClick=${onClose}>Open<//>`}`;
  return html`<${Dialog} title="Open this link?" onClose=${onClose} foot=${foot}>
    ${text && html`<p>Text: <strong class="wrap">${text}</strong></p>`}
    <p class="mono"><bdi>${url?.href ?? href}</bdi></p>
    ${url?.host && (url.username || url.href !== href) && html`<p>Host: <strong class="wrap">${url.host}</strong></p>`}
    ${!known && html`<${Notice} tone="warn">You can open only links to web pages and email addresses from here.<//>`}
    ${known && misleading(href, text) && html`<${Notice} tone="warn">The link's text shows a different host from the one it opens.<//>`}
  <//>`;
}

/** Return true if the text of a link looks like an address of another host. */
export function misleading(href, text) {
  const named = /(?:https?:\/\/)?((?:[\w-]+\.)+[a-z]{2,})/i.exec(text);
  if (!named) return false;
  try {
    const { hostname } = new URL(href);
    const shown = named[1].toLowerCase();
    return hostname !== shown && !hostname.endsWith(`.${shown}`);
  } catch {
    return false;
  }
}
