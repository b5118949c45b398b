// Why an address is suppressed.
import { Chip } from "../core/ui.js";
import { html } from "../core/view.js";

const REASONS = {
  bounce: ["bad", "The receiving server refused the address for good."],
  complaint: ["bad", "The person reported a message as spam. This can't be lifted."],
  unsubscribe: ["warn", "The person unsubscribed: streams other than transactional are blocked."],
  manual: ["", "Added by hand or by a key: all mail is blocked."],
};

/** The sentence about what a reason means. */
export const reasonText = (reason) => REASONS[reason]?.[1] ?? "";

/** The reason of a suppression as a chip, explained on hover. */
export function ReasonChip({ reason }) {
  return html`<span title=${reasonText(reason)}><${Chip} tone=${REASONS[reason]?.[0] ?? ""}>${reason}<//></span>`;
}
