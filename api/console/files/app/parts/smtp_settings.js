// The settings for sending by SMTP and HTTP, with code for the reader's own domain.
import { BASE, useCall } from "../core/api.js";
import { location, setQuery } from "../core/router.js";
import { Button, Card, Code, CopyLine, Facts, Notice, PageHead, Skeleton, Tabs } from "../core/ui.js";
import { html } from "../core/view.js";
import { httpSamples, smtpSamples } from "./send_samples.js";

/** The page /smtp. */
export function SmtpSettings({ service }) {
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const verified = (domains.data?.data ?? []).find((one) => one.status === "verified");
  const from = `hello@${verified?.name ?? "example.com"}`;
  const origin = window.location.origin + BASE.slice(0, -1);
  return html`<${PageHead} title="Settings for sending" lead="Send over HTTP, or over SMTP from software that only supports SMTP. Both use the same API key." back=${["/api-keys", "API keys"]} actions=${html`<${Button} kind="primary" icon="key" to="/api-keys">API keys<//>`} />
    <div class="stack sending-facts">
      ${domains.data && !verified && html`<${Notice} tone="warn" action=${html`<${Button} to="/domains">Domains<//>`}>None of your domains can send yet, so the samples use example.com.<//>`}
      <${Card} title="SMTP"><${Submission} service=${service} from=${from} /><//>
      <${Card} title="HTTP">
        <${Facts} items=${[["Address", html`<${CopyLine} text=${`${origin}/v1/emails`} />`], ["Authorization", html`<code>Bearer</code> and the API key`]]} />
        <${Samples} name="http" label="HTTP samples" samples=${httpSamples({ origin, from, to: recipient(service) })} />
      <//>
    </div>`;
}

const recipient = (service) => `delivered@simulator.${service?.mailHost ?? "waybill.test"}`;

function Submission({ service, from }) {
  const at = service?.submission;
  if (at === undefined) return html`<${Skeleton} />`; // GET /v1/instance has not answered yet
  if (at === null) return html`<p>SMTP isn't set up on this instance. Send over HTTP instead.</p>`;
  return html`<${Smtp} at=${{ ...at, from, to: recipient(service), local: service.local }} />`;
}

function Smtp({ at }) {
  return html`<${Facts} items=${[
      ["Server", html`<${CopyLine} text=${at.host} />`],
      [at.open ? "Port without TLS" : "Port with STARTTLS", html`<${CopyLine} text=${String(at.starttlsPort)} label="Copy the first port" />`],
      ["Port with TLS", html`<${CopyLine} text=${String(at.tlsPort)} label="Copy the port with TLS" />`],
      ["Username", html`<${CopyLine} text="apikey" />`],
      ["Password", html`the API key itself, with the scope <code>emails:send</code>`],
      ["Encryption", at.open ? "In local mode, programs on this machine need no TLS. Without a login, they send for the first account. `ops up` prints where the certificate of the port with TLS is." : "TLS 1.2 or later is required. You can't sign in unencrypted."],
    ]} />
    <${Samples} name="smtp" label="SMTP samples" samples=${smtpSamples(at)} />`;
}

/** Tabs of code; the chosen one is in the address. */
function Samples({ name, label, samples }) {
  const chosen = location.value.query.get(name) ?? samples[0][0];
  const [, title, text] = samples.find(([key]) => key === chosen) ?? samples[0];
  return html`<div class="sending-samples"><${Tabs} label=${label} items=${samples.map(([key, text]) => [key, text])} current=${chosen} onSelect=${(key) => setQuery({ [name]: key === samples[0][0] ? null : key })} />
    <${Code} text=${text} label=${`Sample for ${title}`} /></div>`;
}
