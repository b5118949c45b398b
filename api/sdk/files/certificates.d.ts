export type CertificateFailure =
  | "malformed_certificate"
  | "unsupported_algorithm"
  | "unsupported_version"
  | "unknown_key"
  | "retired_key"
  | "signature_mismatch"
  | "message_mismatch"
  | "recipient_mismatch"
  | "not_in_certificate";

export class CertificateError extends Error {
  reason: CertificateFailure;
}

export interface CertifiedServer {
  host: string | null;
  ip: string | null;
  tls: { version: string | null; cipher: string | null; certificate: string | null; policy: string | null } | null;
  reply: string | null;
  smtpCode: number | null;
  enhancedCode: string | null;
}

export interface CertifiedRecipient {
  kind: "to" | "cc" | "bcc" | null;
  addressSha256: string | null;
  outcome: string;
  at: string | null;
  deliveredAt: string | null;
  simulated: boolean;
  server: CertifiedServer | null;
}

/** What the service signed. `missing` names the parts that it no longer stored. */
export interface CertificateStatement {
  version: 1;
  installation: string;
  issuedAt: string;
  account: string;
  message: string;
  acceptedAt: string;
  deliveredAt: string | null;
  content: {
    sha256: string;
    sizeBytes: number;
    bodySha256: string;
    headerSha256: { [field: string]: string | null };
  } | null;
  recipients: CertifiedRecipient[];
  events: Array<{ seq: number; type: string; occurredAt: string; hashSha256: string | null }>;
  log: { seq: number; hashSha256: string };
  missing: string[];
}

export interface VerifiedCertificate {
  statement: CertificateStatement;
  key: { kid: string; x: string; madeAt?: string; retiredAt?: string };
  /** `same`: a mail server changed fields that the certificate does not cover. Null unless a message was given. */
  message: "identical" | "same" | null;
  recipient: CertifiedRecipient | null;
}

/**
 * Return what a certificate says if its signature is valid; throws CertificateError.
 *
 * `certificate`: the reply of `GET /v1/messages/{id}/certificate`, as an object or as JSON. `keys`: the JWK set at
 * `/.well-known/waybill/keys` of the service that you know. `message`: the message as sent or as received, which must be
 * the certified one. `recipient`: an address that must be among its recipients.
 */
export function verifyCertificate(
  certificate: object | string,
  keys: object | string,
  options?: { message?: string | ArrayBuffer | Uint8Array | null; recipient?: string | null },
): Promise<VerifiedCertificate>;
