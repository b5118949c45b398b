// Password and authenticator of the person.
import { call, refreshSession, saveFile, useAction, useCall } from "../core/api.js";
import { Button, Card, Chip, Code, CopyLine, Dialog, ErrorNote, Facts, fieldError, Form, Notice, Skeleton, TextField, Time, toast } from "../core/ui.js";
import { html, plural, useState } from "../core/view.js";
import { PasswordField } from "./outside_page.js";
import { useProven, wrongPassword } from "./prove.js";

/** The card that changes the password. */
export function Password() {
  const [current, setCurrent] = useState("");
  const [fresh, setFresh] = useState("");
  const [change, { busy, error }] = useAction(async () => {
    await call("POST /v1/auth/password/change", { body: { newPassword: fresh, ...(current && { currentPassword: current }) }, quiet: true });
    setCurrent("");
    setFresh("");
    await refreshSession();
    toast("Password changed. You're signed out on other devices.");
  });
  const newError = fieldError(error, "newPassword");
  return html`<${Card} title="Password"><${Form} onSubmit=${change}>
    <${PasswordField} label="Current password" hint="Leave blank if you have none yet." required=${false} value=${current} onValue=${setCurrent} error=${wrongPassword(error)} />
    <${PasswordField} label="New password" fresh value=${fresh} onValue=${setFresh} error=${newError} />
    <${ErrorNote} error=${newError || wrongPassword(error) ? null : error} />
    <div class="form-actions"><${Button} type="submit" busy=${busy}>Change password<//></div>
    <p class="small soft">Changing it signs you out on other devices. Your password is checked against common ones and never leaves this instance.</p>
  <//><//>`;
}

/** The card of the authenticator: set-up, recovery codes, disable. */
export function Authenticator() {
  const state = useCall("GET /v1/auth/2fa");
  const [setup, setSetup] = useState(null);
  const [codes, setCodes] = useState(null);
  const [confirming, setConfirming] = useState(null); // "disable" or "codes"
  const [begin, { busy, error }, dialog] = useProven(async (proof) => setSetup(await call("POST /v1/auth/2fa/setup", { body: proof, quiet: true })));
  const done = async (fresh) => {
    setSetup(null);
    setConfirming(null);
    setCodes(fresh ?? null);
    await refreshSession();
    state.reload();
  };
  const { data } = state;
  return html`<${Card} title="Authenticator" actions=${data && html`<${Chip} tone=${data.enabled ? "good" : ""}>${data.enabled ? "on" : "off"}<//>`}>
    <div class="stack">
      ${state.error && html`<${ErrorNote} error=${state.error} retry=${state.reload} />`}
      ${!data && !state.error && html`<${Skeleton} lines=${3} />`}
      ${data && !data.enabled && html`<p>With an authenticator app, you sign in with your password and a code, so a stolen password isn't enough.</p>
        <div class="row"><${Button} icon="smartphone" busy=${busy} onClick=${begin}>Set up an authenticator<//></div>`}
      ${data?.enabled && html`<${Facts} items=${[["On since", html`<${Time} at=${data.enabledAt} />`], ["Recovery codes left", String(data.recoveryCodesLeft)]]} />
        ${data.recoveryCodesLeft < 3 && html`<${Notice} tone="warn">${data.recoveryCodesLeft === 0 ? "You have no recovery codes left" : `Only ${plural(data.recoveryCodesLeft, "recovery code")} left`}. Without your device you couldn't sign in. Create new ones.<//>`}
        <div class="row"><${Button} onClick=${() => setConfirming("codes")}>Create new recovery codes<//><${Button} danger onClick=${() => setConfirming("disable")}>Turn off<//></div>`}
      <${ErrorNote} error=${error} />
    </div>${dialog}
    ${setup && html`<${SetUp} setup=${setup} onClose=${() => setSetup(null)} onDone=${done} />`}
    ${confirming && html`<${Confirmed} what=${confirming} onClose=${() => setConfirming(null)} onDone=${done} />`}
    ${codes && html`<${RecoveryCodes} codes=${codes} onClose=${() => setCodes(null)} />`}
  <//>`;
}

function SetUp({ setup, onClose, onDone }) {
  const [code, setCode] = useState("");
  const [enable, { busy, error }] = useAction(async () => {
    const { recoveryCodes } = await call("POST /v1/auth/2fa/enable", { body: { code: code.trim() }, quiet: true });
    await onDone(recoveryCodes);
  });
  const picture = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(setup.qrSvg)}`;
  const grouped = setup.secret.replace(/(.{4})(?=.)/g, "$1 ");
  return html`<${Dialog} title="Set up an authenticator" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${enable}>Turn on<//>`}>
    <ol class="steps">
      <li>Scan this picture with an authenticator app on your phone, or type in the secret.
        <div class="qr-frame"><img class="qr" src=${picture} width="196" height="196" alt="QR code with the secret for the authenticator app" /></div>
        <${CopyLine} text=${grouped} label="Copy the secret" /></li>
      <li>Enter the code that the app shows now.
        <${Form} onSubmit=${enable}><${TextField} label="Code" mono inputmode="numeric" autocomplete="one-time-code" required maxlength="10" autofocus value=${code} onValue=${setCode} error=${codeError(error)} />
        <${ErrorNote} error=${codeError(error) ? null : error} /><//></li>
    </ol>
    <p class="small soft">Turning it on signs you out on other devices and shows recovery codes in case you lose your phone.</p>
  <//>`;
}

