// One-time codes: try a verification and set the look of its mail; checks of addresses.
import { call, saveFile, useAction, useCall } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Confirm, CopyLine, Empty, ErrorNote, Facts, fieldError, Form, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { bytes, html, plural, useEffect, useState } from "../core/view.js";
import { csvText } from "../parts/csv_text.js";

const TABS = [["codes", "Codes"], ["settings", "Look of the mail"], ["checks", "Address checks"]];

export function Codes({ part = "codes" }) {
  const View = { __proto__: null, codes: TryCode, settings: Look, checks: Checks }[part] ?? TryCode;
  return html`<${PageHead} title="Codes and checks" lead="One-time codes prove that a person reads an address. Checks tell whether an address can get mail, without sending any." />
    <${Tabs} label="Codes and checks" items=${TABS} current=${part} onSelect=${(key) => go(key === "codes" ? "/codes" : `/codes/${key}`)} />
    <${View} />`;
}

/** Start a verification, then check its code. The id is in the address, so that the page can be loaded again. */
function TryCode() {
  const id = location.value.query.get("id");
  const [to, setTo] = useState("");
  return id
    ? html`<${Verification} key=${id} id=${id} to=${to} onAgain=${() => setQuery({ id: null })} />`
    : html`<${StartCode} onStarted=${(made, address) => { setTo(address); setQuery({ id: made.id }); }} />`;
}

function StartCode({ onStarted }) {
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const verified = (domains.data?.data ?? []).filter((one) => one.status === "verified");
  const [to, setTo] = useState("");
  const [from, setFrom] = useState("");
  const [locale, setLocale] = useState("en");
  useEffect(() => { if (!from && verified.length) setFrom(`codes@${verified[0].name}`); }, [verified.length]);
  const [start, { busy, error }] = useAction(() => call("POST /v1/verifications", { body: { to, from, locale } }));
  const submit = async () => {
    const made = await start();
    if (made) onStarted(made, to);
  };
  const curl = `curl ${window.location.origin}/v1/verifications -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d '{"to": "ann@example.com", "from": "${from || "codes@your-domain"}"}'`;
  if (domains.data && verified.length === 0) return html`<div class="card"><${Empty} icon="badge-check" title="Verify a domain first" action=${html`<${Button} kind="primary" to="/domains">Set up a domain<//>`} curl=${curl}>Codes are sent from an address at one of your domains.<//></div>`;
  return html`<${Card} title="Try a code"><${Form} onSubmit=${submit}>
    <${TextField} label="To" type="email" required value=${to} onValue=${setTo} error=${fieldError(error, "to")} hint="The address is used for this mail only; it is not kept." />
    <${TextField} label="From" type="email" required value=${from} onValue=${setFrom} error=${fieldError(error, "from")} />
    <${TextField} label="Language" value=${locale} onValue=${setLocale} error=${fieldError(error, "locale")} hint="Such as en, de or pt-BR. Where texts are missing, the mail is in English." />
    <${ErrorNote} error=${error} fields=${["to", "from", "locale"]} />
    <div class="form-actions"><${Button} kind="primary" type="submit" icon="send" role="member" busy=${busy}>Mail a code<//></div>
  <//><//>`;
}

