// The dialog that checks the signature of a webhook post in the browser.
import { Button, Dialog, Form, Notice, TextField } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { checkedSignature } from "./signature.js";

/** `header` and `body` fill the form from an attempt. The secret is never sent or stored. */
export function SignatureChecker({ header = "", body = "", onClose }) {
  const [values, setValues] = useState({ header, body, secret: "" });
  const [result, setResult] = useState(null);
  const set = (name) => (value) => {
    setValues({ ...values, [name]: value });
    setResult(null);
  };
  const check = async () => setResult(await checkedSignature(values, Math.floor(Date.now() / 1000)));
  const ready = values.header.trim() && values.body && values.secret;
  return html`<${Dialog} title="Check a signature" wide onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Close<//><${Button} kind="primary" disabled=${!ready} onClick=${check}>Check signature<//>`}>
    <p class="soft">Everything is computed in your browser. Nothing is sent.</p>
    <${Form} onSubmit=${check}>
      <${TextField} label="Service-Signature header" mono required spellcheck=${false} autocomplete="off" placeholder="t=1700000000,v1=…" value=${values.header} onValue=${set("header")} />
      <${TextField} label="Body, exactly as received" rows=${6} mono required spellcheck=${false} value=${values.body} onValue=${set("body")} />
      <${TextField} label="Signing secret" type="password" mono required spellcheck=${false} autocomplete="off" placeholder="whsec_…" value=${values.secret} onValue=${set("secret")} />
    <//>
    <div role="status">${result && html`<${Notice} tone=${result.tone === "bad" ? "warn" : result.tone} title=${result.title}>${result.text}<//>`}</div>
  <//>`;
}
