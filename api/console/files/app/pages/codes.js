// One-time codes: try a verification and set the look of its mail; checks of addresses.
import { call, saveFile, session, useAction, useCall } from "../core/api.js";
import { go, href, location, setQuery } from "../core/router.js";
import { Button, Card, Chip, Code, Confirm, CopyLine, Empty, ErrorNote, Facts, fieldError, Form, PageHead, SelectField, Skeleton, Tabs, TextField, Time, toast } from "../core/ui.js";
import { bytes, html, plural, useEffect, useState } from "../core/view.js";
import { csvText } from "../parts/csv_text.js";
import { base64, sameOrigin } from "../parts/file_content.js";
import { LanguageField } from "../parts/locale_field.js";
import { snippet } from "../parts/snippets.js";

const TABS = [["codes", "Codes"], ["settings", "Branding"], ["checks", "Address checks"]];

export function Codes({ part = "codes" }) {
  const View = { __proto__: null, codes: TryCode, settings: Look, checks: Checks }[part] ?? TryCode;
  return html`<${PageHead} title="Codes and checks" lead="One-time codes prove that someone reads an address. Address checks tell you whether an address can receive email, without sending any." />
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
  const started = snippet("curl", { method: "POST", url: "/v1/verifications", body: { to: "ann@example.com", from: from || "codes@example.com" } }, window.location.origin);
  const check = snippet("curl", { method: "POST", url: "/v1/verifications/ver_…/check", body: { code: "123456" } }, window.location.origin);
  if (domains.data && verified.length === 0) return html`<div class="card"><${Empty} icon="badge-check" title="Verify a domain first" action=${html`<${Button} kind="primary" to="/domains">Set up a domain<//>`} curl=${started}>Codes are sent from an address at one of your verified domains.<//></div>`;
  return html`<div class="columns"><${Card} title="Try a code"><${Form} onSubmit=${submit}>
    <${TextField} label="To" type="email" required value=${to} onValue=${setTo} error=${fieldError(error, "to")} hint="Used for this email only, and not stored." />
    <${TextField} label="From" type="email" required value=${from} onValue=${setFrom} error=${fieldError(error, "from")} />
    <${LanguageField} value=${locale} onValue=${setLocale} error=${fieldError(error, "locale")} />
    <${ErrorNote} error=${error} fields=${["to", "from", "locale"]} />
    <div class="form-actions"><${Button} kind="primary" type="submit" icon="send" role="member" busy=${busy}>Send a code<//></div>
  <//><//>
  <${Card} title="In your application"><div class="stack">
    <ol class="numbered">
      <li>Start a verification. Your user gets a code by email that works for 10 minutes.</li>
      <li>Ask your user for the code and check it. Five wrong codes end the verification.</li>
      <li>A check always returns <code>200</code>. Continue only if its <code>status</code> is <code>approved</code>.</li>
    </ol>
    <${Code} text=${started} label="Start a verification" />
    <${Code} text=${check} label="Check a code" />
  </div><//></div>`;
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
    if (reply.status === "approved") toast("The code is correct");
    else toast(`Wrong code; ${plural(reply.attemptsRemaining, "try", "tries")} left`, { tone: "bad" });
  };
  const again = async () => {
    if ((await resend()) === undefined) return;
    toast("New code sent. The previous one no longer works");
    state.reload();
  };
  return html`<div class="columns">
    <${Card} title="Verification" actions=${html`<${Chip}>${status}<//>`} foot=${html`<${Button} onClick=${onAgain}>Start over<//>${open && html`<${Button} danger onClick=${() => setCancelling(true)}>Cancel verification<//>`}`}>
      <${Facts} items=${[["Id", html`<${CopyLine} text=${id} />`], ["Message", messageId && html`<a href=${href(`/messages/${messageId}`)}>Open its waybill</a>`], ["Codes sent", codesSent], ["Tries left", attemptsRemaining], ["Started", html`<${Time} at=${createdAt} />`], ["Expires", html`<${Time} at=${expiresAt} relative />`], finishedAt && ["Finished", html`<${Time} at=${finishedAt} />`]]} />
    <//>
    ${open && html`<${Card} title="Check the code"><${Form} onSubmit=${tryCode}>
      <${TextField} label="Code" required inputmode="numeric" autocomplete="one-time-code" maxlength="32" value=${code} onValue=${setCode} error=${fieldError(checking.error, "code")} />
      <${ErrorNote} error=${checking.error} fields=${["code"]} />
      <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${checking.busy}>Check<//></div>
    <//>
    <${Form} onSubmit=${again}>
      <${TextField} label="Address for a new code" type="email" required value=${to} onValue=${setTo} hint="Must be the address you started with." />
      <${ErrorNote} error=${resending.error} />
      <div class="form-actions"><${Button} type="submit" role="member" busy=${resending.busy}>Send a new code<//></div>
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
    toast("Branding saved");
    setLogo(undefined);
    onSaved();
  };
  const choose = async (event) => {
    const [file] = event.currentTarget.files;
    if (!file) return;
    setTooLarge(file.size > MAX_LOGO_BYTES ? `The file has ${bytes(file.size)}; the limit is ${bytes(MAX_LOGO_BYTES)}. Choose a smaller one.` : null);
    if (file.size <= MAX_LOGO_BYTES) setLogo({ content: await base64(file) });
  };
  const lengths = [4, 5, 6, 7, 8].map((one) => [String(one), `${one} digits`]);
  const title = brandName || session.value.account.name;
  return html`<div class="columns"><${Card} title="Branding"><${Form} onSubmit=${submit}>
    <${TextField} label="Name" maxlength="80" value=${brandName} onValue=${setBrandName} error=${fieldError(error, "brandName")} hint="Shown in the email and its subject. Leave blank to use the account's name." />
    <${SelectField} label="Code length" value=${codeLength} onValue=${setCodeLength} options=${lengths} />
    <div class="field"><label for="logo">Logo</label>
      ${known.logo && logo === undefined && html`<p class="row"><img class="logo" src=${sameOrigin(known.logo.url)} alt="Current logo" />${known.logo.width} × ${known.logo.height}, ${bytes(known.logo.sizeBytes)}<${Button} onClick=${() => setLogo(null)}>Remove<//></p>`}
      <input class="input" id="logo" type="file" accept="image/png,image/jpeg,image/webp" aria-describedby="logo-hint" onChange=${choose} />
      <span class="hint" id="logo-hint">PNG, JPEG or WebP, at most 2,000 pixels per side and ${bytes(MAX_LOGO_BYTES)}.</span>
      ${(tooLarge || fieldError(error, "logo")) && html`<span class="error" role="alert">${tooLarge ?? fieldError(error, "logo")}</span>`}
    </div>
    <${ErrorNote} error=${error} fields=${["brandName", "logo"]} />
    <div class="form-actions"><${Button} kind="primary" type="submit" role="admin" busy=${busy}>Save<//></div>
  <//><//>
  <${Card} title="Preview"><div class="stack">
    <p class="soft small">Subject: ${brandName ? `Your verification code for ${brandName}` : "Your verification code"}</p>
    ${logo ? html`<p class="soft small">Save to see the new logo.</p>` : known.logo && logo === undefined ? html`<img class="logo" src=${sameOrigin(known.logo.url)} alt="" />` : html`<p class="strong wrap">${title}</p>`}
    <p>Enter this code to confirm your address:</p>
    <p class="sample-code numeric">${"1234567890".slice(0, Number(codeLength))}</p>
    <p>The code is valid for 10 min and works once.</p>
  </div><//></div>`;
}