function Verification({ id, to: known, onAgain }) {
  const state = useCall("GET /v1/verifications/{id}", { path: { id } }, { pollMs: 5000 });
  const [code, setCode] = useState("");
  const [to, setTo] = useState(known);
  const [cancelling, setCancelling] = useState(false);
  const [check, checking] = useAction(() => call("POST /v1/verifications/{id}/check", { path: { id }, body: { code } }));
  const [resend, resending] = useAction(() => call("POST /v1/verifications/{id}/resend", { path: { id }, body: { to } }));
  if (state.error && !state.data) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!state.data) return html`<${Skeleton} />`;
  const { status, attemptsRemaining, messageId, codesSent, createdAt, expiresAt, finishedAt } = state.data;
  const open = status === "pending";
  const tryCode = async () => {
    const reply = await check();
    if (!reply) return;
    setCode("");
    state.reload();
    if (reply.status === "approved") toast("The code is right");
    else toast(`Wrong code; ${plural(reply.attemptsRemaining, "try", "tries")} left`, { tone: "bad" });
  };
  const again = async () => {
    if ((await resend()) === undefined) return;
    toast("A new code was mailed; the former one no longer works");
    state.reload();
  };
  return html`<div class="columns">
    <${Card} title="Verification" actions=${html`<${Chip}>${status}<//>`} foot=${html`<${Button} onClick=${onAgain}>Start another<//>${open && html`<${Button} danger onClick=${() => setCancelling(true)}>Cancel it<//>`}`}>
      <${Facts} items=${[["Id", html`<${CopyLine} text=${id} />`], ["Message", messageId && html`<a href=${href(`/messages/${messageId}`)}>Waybill of the mail</a>`], ["Codes sent", codesSent], ["Tries left", attemptsRemaining], ["Started", html`<${Time} at=${createdAt} />`], ["Expires", html`<${Time} at=${expiresAt} relative />`], finishedAt && ["Finished", html`<${Time} at=${finishedAt} />`]]} />
    <//>
    ${open && html`<${Card} title="Check the code"><${Form} onSubmit=${tryCode}>
      <${TextField} label="Code" required inputmode="numeric" autocomplete="one-time-code" maxlength="32" value=${code} onValue=${setCode} error=${fieldError(checking.error, "code")} />
      <${ErrorNote} error=${checking.error} fields=${["code"]} />
      <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${checking.busy}>Check<//></div>
    <//>
    <${Form} onSubmit=${again}>
      <${TextField} label="Address, to mail a new code" type="email" required value=${to} onValue=${setTo} hint="The same address as at the start." />
      <${ErrorNote} error=${resending.error} />
      <div class="form-actions"><${Button} type="submit" role="member" busy=${resending.busy}>Mail a new code<//></div>
    <//><//>`}
    ${cancelling && html`<${Confirm} title="Cancel this verification?" confirm="Cancel verification" action=${() => call("POST /v1/verifications/{id}/cancel", { path: { id } })} onClose=${(done) => { setCancelling(false); if (done) state.reload(); }}>Its code no longer works.<//>`}
  </div>`;
}

const MAX_LOGO_BYTES = 512 * 1024;

function Look() {
  const state = useCall("GET /v1/verifications/settings");
  if (state.error && !state.data) return html`<${ErrorNote} error=${state.error} retry=${state.reload} />`;
  if (!state.data) return html`<${Skeleton} />`;
  return html`<${LookForm} known=${state.data} onSaved=${state.reload} />`;
}

function LookForm({ known, onSaved }) {
  const [brandName, setBrandName] = useState(known.brandName ?? "");
  const [codeLength, setCodeLength] = useState(String(known.codeLength ?? 6));
  const [logo, setLogo] = useState(undefined); // undefined: as it is; null: none; {content}: a new one
  const [tooLarge, setTooLarge] = useState(null);
  const [save, { busy, error }] = useAction(() => call("PUT /v1/verifications/settings", { body: { brandName: brandName || null, codeLength: Number(codeLength), ...(logo !== undefined && { logo }) } }));
  const submit = async () => {
    if ((await save()) === undefined) return;
    toast("The look of the mail is saved");
    setLogo(undefined);
    onSaved();
  };
  const choose = async (event) => {
    const [file] = event.currentTarget.files;
    if (!file) return;
    setTooLarge(file.size > MAX_LOGO_BYTES ? `The file has ${bytes(file.size)}; at most ${bytes(MAX_LOGO_BYTES)} are taken.` : null);
    if (file.size <= MAX_LOGO_BYTES) setLogo({ content: await base64(file) });
  };
  const lengths = [4, 5, 6, 7, 8].map((one) => [String(one), `${one} digits`]);
  return html`<${Card} title="Look of the mail"><${Form} onSubmit=${submit}>
    <${TextField} label="Name" maxlength="80" value=${brandName} onValue=${setBrandName} error=${fieldError(error, "brandName")} hint="Shown in the mail and its subject. Empty: the name of the account." />
    <${SelectField} label="Length of codes" value=${codeLength} onValue=${setCodeLength} options=${lengths} />
    <div class="field"><label for="logo">Logo</label>
      ${known.logo && logo === undefined && html`<p class="row"><img class="logo" src=${sameOrigin(known.logo.url)} alt="The logo now" />${known.logo.width} × ${known.logo.height}, ${bytes(known.logo.sizeBytes)}<${Button} onClick=${() => setLogo(null)}>Remove<//></p>`}
      <input class="input" id="logo" type="file" accept="image/png,image/jpeg,image/gif,image/webp" aria-describedby="logo-hint" onChange=${choose} />
      <span class="hint" id="logo-hint">PNG, JPEG, GIF or WebP, at most 2,000 pixels a side and ${bytes(MAX_LOGO_BYTES)}.</span>
      ${(tooLarge || fieldError(error, "logo")) && html`<span class="error" role="alert">${tooLarge ?? fieldError(error, "logo")}</span>`}
    </div>
    <${ErrorNote} error=${error} fields=${["brandName", "logo"]} />
    <div class="form-actions"><${Button} kind="primary" type="submit" role="admin" busy=${busy}>Save<//></div>
  <//><//>`;
}

