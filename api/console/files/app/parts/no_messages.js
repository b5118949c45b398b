// What the list of messages shows without rows.
import { setQuery } from "../core/router.js";
import { Button, Empty } from "../core/ui.js";
import { html } from "../core/view.js";
import { FILTERS } from "./message_filters.js";

export function NoMatch() {
  const clear = () => setQuery(Object.fromEntries([...FILTERS.map((one) => [one.name, null]), ["range", null], ["from", null], ["until", null]]));
  return html`<${Empty} icon="search" title="No message matches" action=${html`<${Button} onClick=${clear}>Clear all filters<//>`}>Messages appear here as soon as one fits the filters. Take one filter away, or choose a longer time.<//>`;
}

export function NoMessages() {
  const curl = `curl ${window.location.origin}/v1/emails \\
  -H "Authorization: Bearer $KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"from": "you@your-domain.example", "to": ["ann@example.com"], "subject": "Hello", "text": "It works."}'`;
  return html`<${Empty} icon="send" title="No messages yet" curl=${curl} action=${html`<${Button} kind="primary" to="/messages/new">Send a message<//>`}>Each message that you send by API or SMTP is listed here with its status, and opens to its waybill: every attempt, the server's answers and the times.<//>`;
}
