// Local mode: the clock of the instance, and buttons that move it forward.
import { call, useAction, useCall } from "../core/api.js";
import { Button, Card, ErrorNote, Facts, fieldError, Form, TextField, Time, toast } from "../core/ui.js";
import { duration, html, setAhead, useState } from "../core/view.js";

const STEPS = [["1h", "+1 hour"], ["1d", "+1 day"]];

/** The card that shows the clock and moves it; `onMove` runs once everything that fell due has happened. */
export function ClockCard({ onMove }) {
  const state = useCall("GET /v1/local/clock", {}, { pollMs: 10_000 });
  const [by, setBy] = useState("");
  const moved = (data) => {
    setAhead(data.aheadS * 1000);
    state.reload();
    onMove?.();
  };
  const [move, { busy, error }] = useAction(async (advance) => {
    moved(await call("POST /v1/local/clock", { body: { advance, timeoutS: 600 } }));
    toast("Clock moved. Everything due by now has happened.");
  });
  const [settle, settling] = useAction(async () => {
    moved(await call("POST /v1/local/settle", { body: {} }));
    toast("Nothing is due at this time");
  });
  const { data } = state;
  if (!data) return state.error && html`<${Card} title="Clock"><${ErrorNote} error=${state.error} retry=${state.reload} /><//>`;
  const buttons = STEPS.map(([step, label]) => html`<${Button} key=${step} busy=${busy} onClick=${() => move(step)}>${label}<//>`);
  return html`<${Card} title="Clock"><div class="stack">
    <p class="soft">Move the clock forward to see retries, scheduled messages, expiries and new days. You can't move it back.</p>
    <${Facts} items=${[["Service time", html`<${Time} at=${data.serviceTime} />`], ["Ahead of this computer", data.aheadS ? duration(data.aheadS * 1000) : "not moved"]]} />
    <${Form} class="row" onSubmit=${() => move(by.trim())}>${buttons}
      <${TextField} label="Duration" hideLabel placeholder="1d12h" value=${by} onValue=${setBy} error=${fieldError(error, "advance")} />
      <${Button} type="submit" disabled=${!by.trim()} busy=${busy}>Move<//>
      <${Button} kind="quiet" busy=${settling.busy} onClick=${settle}>Wait until nothing is due<//><//>
    <${ErrorNote} error=${error ?? settling.error} fields=${["advance"]} />
  </div><//>`;
}
