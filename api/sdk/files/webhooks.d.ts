import type { WebhookEvent } from "./waybill.mjs";

export type { WebhookEvent };

export const DEFAULT_TOLERANCE_S: number;

export type VerificationFailure =
  | "malformed_header"
  | "unsupported_version"
  | "signature_mismatch"
  | "timestamp_too_old"
  | "timestamp_in_future"
  | "malformed_body";

export class WebhookVerificationError extends Error {
  reason: VerificationFailure;
}

/**
 * Return the event of a webhook request if its signature is valid; throws WebhookVerificationError.
 *
 * `body`: the body as received, before any parsing. `header`: the value of `Service-Signature`, or all headers of the
 * request: without ours, those of Standard Webhooks are verified. `secret`: the signing secret of the endpoint, or
 * several of them.
 */
export function verify(
  body: string | ArrayBuffer | Uint8Array,
  header: string | Headers | Record<string, string | string[] | undefined> | null | undefined,
  secret: string | string[],
  options?: { toleranceS?: number; now?: number },
): Promise<WebhookEvent>;
