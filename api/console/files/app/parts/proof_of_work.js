// The small task that a sign-up may demand: find the number whose SHA-256 with a salt is the given digest.
// It runs in slices of a few milliseconds, so that the page stays responsive, and needs no secure context.
const SLICE_MS = 10;
const fraction = (value) => Math.floor((value - Math.floor(value)) * 2 ** 32);
const ROUND = Uint32Array.from(primes(64), (prime) => fraction(Math.cbrt(prime)));
const START = Uint32Array.from(primes(8), (prime) => fraction(Math.sqrt(prime)));

function primes(count) {
  const found = [];
  for (let number = 2; found.length < count; number += 1) {
    if (found.every((prime) => number % prime)) found.push(number);
  }
  return found;
}

/** Return the SHA-256 (FIPS 180-4) of ASCII text as eight words. */
export function sha256(text) {
  const length = text.length;
  const blocks = Math.ceil((length + 9) / 64);
  const words = new Uint32Array(blocks * 16);
  for (let at = 0; at < length; at += 1) words[at >> 2] |= text.charCodeAt(at) << (24 - (at % 4) * 8);
  words[length >> 2] |= 0x80 << (24 - (length % 4) * 8);
  words[words.length - 1] = length * 8;
  const state = START.slice();
  const schedule = new Uint32Array(64);
  for (let block = 0; block < blocks; block += 1) compress(state, words.subarray(block * 16, block * 16 + 16), schedule);
  return state;
}

const turn = (word, by) => (word >>> by) | (word << (32 - by));

function compress(state, block, schedule) {
  schedule.set(block);
  for (let at = 16; at < 64; at += 1) {
    const early = schedule[at - 15];
    const late = schedule[at - 2];
    schedule[at] = schedule[at - 16] + (turn(early, 7) ^ turn(early, 18) ^ (early >>> 3)) + schedule[at - 7] + (turn(late, 17) ^ turn(late, 19) ^ (late >>> 10));
  }
  let a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (let at = 0; at < 64; at += 1) {
    const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUND[at] + schedule[at]) | 0;
    const second = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + first) | 0; d = c; c = b; b = a; a = (first + second) | 0;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

/** Return the solution of a challenge in the form that the API takes as `challengeToken`; null if it has none. */
export async function solve({ algorithm, challenge, maxnumber, salt, signature }, aborted = () => false) {
  const wanted = Uint32Array.from(challenge.match(/.{8}/g), (word) => parseInt(word, 16));
  let until = performance.now() + SLICE_MS;
  for (let number = 0; number <= maxnumber; number += 1) {
    const digest = sha256(salt + number);
    if (digest[0] === wanted[0] && wanted.every((word, at) => word === digest[at])) return btoa(JSON.stringify({ algorithm, challenge, number, salt, signature }));
    if (number % 64 === 0 && performance.now() > until) {
      if (aborted()) return null;
      await new Promise((resume) => setTimeout(resume));
      until = performance.now() + SLICE_MS;
    }
  }
  return null;
}