/** Return the path of an address of this service, so that the policy's 'self' covers it behind any proxy. */
const sameOrigin = (url) => new URL(url, window.location.href).pathname;

async function base64(file) {
  const octets = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < octets.length; at += 32_768) text += String.fromCharCode(...octets.subarray(at, at + 32_768));
  return btoa(text);
}

const MAX_ADDRESSES = 100;
const REASONS = {
  syntax: "This is not a valid address.",
  no_domain: "The domain does not exist.",
  null_mx: "The domain says that it takes no mail (null MX).",
  no_mail_server: "The domain has no mail server.",
  unsubscribed: "The address unsubscribed: it gets transactional mail only.",
  suppressed: "Your account does not send to this address: see its suppression.",
  dns: "DNS did not answer in time; try again.",
  role: "Read by a group, such as info@: complaints are more likely.",
  disposable: "A disposable address: it may stop working any time.",
};

function Checks() {
  const [text, setText] = useState("");
  const [reply, setReply] = useState(null);
  const addresses = [...new Set(text.split(/[\s,;]+/).filter(Boolean))];
  const [check, { busy, error }] = useAction(() => call("POST /v1/address-checks", { body: { addresses } }));
  const submit = async () => {
    const found = await check();
    if (found) setReply(found);
  };
  const save = () => {
    const rows = reply.data.map((row) => [row.address, row.normalized, row.verdict, row.reason, row.suggestion]);
    saveFile(new Blob([csvText([["address", "normalized", "verdict", "reason", "suggestion"], ...rows])], { type: "text/csv" }), "address-checks.csv");
  };
  return html`<div class="stack"><${Card} title="Check addresses"><${Form} onSubmit=${submit}>
      <${TextField} label="Addresses" rows=${6} required mono value=${text} onValue=${setText} error=${fieldError(error, "addresses")} hint=${`One a line, or separated by commas; up to ${MAX_ADDRESSES}. ${addresses.length ? plural(addresses.length, "address", "addresses") + "." : ""} Each counts against the plan's checks of the month.`} />
      <${ErrorNote} error=${error} fields=${["addresses"]} />
      <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${busy} why=${addresses.length > MAX_ADDRESSES ? `At most ${MAX_ADDRESSES} at a time.` : null}>Check<//></div>
    <//><//>
    ${reply && html`<${Card} flush title=${`${plural(reply.data.length, "result")}, ${plural(reply.charged, "check")} counted`} actions=${html`<${Button} icon="download" onClick=${save}>Save as CSV<//>`}>
      <div class="table-frame"><table class="table cards"><thead><tr><th scope="col">Address</th><th scope="col">Verdict</th><th scope="col">Why</th></tr></thead>
      <tbody>${reply.data.map((row) => html`<tr key=${row.address}><td class="wrap">${row.address}</td><td data-label="Verdict"><${Chip}>${row.verdict}<//></td><td data-label="Why"><span>${row.reason ? REASONS[row.reason] ?? row.reason : row.checks.relay ? "A privacy relay: mail reaches the person." : "Its domain takes mail."}${row.suggestion && html` Did you mean <strong>${row.suggestion}</strong>?`}</span></td></tr>`)}</tbody></table></div>
    <//>`}
    ${!reply && html`<${Notice}>The check asks DNS only: no mail is sent, and no mail server is asked. An address that is deliverable here can still bounce.<//>`}
  </div>`;
}
