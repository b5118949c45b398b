// A DNS record as published against the record that is wanted, character by character. Pure functions.

const MAX_COMPARED = 1200; // characters of the part that differs; a longer part counts as different throughout

/**
 * Return how `found` differs from `wanted`: [[kind, text], …] with kind "same", "missing" (only in `wanted`) or "extra"
 * (only in `found`). The pieces without "extra" spell `wanted`, those without "missing" spell `found`.
 */
export function differences(wanted, found) {
  const limit = Math.min(wanted.length, found.length);
  let start = 0;
  while (start < limit && wanted[start] === found[start]) start += 1;
  let end = 0;
  while (end < limit - start && wanted[wanted.length - 1 - end] === found[found.length - 1 - end]) end += 1;
  const middle = middlePieces(wanted.slice(start, wanted.length - end), found.slice(start, found.length - end));
  return merged([["same", wanted.slice(0, start)], ...middle, ["same", end ? wanted.slice(-end) : ""]]);
}

/** Return the pieces of two texts by their longest common subsequence. */
function middlePieces(wanted, found) {
  if (wanted.length > MAX_COMPARED || found.length > MAX_COMPARED) return [["missing", wanted], ["extra", found]];
  const width = found.length + 1;
  const lengths = new Uint16Array((wanted.length + 1) * width); // of the common subsequences of the texts' ends
  for (let row = wanted.length - 1; row >= 0; row -= 1) {
    for (let column = found.length - 1; column >= 0; column -= 1) {
      const below = (row + 1) * width + column;
      lengths[row * width + column] = wanted[row] === found[column] ? lengths[below + 1] + 1 : Math.max(lengths[below], lengths[row * width + column + 1]);
    }
  }
  const pieces = [];
  let row = 0;
  let column = 0;
  while (row < wanted.length && column < found.length) {
    if (wanted[row] === found[column]) {
      pieces.push(["same", wanted[row]]);
      row += 1;
      column += 1;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) {
      pieces.push(["missing", wanted[row]]);
      row += 1;
    } else {
      pieces.push(["extra", found[column]]);
      column += 1;
    }
  }
  return [...pieces, ["missing", wanted.slice(row)], ["extra", found.slice(column)]];
}

function merged(pieces) {
  const joined = [];
  for (const [kind, text] of pieces) {
    if (!text) continue;
    if (joined.length && joined.at(-1)[0] === kind) joined.at(-1)[1] += text;
    else joined.push([kind, text]);
  }
  return joined;
}

/** Return the value of `found` that is closest to the wanted record: the one with the same version tag, else the first. */
export function closest(record, found) {
  const version = record.value.split(/[;\s]/, 1)[0].toLowerCase();
  return found.find((one) => one === record.value) ?? found.find((one) => one.toLowerCase().replace(/^["'\s]+/, "").startsWith(version)) ?? found[0] ?? null;
}

/** Return sentences that name the mistakes in a record {type, value, found, mistake}; the check itself names some. */
export function mistakes(record) {
  const told = record.mistake ? [record.mistake] : [];
  const found = closest(record, record.found);
  if (found === null || found === record.value || (told.length && record.type !== "TXT")) return told;
  const ofType = { TXT: textMistakes, MX: mailServerMistakes, CNAME: aliasMistakes }[record.type] ?? textMistakes;
  return [...ofType(record, found), ...told];
}

function textMistakes(record, found) {
  const { value } = record;
  const bare = found.trim().replace(/^["'“”]+|["'“”]+$/g, "");
  const joined = (text) => text.replace(/["“”]\s*["“”]/g, "").replace(/\s+/g, "");
  if (found !== bare && joined(bare) === joined(value)) return ["The value has quotation marks or spaces around it. Enter it without them; your DNS provider adds its own."];
  if (/^["“]|["”]$/.test(found)) return [/^["“].*["”]$/s.test(found) ? "The value contains quotation marks. Enter it without them." : "The value contains a single quotation mark. Enter it without quotation marks."];
  if (found.replaceAll("\\;", ";").replaceAll('\\"', '"') === value) return ["The value has backslashes before its semicolons. Enter the semicolons only."];
  if (found.replace(/\s+/g, "") === value.replace(/\s+/g, "")) return ["The spaces differ. Spaces between tags are fine, but not inside a tag's name."];
  if (found.toLowerCase() === value.toLowerCase()) return ["Upper and lower case differ, and it matters here. Copy the value again."];
  if (value.startsWith(found)) return [`The value ends after ${found.length} of ${value.length} characters. Some DNS providers cut at 255. Enter the rest as a second quoted string in the same record.`];
  if (value.endsWith(found)) return [`The first ${value.length - found.length} characters are missing.`];
  if (found.includes(value)) return ["The record contains more than the value. Remove the rest."];
  if (record.purpose === "dkim" && !/p=/.test(found)) return ["Another record at this name has no key. Replace it."];
  if (record.purpose === "dkim") return ["The key is different: from an earlier setup, or another service uses this name. Replace it."];
  return [];
}

function mailServerMistakes(record, found) {
  const [priority, server] = record.value.split(/\s+/);
  const [itsPriority, itsServer = ""] = found.split(/\s+/);
  if (itsServer !== server) return [`Email to this name goes to ${itsServer || found}. With the record, it goes to ${server} instead.`];
  return itsPriority === priority ? [] : [`The priority is ${itsPriority}, not ${priority}. It only matters if there are other mail servers.`];
}

function aliasMistakes(record, found) {
  return [`The name is an alias of ${found}. Change its target to ${record.value}.`];
}

/** Return a domain name and its parents with at least two labels: the zones in which its records may be. */
export function suffixes(domain) {
  const labels = domain.split(".");
  return labels.slice(0, -1).map((_, at) => labels.slice(at).join("."));
}

/** Return the name of a record relative to its zone: "@" for the zone itself, the whole name if it is elsewhere. */
export function relativeName(host, zone) {
  if (host === zone) return "@";
  return host.endsWith(`.${zone}`) ? host.slice(0, -zone.length - 1) : host;
}
