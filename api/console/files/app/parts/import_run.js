// Reads a file of contacts twice: once to check it, once to send it in batches.
import { ApiError, call } from "../core/api.js";
import { contactBatches } from "./contact_rows.js";

export const MAX_ROWS = 1_000_000;
export const MAX_KEPT = 50_000; // faults, for the report
const ATTEMPTS = 4;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Check every row and send nothing: {valid, invalid, duplicates, faults, total}. `onProgress(share)` from 0 to 1. */
export async function dryRun(file, columns, { signal, onProgress }) {
  const seen = new Map(); // address to its first row
  const result = { valid: 0, invalid: 0, duplicates: 0, faults: [] };
  for await (const { batch, faults, readBytes } of contactBatches(file, columns, { signal })) {
    result.invalid += faults.length;
    keep(result.faults, faults);
    for (const { row, contact } of batch) {
      const address = contact.email.toLowerCase();
      const first = seen.get(address);
      if (first === undefined) {
        seen.set(address, row);
        result.valid += 1;
      } else {
        result.duplicates += 1;
        keep(result.faults, [{ row, email: contact.email, text: `Same address as row ${first}; the two are merged.`, merged: true }]);
      }
    }
    if (seen.size + result.invalid > MAX_ROWS) throw new RangeError(`The file has more than ${MAX_ROWS.toLocaleString("en")} rows. Split it.`);
    onProgress(readBytes / file.size);
    await pause(0); // let the page draw
  }
  return result;
}

/**
 * Send the contacts of a file, 1,000 in a request. `onProgress(share, totals)` after each. Ends early when `signal`
 * aborts; what was sent stays. Raises the ApiError of a batch that was refused for good, with `totals`.
 */
export async function sendAll(file, columns, { consent, list, signal, onProgress }) {
  const totals = { created: 0, updated: 0, unchanged: 0, suppressed: 0, overLimit: 0, invalid: 0, sent: 0, faults: [] };
  for await (const { batch, faults, readBytes } of contactBatches(file, columns, { signal })) {
    totals.invalid += faults.length;
    keep(totals.faults, faults);
    if (batch.length && !signal.aborted) {
      const reply = await sendBatch({ contacts: batch.map((one) => one.contact), consent, list: list || null }, signal).catch((error) => {
        error.totals = totals;
        throw error;
      });
      if (reply) add(totals, reply, batch);
    }
    onProgress(readBytes / file.size, { ...totals });
  }
  return totals;
}

function add(totals, reply, batch) {
  for (const name of ["created", "updated", "unchanged", "suppressed", "overLimit"]) totals[name] += reply[name];
  totals.invalid += reply.invalid.length;
  totals.sent += batch.length;
  keep(totals.faults, reply.invalid.map(({ index, error }) => ({ row: batch[index].row, email: batch[index].contact.email, text: error.message })));
}

/** Send one batch, again after a pause where that is safe: an import merges by address. Null once cancelled. */
async function sendBatch(body, signal) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await call("POST /v1/contacts/import", { body, quiet: attempt > 1, signal, timeoutMs: 120_000 });
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof ApiError)) throw error;
      const later = error.status === 429 || error.status === 503 || error.status === 0;
      if (!later || attempt === ATTEMPTS) throw error;
      await pause((error.retryAfterS ?? 2 ** attempt) * 1000);
    }
  }
}

function keep(kept, more) {
  for (const one of more.slice(0, MAX_KEPT - kept.length)) kept.push(one);
}
