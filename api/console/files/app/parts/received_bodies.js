// The HTML and the source of a received mail.
import { call } from "../core/api.js";
import { isDark, Lazy } from "../core/shell.js";
import { Code, ErrorNote, Notice, Skeleton } from "../core/ui.js";
import { bytes, html, useEffect, useState } from "../core/view.js";

const MAX_PICTURE_BYTES = 2_000_000;
const MAX_PICTURES = 20;
const MAX_SHOWN_SOURCE = 200_000; // characters
const SOURCE = /"cid:([^"]*)"/gi; // the sanitised HTML quotes attributes with "
const frame = () => import("./mail_frame.js");

/** The sanitised HTML in the sandboxed frame, with the pictures that the mail itself carries. */
export function ReceivedHtml({ mail }) {
  const markup = usePictures(mail);
  return html`<div class="stack-tight"><${Lazy} load=${frame} name="MailFrame" html=${markup} title=${`HTML of ${mail.subject || "the mail"}`} dark=${isDark()} remote=${false} width=${null} />
    <p class="small soft">Remote images were removed, so the sender can't see that you opened this message. The source shows their addresses.</p></div>`;
}

/** Return the HTML with `cid:` sources replaced by the pictures of the mail, once they are read. */
function usePictures(mail) {
  const [markup, setMarkup] = useState(mail.html);
  useEffect(() => {
    let wanted = true;
    setMarkup(mail.html);
    withPictures(mail).then((full) => { if (wanted) setMarkup(full); });
    return () => { wanted = false; };
  }, [mail.id, mail.html]);
  return markup;
}

async function withPictures(mail) {
  const wanted = new Set([...mail.html.matchAll(SOURCE)].flatMap(([, source]) => contentIds(source)));
  const used = mail.attachments.filter((one) => one.cid && one.scan !== "infected" && one.size_bytes <= MAX_PICTURE_BYTES && /^image\/(png|jpeg|gif|webp)$/.test(one.content_type) && wanted.has(one.cid));
  const addresses = new Map();
  for (const one of used.slice(0, MAX_PICTURES)) {
    try {
      const answer = await call("GET /v1/inbound/messages/{id}/attachments/{attachmentId}", { path: { id: mail.id, attachmentId: one.id }, raw: true, accept: "*/*" });
      addresses.set(one.cid, await dataAddress(new Blob([await answer.arrayBuffer()], { type: one.content_type })));
    } catch (error) {
      if (!error.type) throw error; // a picture that can't be read is left out
    }
  }
  return mail.html.replace(SOURCE, (whole, source) => {
    const id = contentIds(source).find((one) => addresses.has(one));
    return id === undefined ? whole : `"${addresses.get(id)}"`;
  });
}

/** Return the Content-IDs that a `cid:` URL in an attribute may name: percent-decoded (RFC 2392), and as written. */
function contentIds(source) {
  const id = source.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&quot;", '"').replaceAll("&amp;", "&");
  try {
    return [decodeURIComponent(id), id];
  } catch {
    return [id]; // a percent sign that encodes nothing
  }
}

function dataAddress(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

/** The source of a mail as it came, up to a bound. */
export function ReceivedSource({ id }) {
  const [state, setState] = useState({ text: null, size: 0, error: null });
  const load = async () => {
    try {
      const answer = await call("GET /v1/inbound/messages/{id}/raw", { path: { id }, raw: true, accept: "*/*" });
      const blob = await answer.blob();
      setState({ text: await blob.slice(0, MAX_SHOWN_SOURCE).text(), size: blob.size, error: null });
    } catch (error) {
      if (!error.type) throw error;
      setState({ text: null, size: 0, error });
    }
  };
  useEffect(() => { load(); }, [id]);
  if (state.error) return html`<${ErrorNote} error=${state.error} retry=${load} />`;
  if (state.text === null) return html`<${Skeleton} lines=${10} />`;
  return html`<div class="stack-tight">${state.size > MAX_SHOWN_SOURCE && html`<${Notice}>The source has ${bytes(state.size)}; the first ${bytes(MAX_SHOWN_SOURCE)} are shown. Download the message for the rest.<//>`}<${Code} text=${state.text} label="Source" /></div>`;
}
