// A mail's content as its readers see it: HTML on a desktop, on a phone, in dark colours, or the plain text.
import { Button, Segments } from "../core/ui.js";
import { html as view, useState } from "../core/view.js";
import { MailFrame } from "./mail_frame.js";

const PHONE_PX = 390;
const UPLOADED = /<img\b[^>]*\/images\/[0-9a-f]{64}\.[a-z]{3,4}["'][^>]*>/gi; // images of this service, which the frame always shows

/** `html` or `text` may be null; `title` names the frame. Pictures of other hosts load only when asked for. */
export function Preview({ html, text, title, dark = false }) {
  const [shown, setShown] = useState(html === null || html === "" ? "text" : "desktop");
  const [night, setNight] = useState(dark);
  const [remote, setRemote] = useState(false);
  const options = [html && ["desktop", "Desktop"], html && ["phone", "Phone"], text && ["text", "Plain text"]].filter(Boolean);
  const pictures = html && /<img\b|\bbackground\s*=|url\(/i.test(html.replace(UPLOADED, ""));
  return view`<div class="stack">
    <div class="row-wide"><${Segments} label="Preview as" options=${options} value=${shown} onValue=${setShown} />
      <div class="row">${shown !== "text" && view`<${Button} icon=${night ? "sun" : "moon"} onClick=${() => setNight(!night)}>${night ? "Light" : "Dark"}<//>`}${shown !== "text" && pictures && !remote && view`<${Button} icon="download" onClick=${() => setRemote(true)}>Load remote images<//>`}</div></div>
    ${shown === "text" ? view`<div class="card card-body"><pre class="plain-text">${text ?? ""}</pre></div>` : view`<div class="card preview"><${MailFrame} html=${html} title=${title} dark=${night} remote=${remote} width=${shown === "phone" ? PHONE_PX : null} /></div>`}
  </div>`;
}
