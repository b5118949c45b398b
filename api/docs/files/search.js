// Search of the documentation: the pages and sections that fit the words typed. The docs site and the console's palette
// load it. It knows nothing of a page: `searcher` takes the index (/docs/search.json) and returns a function.

const SHORTEST = 2;
const MAX_OF_PAGE = 3; // results of one page, so that others are seen too
const LEAST_COVERAGE = 0.3; // of the weight of the words typed; below it a section does not fit
const NEAR = 0.6; // of a word's weight, where another section of the page has it
const LEAST_SHARE = 0.15; // of the best score; what fits less than that is left out
const NAMED = 1000; // an identifier typed exactly comes before everything
const LAST = [48, 44]; // digits of the index: first character and base; see search_index.py
const MORE = [93, 34];
const STRENGTH = { exact: 1, joined: 0.9, synonym: 0.65, typo: 0.6, prefix: 0.55 };
const WEIGHT = { title: 4, heading: 2.6, page: 1.6, description: 1.8, text: 1, elsewhere: 0.5, topic: 2.8 };
const GROUPS = { API: 0.5, Operating: 0.55, Reference: 0.9 }; // guides first for plain words
const PAGES = { "api/compatibility": 0.4, "api/emails": 0.6 }; // forms of other services last, sending first
const COMMON = 0.3; // share of the sections that have a word of `common`

/** Return the words of a text in lower case; of camelCase and snake_case the parts follow the whole. */
export function wordsOf(text) {
  const found = [];
  for (const word of text.match(/[\p{L}\p{N}]+(?:_[\p{L}\p{N}]+)*/gu) ?? []) {
    const parts = word.match(/[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+/g) ?? [];
    for (const one of parts.length > 1 ? [word, ...parts] : [word]) if (one.length >= SHORTEST) found.push(one.toLowerCase());
  }
  return found;
}

/** Return the stem of an English word: forms of one verb or noun share it. */
export function stem(word) {
  if (word.length < 4 || /[\d_]/.test(word)) return word;
  let base = word.replace(/ies$/, "y").replace(/(ch|sh|ss|x|z)es$/, "$1").replace(/([^aeiou]ce|[^s])s$/, (all, kept) => (/^[ui]$/.test(kept) ? all : kept));
  base = base.replace(/ied$/, "y").replace(/(..)(?:ing|ed)$/, (all, kept) => (/[aeiouy]/.test(all.replace(/(ing|ed)$/, "")) || base.length > 6 ? kept : all));
  base = base.replace(/([bdfgmnprt])\1$/, "$1").replace(/(al|e|ent)ly$/, "$1").replace(/ification$/, "ify").replace(/ability$/, "").replace(/ity$/, "").replace(/ery$/, "er");
  base = base.replace(/(.{3})(?:ations?|ate|at)$/, "$1").replace(/(.{3}[st])ion$/, "$1").replace(/(.{3})ure$/, "$1");
  return base.replace(/(.{2})e$/, "$1").replace(/y$/, "i");
}

/** Return true if one letter is missing, added, replaced, or exchanged with its neighbour. */
export function nearly(one, other) {
  const difference = one.length - other.length;
  if (Math.abs(difference) > 1) return false;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  if (difference > 0) return one.slice(at + 1) === other.slice(at);
  if (difference < 0) return one.slice(at) === other.slice(at + 1);
  return one.slice(at + 1) === other.slice(at + 1) || (one[at] === other[at + 1] && one[at + 1] === other[at] && one.slice(at + 2) === other.slice(at + 2));
}

function numbers(packed) {
  const found = [];
  let place = 0;
  let high = 0;
  for (const char of packed) {
    const code = char.charCodeAt(0);
    if (code >= MORE[0]) high = high * MORE[1] + code - MORE[0];
    else {
      place += high * LAST[1] + code - LAST[0];
      high = 0;
      found.push(place);
    }
  }
  return found;
}

const anchorOf = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/-$/, "");

/** Read an index once: the weights of each stem by section, and which sections a page has. */
function read(index) {
  const pages = index.pages.map(([address, title, description, group]) => ({ address, title, description, group, factor: PAGES[address.split("/docs/")[1]] ?? GROUPS[group] ?? 1, sections: [] }));
  const sections = index.sections.map(([page, title, ...rest], number) => {
    const named = rest.length > 1; // an operation: operationId, then "POST /v1/emails"
    const anchor = named ? anchorOf(rest[1]) : rest[0];
    const first = pages[page].sections.push(number) === 1;
    const names = [title, ...(named ? [...rest, rest[1].split(" ")[1]] : [])].map((one) => one.toLowerCase());
    const { title: pageTitle, group } = pages[page];
    const place = first ? group : group === "API" ? `${pageTitle} · API` : pageTitle;
    return { page: pages[page], title, first, names, place, address: pages[page].address + (anchor && `#${anchor}`) };
  });
  const stems = new Map(); // stem → Map(section → weight)
  const forms = new Map(); // word as written → stem
  const add = (word, place, weight) => {
    const base = forms.get(word) ?? stem(word);
    forms.set(word, base);
    if (!stems.has(base)) stems.set(base, new Map());
    const known = stems.get(base);
    known.set(place, Math.max(known.get(place) ?? 0, weight));
  };
  const packed = index.places.split(" ");
  index.words.split(" ").forEach((word, at) => numbers(packed[at]).forEach((place) => add(word, place, WEIGHT.text)));
  for (const [field, places] of Object.entries(index.fields)) numbers(places).forEach((place) => add(field, place, WEIGHT.text));
  sections.forEach(({ page, title, first }, place) => {
    for (const word of wordsOf(title)) add(word, place, first ? WEIGHT.title : WEIGHT.heading);
    if (first) for (const word of wordsOf(page.description)) add(word, place, WEIGHT.description);
    else for (const word of wordsOf(page.title)) add(word, place, WEIGHT.page);
  });
  for (const page of pages) {
    const slug = page.address.split("/docs/")[1] ?? "index";
    for (const word of wordsOf(index.topics[slug] ?? "")) add(word, page.sections[0], WEIGHT.topic);
    if (!(page.group in GROUPS)) for (const word of wordsOf(slug)) add(word, page.sections[0], WEIGHT.title);
  }
  const common = new Set(index.common.split(" ").map((word) => { forms.set(word, stem(word)); return stem(word); }));
  return { pages, sections, stems, forms, common };
}

