// Images of the composer: the account's library, uploads, and the dialog that asks for the description.
import { call, useAction, useCall, usePages } from "../core/api.js";
import { Button, Dialog, ErrorNote, Form, Notice, Skeleton, TextField, toast } from "../core/ui.js";
import { bytes, html, useEffect, useRef, useState } from "../core/view.js";
import { base64, sameOrigin } from "./file_content.js";

const MAX_BYTES = 5_000_000;
const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const UPLOAD_MS = 120_000; // 5 MB over a slow line

/** Return the first picture among files that were dropped or pasted, or null. */
export const pictureIn = (transfer) => [...(transfer?.files ?? [])].find((one) => TYPES.includes(one.type)) ?? null;

/** Return {images by id with their `path`, learn(image)}: those of the document `ids` are read from the service. */
export function useImages(ids) {
  const [known, setKnown] = useState({});
  const asked = useRef(new Set());
  const learn = (image) => setKnown((old) => ({ ...old, [image.id]: { ...image, path: sameOrigin(image.url) } }));
  useEffect(() => {
    for (const id of ids.filter((one) => !asked.current.has(one))) {
      asked.current.add(id);
      call("GET /v1/images/{id}", { path: { id }, quiet: true }).then(learn, (error) => { if (!error.type) throw error; }); // a deleted one is shown by its description
    }
  }, [ids.join()]);
  return { images: known, learn };
}

/** Upload a picture; returns the image. */
export async function upload(file, name = file.name) {
  return call("POST /v1/images", { body: { filename: name || "image", content: await base64(file) }, quiet: true, timeoutMs: UPLOAD_MS });
}

/**
 * Choose or upload an image and describe it; `file` is uploaded at once. `onChoose(image, alt)` gets the result.
 * `described` false asks for no description, for a logo.
 */
export function ImageDialog({ file = null, image = null, alt = "", described = true, onChoose, onClose }) {
  const [chosen, setChosen] = useState(image);
  const [text, setText] = useState(alt);
  const [problem, setProblem] = useState(null);
  const [send, sending] = useAction(upload);
  const take = async (picture) => {
    if (!picture) return;
    if (!TYPES.includes(picture.type)) return setProblem(`${picture.name} is no PNG, JPEG, GIF or WebP image. Choose another file.`);
    if (picture.size > MAX_BYTES) return setProblem(`The file has ${bytes(picture.size)}; the limit is ${bytes(MAX_BYTES)}. Make the image smaller.`);
    setProblem(null);
    const made = await send(picture);
    if (made) setChosen(made);
    return undefined;
  };
  useEffect(() => { take(file); }, []);
  const submit = () => { if (chosen) onChoose(chosen, text.trim()); };
  const foot = html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${sending.busy} why=${chosen ? null : "Choose an image first."} onClick=${submit}>${image ? "Use image" : "Insert image"}<//>`;
  return html`<${Dialog} title=${described ? "Image" : "Logo"} wide onClose=${onClose} foot=${foot}>
    ${problem && html`<${Notice} tone="bad">${problem}<//>`}<${ErrorNote} error=${sending.error} />
    <div class="field"><label for="cp-file">Upload an image</label><input class="input" id="cp-file" type="file" accept=${TYPES.join()} aria-describedby="cp-file-hint" onChange=${(event) => take(event.currentTarget.files[0])} /><span class="hint" id="cp-file-hint">PNG, JPEG, GIF or WebP, at most ${bytes(MAX_BYTES)}. Large images are scaled down to 1,440 pixels.</span></div>
    ${sending.busy && html`<p role="status">Uploading…</p>`}
    ${chosen && html`<div class="row"><img class="cp-thumb" src=${sameOrigin(chosen.url)} alt="The chosen image" /><span class="soft">${chosen.width} × ${chosen.height}, ${bytes(chosen.size)}</span></div>
      ${described && html`<${Form} onSubmit=${submit}><${TextField} label="Description" value=${text} onValue=${setText} maxlength="300" hint="What the image shows, for people who don't see it. Leave blank if it is only decoration." /><//>`}`}
    <${Library} chosen=${chosen} onChosen=${setChosen} />
  <//>`;
}

/** The images that were uploaded before. */
function Library({ chosen, onChosen }) {
  const state = usePages("GET /v1/images", {}, { limit: 24 });
  const [remove, removing] = useAction((id) => call("DELETE /v1/images/{id}", { path: { id } }));
  if (state.loading && !state.rows.length) return html`<${Skeleton} lines=${2} />`;
  if (!state.rows.length) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  const drop = async (id) => {
    if ((await remove(id)) === undefined) return;
    toast("Image deleted");
    onChosen(null);
    state.reload();
  };
  const isListed = state.rows.some((one) => one.id === chosen?.id);
  return html`<section class="stack-tight" aria-label="Your images"><h3>Your images</h3>
    <ul class="cp-library">${state.rows.map((one) => html`<li key=${one.id}><button type="button" aria-pressed=${one.id === chosen?.id ? "true" : "false"} aria-label=${`Image of ${one.width} × ${one.height} pixels, uploaded ${one.createdAt.slice(0, 10)}`} onClick=${() => onChosen(one)}><img src=${sameOrigin(one.url)} alt="" loading="lazy" /></button></li>`)}</ul>
    <div class="row">${state.next && html`<${Button} busy=${state.loading} onClick=${state.next}>More<//>`}${isListed && html`<${Button} kind="quiet" icon="trash-2" role="member" busy=${removing.busy} onClick=${() => drop(chosen.id)}>Delete this image<//>`}</div>
    <${ErrorNote} error=${removing.error} />
  </section>`;
}

/** A button that takes the logo of the account's verification emails, if it has one. */
export function AccountLogo({ onLogo }) {
  const settings = useCall("GET /v1/verifications/settings", { quiet: true });
  const [copy, { busy, error }] = useAction(async () => {
    const answer = await fetch(sameOrigin(settings.data.logo.url), { credentials: "same-origin" });
    return upload(await answer.blob(), "logo");
  });
  if (!settings.data?.logo) return null;
  const take = async () => {
    const image = await copy();
    if (image) onLogo(image);
  };
  return html`<${Button} busy=${busy} onClick=${take}>Use the logo of your codes<//><${ErrorNote} error=${error} />`;
}
