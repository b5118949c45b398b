import type { Waybill } from "./waybill.mjs";
import type { WebhookEvent } from "./webhooks.mjs";

/** A running service: its API, the key of its first account, and the port for mail from outside. */
export interface TwinService {
  baseUrl: string;
  apiKey: string;
  mxPort: number;
}

/**
 * Return a private service. It runs until the last process that uses it ends.
 *
 * WAYBILL_COMMAND is the command line that starts it (default: `waybill`). WAYBILL_TWIN_KEEP=1 lets it run for the next
 * test run. Linux and macOS.
 */
export function runningService(): Promise<TwinService>;

/** The part of a test's context that `openTwin` uses: that of `node:test` has it. */
export interface TestLike {
  name?: string;
  after?(close: () => Promise<void>): unknown;
}

/** Open an account for one test. With the context of a test of `node:test`, it is closed after the test. */
export function openTwin(t?: TestLike): Promise<Twin>;

/** A mail that arrived in the sink. */
export class TwinMail {
  id: string;
  messageId: string;
  sender: string;
  recipients: string[];
  subject: string;
  text: string;
  html: string;
  headers: Array<{ name: string; value: string }>;
  attachments: Array<{ [name: string]: unknown }>;
  /** The mail as it was sent, signature and all. */
  readonly raw: Uint8Array;
  /** The links of the HTML, then those of the text, each once. */
  get links(): string[];
  /** The one number of 4 to 8 digits in the text; throws AssertionError if there is none or more than one. */
  get code(): string;
  /** Return the value of the first header field of this name, in any case; null if there is none. */
  header(name: string): string | null;
}

/** A post as it arrived, with its event; the signature was checked. */
export interface Post {
  /** With names in lower case, as in `request.headers` of Node. */
  headers: { [name: string]: string | string[] | undefined };
  body: Uint8Array;
  event: WebhookEvent;
}

/** A webhook endpoint on this machine. Its posts are checked, kept, and answered with 204. */
export class WebhookReceiver {
  static open(): Promise<WebhookReceiver>;
  secret: string;
  /** The address to post to. */
  get url(): string;
  /** The posts that were accepted, in their order of arrival. */
  get posts(): Post[];
  /** Return the first event of a type for which `where` is true; throws AssertionError after `timeoutMs` (10,000). */
  waitFor<T extends WebhookEvent["type"]>(
    type: T,
    options?: { where?: (event: Extract<WebhookEvent, { type: T }>) => boolean; timeoutMs?: number },
  ): Promise<Extract<WebhookEvent, { type: T }>>;
  /** Answer posts with 503, as an application does that is down. The service tries again later. */
  pause(): void;
  /** Accept posts again. */
  resume(): void;
  /**
   * Call the code under test with body and headers of each accepted post: `times` times, and in the order that `seed`
   * draws. Posts may be doubled and change places; a handler must bear both.
   */
  handTo(
    handler: (body: Uint8Array, headers: Post["headers"]) => unknown,
    options?: { times?: number; seed?: number | null },
  ): Promise<void>;
  /** Return the headers of a post with this body, signed with the secret of this endpoint; nothing is sent. */
  signed(body: string | Uint8Array): { "content-type": string; "service-signature": string };
  /** Stop listening. */
  close(): Promise<void>;
}

/** A mail from outside: `raw` is the whole mail, else it is written from the rest. */
export interface OutsideMail {
  to: string;
  /** Default: ann@example.net. */
  from?: string;
  raw?: string | Uint8Array;
  subject?: string;
  text?: string;
  /** The mail that this one answers. */
  replyTo?: TwinMail | null;
  /** Whether a program sends it, such as a notice of absence. */
  automatic?: boolean;
}

/**
 * An account of its own on a service that runs here. Clock and service are shared with the tests of other processes;
 * accounts, messages and events are not.
 */
export class Twin {
  baseUrl: string;
  accountId: string;
  apiKey: string;
  /** A verified domain to send from. */
  domain: string;
  /** A client with the account's key. */
  client: Waybill;
  /**
   * Return the newest mail to an address, if given with this text in its subject, as soon as it has arrived. Throws
   * AssertionError after `timeoutMs` (10,000), with what has happened to the messages of this account.
   */
  waitForMail(to: string, options?: { subject?: string | null; timeoutMs?: number }): Promise<TwinMail>;
  /** Return the mails that have arrived, oldest first. */
  mails(to?: string): Promise<TwinMail[]>;
  /** Check that no mail to an address has arrived, nor will before the clock moves; throws AssertionError. */
  noMail(to: string): Promise<void>;
  /** Return the events of this account, oldest first, all or of one type. */
  events(type?: undefined): Promise<WebhookEvent[]>;
  events<T extends WebhookEvent["type"]>(type: T): Promise<Array<Extract<WebhookEvent, { type: T }>>>;
  /** Wait until no delivery, post or job is due. */
  settle(): Promise<void>;
  /** Let time pass; all that falls due happens in its order: retries, schedules, posts, expiries. */
  advance(by: { days?: number; hours?: number; minutes?: number; seconds?: number }): Promise<void>;
  /** Let time pass until a moment. */
  at(when: Date | string | number): Promise<void>;
  /** Return the time of the service. */
  now(): Promise<Date>;
  /** Send a mail to the service as another server does; return its Message-ID, null if `raw` has none. */
  inject(mail: OutsideMail): Promise<string | null>;
  /** Unsubscribe with one click, as the button of a mailbox provider does (RFC 8058). */
  unsubscribe(mail: TwinMail): Promise<void>;
  /** Return an endpoint that receives all events of this account; it exists from the first call on. */
  webhooks(): Promise<WebhookReceiver>;
  /**
   * Let the next request of `client` to a path (`/v1/emails`) fail: with a 503, or with `afterCommit` by losing the
   * response. The client tries again, and its idempotency key keeps the message from being sent twice.
   */
  failNext(path?: string, options?: { afterCommit?: boolean }): void;
  /** Close the endpoint; the account stays, for looking at it. */
  close(): Promise<void>;
}