/** Return for the stem of each word those of the words that readers use for it. */
function synonymsOf(lines) {
  const same = new Map();
  for (const line of lines) {
    const words = line.split(" ").map((word) => stem(word.replace(/[^a-z0-9]/g, "")));
    for (const word of words) same.set(word, [...(same.get(word) ?? []), ...words.filter((one) => one !== word)]);
  }
  return same;
}

/** Return a function that returns the sections that fit a text, best first: [{address, title, place}]. */
export function searcher(index) {
  const known = read(index);
  const ignored = new Set(index.ignored.split(/\s+/));
  const same = synonymsOf(index.same);
  const rarity = (places) => Math.log(1 + known.sections.length / Math.max(places, 1));

  /** Return the stems that a typed word may mean, each with how sure that is. */
  function meanings(word, joined, last) {
    const base = stem(word);
    const found = new Map();
    const offer = (one, strength) => { if (known.stems.has(one)) found.set(one, Math.max(found.get(one) ?? 0, strength)); };
    offer(base, STRENGTH.exact);
    for (const one of joined) offer(stem(one), STRENGTH.joined);
    for (const one of same.get(base) ?? []) offer(one, STRENGTH.synonym);
    if (last && word.length >= SHORTEST) for (const [form, one] of known.forms) if (form.startsWith(word)) offer(one, STRENGTH.prefix);
    if (!found.size && word.length >= 4) {
      for (const [form, one] of known.forms) {
        if (!nearly(word, form) && !nearly(base, one)) continue;
        offer(one, STRENGTH.typo);
        for (const other of same.get(one) ?? []) offer(other, STRENGTH.typo * STRENGTH.synonym);
      }
    }
    return found;
  }

  /** Return for a word its weight, and its points by section. */
  function term(word, joined, last) {
    const points = new Map();
    const sure = new Map(); // how sure the meaning is that fits a section
    let best = 0;
    for (const [one, strength] of meanings(word, joined, last)) {
      const places = known.stems.get(one);
      best = Math.max(best, strength * rarity(known.common.has(one) ? COMMON * known.sections.length : places.size));
      for (const [place, weight] of places) {
        points.set(place, Math.max(points.get(place) ?? 0, strength * weight));
        sure.set(place, Math.max(sure.get(place) ?? 0, strength));
      }
    }
    return { rarity: points.size ? best : rarity(8), points, sure };
  }

  return function search(text, most = 12) {
    const typed = text.trim().toLowerCase();
    const all = wordsOf(text.replace(/['’]s\b/g, ""));
    const words = all.some((word) => !ignored.has(word)) ? all.filter((word) => !ignored.has(word)) : all;
    const terms = words.map((word, at) => {
      const joined = [words[at - 1] && words[at - 1] + word, words[at + 1] && word + words[at + 1]].filter((one) => one && known.forms.has(one));
      return term(word, joined, at === words.length - 1 && /[\p{L}\p{N}]$/u.test(text));
    });
    const fields = /[a-z][A-Z]|_/.test(text) ? numbers(index.fields[typed] ?? "") : [];
    const total = terms.reduce((sum, one) => sum + one.rarity, 0);
    const found = [];
    for (const page of known.pages) {
      const best = terms.map(({ points }) => Math.max(0, ...page.sections.map((place) => points.get(place) ?? 0)));
      if (!best.some(Boolean) && !page.sections.some((place) => known.sections[place].names.includes(typed))) continue;
      for (const place of page.sections) {
        const section = known.sections[place];
        let score = 0;
        let covered = 0;
        let own = 0;
        terms.forEach(({ rarity: weight, points, sure }, at) => {
          const here = points.get(place) ?? 0;
          own += here;
          score += weight * (here + best[at] * WEIGHT.elsewhere);
          if (here) covered += weight * Math.sqrt(sure.get(place)); else if (best[at]) covered += weight * NEAR;
        });
        const coverage = total ? covered / total : 0;
        const named = section.names.includes(typed) || fields.includes(place);
        if (!named && (!own || coverage < LEAST_COVERAGE)) continue;
        const fit = score * coverage ** 3 * page.factor;
        found.push({ section, fit, score: fit + (named ? NAMED * page.factor : 0) });
      }
    }
    return chosen(found).slice(0, most).map(({ section: { address, title, place } }) => ({ address, title, place }));
  };
}

/** Return the results in order, without those that hardly fit and without too many of one page. */
function chosen(found) {
  const least = LEAST_SHARE * Math.max(0, ...found.map(({ fit }) => fit));
  const shown = new Map();
  return found.sort((one, other) => other.score - one.score).filter(({ section: { page }, score }) => {
    shown.set(page, (shown.get(page) ?? 0) + 1);
    return score >= least && shown.get(page) <= MAX_OF_PAGE;
  });
}
