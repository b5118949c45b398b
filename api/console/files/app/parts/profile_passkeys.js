// Passkeys of the person, and their identities at the service's identity provider.
import { call, refreshSession, useAction, useCall } from "../core/api.js";
import { Button, Card, Chip, Confirm, Dialog, Empty, ErrorNote, fieldError, Form, Menu, Notice, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { deviceOf } from "./devices.js";
import { useProven } from "./prove.js";
import { providerLink } from "./provider_link.js";
import { atLocalhost, createPasskey, openedByAddress, passkeyProblem, passkeysWork } from "./web_authn.js";

const rowsOf = (state) => ({ ...state, rows: state.data?.data ?? [] });

/** The section of passkeys: create, rename, delete. */
export function Passkeys() {
  const state = useCall("GET /v1/auth/passkeys");
  const [naming, setNaming] = useState(null); // a passkey to rename, or {} for a new one
  const [removing, setRemoving] = useState(null);
  const why = noPasskeys();
  const add = html`<${Button} icon="plus" why=${why} onClick=${() => setNaming({})}>Create a passkey<//>`;
  const columns = [
    { title: "Name", cell: (row) => html`<span class="row"><span class="strong wrap">${row.name}</span>${row.backedUp && html`<${Chip}>synchronised<//>`}${row.suspectedAt && html`<${Chip} tone="bad">may be copied<//>`}</span>` },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Last used", cell: (row) => (row.lastUsedAt ? html`<${Time} at=${row.lastUsedAt} relative />` : html`<span class="soft">never</span>`) },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${[{ text: "Rename", icon: "pencil", onSelect: () => setNaming(row) }, { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setRemoving(row) }]} />` },
  ];
  const rows = state.data?.data ?? [];
  const close = (done) => {
    setNaming(null);
    if (done) state.reload();
  };
  return html`<div class="stack-tight"><div class="row-wide"><h2>Passkeys</h2>${rows.length > 0 && add}</div>
    ${rows.some((row) => row.suspectedAt) && html`<${Notice} tone="bad" title="A passkey may have been copied.">Its counter went backwards, so it is no longer accepted. Delete it and create a new one on its device.<//>`}
    ${atLocalhost() && html`<${Notice} title="Passkeys need a host name." action=${html`<${Button} icon="external-link" link=${atLocalhost()}>Open at localhost<//>`}>This page was opened at ${window.location.hostname}. Sign in at localhost to create a passkey.<//>`}
    <${Table} label="Passkeys" columns=${columns} state=${rowsOf(state)} empty=${html`<${Empty} icon="key" title="No passkeys" action=${add}>A passkey signs you in with your device's fingerprint, face or PIN. It can't be phished and needs no password or code.${why && !atLocalhost() && html` <strong>${why}</strong>`}<//>`} />
    ${naming?.id && html`<${Rename} passkey=${naming} onClose=${close} />`}
    ${naming && !naming.id && html`<${Create} onClose=${close} />`}
    ${removing && html`<${Confirm} title=${`Delete the passkey ${removing.name}?`} confirm="Delete passkey" action=${() => call("DELETE /v1/auth/passkeys/{id}", { path: { id: removing.id } })}
      onClose=${async (done) => { setRemoving(null); if (done) { await refreshSession(); toast(`Passkey ${removing.name} deleted`); state.reload(); } }}>You can no longer sign in with it. Delete it on the device too.<//>`}
  </div>`;
}

function noPasskeys() {
  if (openedByAddress()) return `Passkeys need a host name, and this page was opened at ${window.location.hostname}.`;
  return passkeysWork() ? null : "Passkeys need https and a current browser.";
}

function Create({ onClose }) {
  const [name, setName] = useState(() => deviceOf(navigator.userAgent));
  const [problem, setProblem] = useState(null);
  const [create, { busy, error }, dialog] = useProven(async (proof) => {
    setProblem(null);
    const { publicKey } = await call("POST /v1/auth/passkeys/register/options", { body: proof, quiet: true });
    let credential;
    try {
      credential = await createPasskey(publicKey);
    } catch (failure) {
      setProblem(passkeyProblem(failure) ?? "No passkey was created, because the browser's dialog was closed.");
      return;
    }
    await call("POST /v1/auth/passkeys/register/verify", { body: { credential, ...(name.trim() && { name: name.trim() }) }, quiet: true });
    await refreshSession();
    toast("Passkey created");
    onClose(true);
  });
  return html`<${Dialog} title="Create a passkey" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${create}>Create<//>`}>
    <${Form} onSubmit=${create}>
      <p>Your browser asks next where to store the passkey: on this device, on a phone or on a security key.</p>
      <${TextField} label="Name" hint="Helps you recognize it in this list." maxlength="100" autofocus value=${name} onValue=${setName} error=${fieldError(error, "name")} />
      ${problem && html`<${Notice} tone="warn">${problem}<//>`}<${ErrorNote} error=${error} fields=${["name"]} />
    <//>${dialog}
  <//>`;
}

function Rename({ passkey, onClose }) {
  const [name, setName] = useState(passkey.name);
  const [rename, { busy, error }] = useAction(() => call("PATCH /v1/auth/passkeys/{id}", { path: { id: passkey.id }, body: { name } }));
  const submit = async () => { if ((await rename()) !== undefined) onClose(true); };
  return html`<${Dialog} title=${`Rename ${passkey.name}`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Rename<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Name" required maxlength="100" autofocus value=${name} onValue=${setName} error=${fieldError(error, "name")} /><${ErrorNote} error=${error} fields=${["name"]} /><//>
  <//>`;
}

/** The section of identities; nothing where the service has no provider. */
export function Identities({ service, email }) {
  const state = useCall("GET /v1/auth/idp/identities", {}, { skip: !service.identityProvider });
  const [removing, setRemoving] = useState(null);
  if (!service.identityProvider) return null;
  const provider = service.identityProvider.name;
  const link = html`<${Button} icon="link" link=${providerLink("/profile/security")}>Sign in with ${provider} to link it<//>`;
  const columns = [
    { title: "Provider", cell: (row) => html`<span class="row"><span class="strong wrap">${row.name}</span>${!row.current && html`<${Chip} tone="warn">no longer used here<//>`}</span>` },
    { title: "Linked", cell: (row) => html`<${Time} at=${row.createdAt} />` },
    { title: "Last used", cell: (row) => html`<${Time} at=${row.lastUsedAt} relative />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} danger onClick=${() => setRemoving(row)}>Unlink<//>` },
  ];
  return html`<div class="stack-tight"><h2>Identities</h2>
    <${Table} label="Identities" columns=${columns} state=${rowsOf(state)} empty=${html`<${Empty} icon="link" title="No identity is linked" action=${link}>Sign in once with ${provider}. If it has confirmed the address ${email}, both are linked.<//>`} />
    ${removing && html`<${Confirm} title=${`Unlink ${removing.name}?`} confirm="Unlink" action=${() => call("DELETE /v1/auth/idp/identities/{id}", { path: { id: removing.id } })}
      onClose=${async (done) => { setRemoving(null); if (done) { await refreshSession(); toast(`${removing.name} unlinked`); state.reload(); } }}>You can no longer sign in with it, and you're signed out on other devices. Make sure you have a password or a passkey.<//>`}
  </div>`;
}
