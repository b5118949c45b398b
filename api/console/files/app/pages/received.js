// One received mail on a page of its own, as narrow screens and links show it.
import { go } from "../core/router.js";
import { html } from "../core/view.js";
import { ReceivedDetail } from "../parts/received_detail.js";

export function ReceivedMessage({ id }) {
  return html`<${ReceivedDetail} id=${id} page onGone=${() => go("/inbox")} />`;
}