const MAX_ADDRESSES = 100;
const REASONS = {
  syntax: "This is not a valid address.",
  no_domain: "The domain does not exist.",
  null_mx: "The domain doesn't accept email (null MX).",
  no_mail_server: "The domain has no mail server.",
  unsubscribed: "The recipient unsubscribed and gets transactional email only.",
  suppressed: "The address is on your suppression list.",
  dns: "No DNS response in time. Try again.",
  role: "A shared mailbox, such as info@. Complaints are more likely.",
  disposable: "A disposable address. It may stop working at any time.",
};

const VERDICTS = [
  ["deliverable", "The domain accepts email, and nothing speaks against the address."],
  ["risky", "It can get email, but expect bounces or complaints."],
  ["unknown", "DNS did not respond in time. Check it again later."],
  ["undeliverable", "Don't send to it: it would bounce or is on your suppression list."],
];

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
  return html`<div class="stack"><div class="columns"><${Card} title="Check addresses"><${Form} onSubmit=${submit}>
      <${TextField} label="Addresses" rows=${6} required mono value=${text} onValue=${setText} error=${fieldError(error, "addresses")} hint=${`One per line or separated by commas; up to ${MAX_ADDRESSES}. ${addresses.length ? plural(addresses.length, "address", "addresses") + "." : ""} Each counts toward your plan's monthly checks.`} />
      <${ErrorNote} error=${error} fields=${["addresses"]} />
      <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${busy} why=${addresses.length > MAX_ADDRESSES ? `Check at most ${MAX_ADDRESSES} addresses at a time.` : null}>Check<//></div>
    <//><//>
    <${Card} title="Verdicts"><div class="stack"><${Facts} items=${VERDICTS.map(([verdict, text]) => [html`<${Chip}>${verdict}<//>`, text])} />
      <p class="soft small">Checks only use DNS: no email is sent and no mail server is contacted. An address that looks deliverable can still bounce.</p></div><//></div>
    ${reply && html`<${Card} flush title=${`${plural(reply.data.length, "result")}, ${plural(reply.charged, "check")} counted`} actions=${html`<${Button} icon="download" onClick=${save}>Save as CSV<//>`}>
      <div class="table-frame"><table class="table cards"><thead><tr><th scope="col">Address</th><th scope="col">Verdict</th><th scope="col">Why</th></tr></thead>
      <tbody>${reply.data.map((row) => html`<tr key=${row.address}><td class="wrap">${row.address}</td><td data-label="Verdict"><${Chip}>${row.verdict}<//></td><td data-label="Why"><span>${row.reason ? REASONS[row.reason] ?? row.reason : row.checks.relay ? "A privacy relay that forwards email to the person." : "The domain accepts email."}${row.suggestion && html` Did you mean <strong>${row.suggestion}</strong>?`}</span></td></tr>`)}</tbody></table></div>
    <//>`}
  </div>`;
}