const codeError = (error) => fieldError(error, "code") ?? (error?.type === "invalid_credentials" ? error.message : null);

const CONFIRMED = {
  disable: {
    title: "Turn off the authenticator?", button: "Turn off", danger: true,
    text: "You'll sign in with your password only. Your recovery codes stop working.",
    send: async (body) => {
      await call("POST /v1/auth/2fa/disable", { body, quiet: true });
      toast("Authenticator turned off");
    },
  },
  codes: {
    title: "Create new recovery codes?", button: "Create codes", danger: false,
    text: "The previous codes stop working immediately.",
    send: async (body) => (await call("POST /v1/auth/2fa/recovery-codes", { body, quiet: true })).recoveryCodes,
  },
};

function Confirmed({ what, onClose, onDone }) {
  const { title, text, button, danger, send } = CONFIRMED[what];
  const [code, setCode] = useState("");
  const [password, setPassword] = useState("");
  const [run, { busy, error }] = useAction(async () => onDone(await send({ code: code.trim(), ...(password && { password }) })));
  return html`<${Dialog} title=${title} onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" danger=${danger} busy=${busy} onClick=${run}>${button}<//>`}>
    <p>${text}</p>
    <${Form} onSubmit=${run}>
      <${PasswordField} hint="Leave blank if you sign in without a password." required=${false} autofocus value=${password} onValue=${setPassword} error=${fieldError(error, "password")} />
      <${TextField} label="Code" hint="From the app, or a recovery code." mono autocomplete="one-time-code" required maxlength="32" value=${code} onValue=${setCode} error=${fieldError(error, "code")} />
      <${ErrorNote} error=${error} fields=${["password", "code"]} />
    <//>
  <//>`;
}

function RecoveryCodes({ codes, onClose }) {
  const [asked, setAsked] = useState(false); // Esc or a press beside the dialog must not lose the codes
  const text = codes.join("\n");
  const save = () => saveFile(new Blob([`Recovery codes of Waybill at ${window.location.host}\nEach works once instead of a code from the authenticator.\n\n${text}\n`], { type: "text/plain" }), "waybill-recovery-codes.txt");
  return html`<${Dialog} title="Your recovery codes" onClose=${() => setAsked(true)} foot=${html`<${Button} icon="download" onClick=${save}>Save as a file<//><${Button} kind="primary" onClick=${onClose}>I have stored them<//>`}>
    <${Notice} tone="warn">Store them now. You won't see them again. If you lose your phone, each works once instead of a code.<//>
    <${Code} text=${text} label="Recovery codes" />
    ${asked && html`<p role="alert" class="warn">Have you stored the codes? Confirm with the button below.</p>`}
  <//>`;
}
