// Why an address is suppressed.
import { Chip } from "../core/ui.js";
import { html } from "../core/view.js";

// By reason: the colour, what it means, and the word on the chip.
const REASONS = {
  bounce: ["bad", "The recipient's mail server rejected the address permanently.", "bounced"],
  complaint: ["bad", "The person reported a message as spam. You can't remove this.", "complained"],
  unsubscribe: ["warn", "The person unsubscribed. Only transactional email is sent.", "unsubscribed"],
  manual: ["", "Added by hand or by a key. All email is blocked.", "manual"],
};

/** The sentence about what a reason means. */
export const reasonText = (reason) => REASONS[reason]?.[1] ?? "";

/** The reason of a suppression as a chip, explained on hover. */
export function ReasonChip({ reason }) {
  return html`<span title=${reasonText(reason)}><${Chip} tone=${REASONS[reason]?.[0] ?? ""}>${REASONS[reason]?.[2] ?? reason}<//></span>`;
}
