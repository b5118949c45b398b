// The browser and system that a User-Agent names, in words for people.
const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["SamsungBrowser/", "Samsung Internet"], ["Firefox/", "Firefox"], ["FxiOS/", "Firefox"], ["CriOS/", "Chrome"], ["HeadlessChrome/", "Chrome"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["iPhone", "iPhone"], ["iPad", "iPad"], ["Android", "Android"], ["Windows", "Windows"], ["CrOS", "ChromeOS"], ["Mac OS X", "macOS"], ["Linux", "Linux"]];

const named = (table, agent) => table.find(([mark]) => agent.includes(mark))?.[1];

/** Return "Firefox on Linux", or the first word of an unknown User-Agent. */
export function deviceOf(agent) {
  const browser = named(BROWSERS, agent);
  const system = named(SYSTEMS, agent);
  if (browser && system) return `${browser} on ${system}`;
  return browser ?? system ?? (agent.split(/[\s/]/)[0] || "Unknown device");
}
