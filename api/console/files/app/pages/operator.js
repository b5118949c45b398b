// The operator's part: processes, shards, queue, destinations, accounts and reviews of the whole service.
import { operatorCell, useCall } from "../core/api.js";
import { go } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { PageHead, SelectField, Tabs } from "../core/ui.js";
import { html } from "../core/view.js";

const PARTS = {
  __proto__: null,
  nodes: { title: "Processes", name: "OperatorNodes", load: () => import("../parts/operator_nodes.js") },
  shards: { title: "Shards", name: "OperatorShards", load: () => import("../parts/operator_shards.js") },
  queue: { title: "Queue", name: "OperatorQueue", load: () => import("../parts/operator_queue.js") },
  held: { title: "Held mail", name: "OperatorHeld", load: () => import("../parts/operator_queue.js") },
  sites: { title: "Destinations", name: "OperatorSites", load: () => import("../parts/operator_sites.js") },
  accounts: { title: "Accounts", name: "OperatorAccounts", load: () => import("../parts/operator_accounts.js") },
  reviews: { title: "Reviews", name: "OperatorReviews", load: () => import("../parts/operator_reviews.js") },
};
const DETAILS = {
  __proto__: null,
  sites: { name: "OperatorSite", load: PARTS.sites.load },
  accounts: { name: "OperatorAccount", load: PARTS.accounts.load },
  reviews: { name: "OperatorReview", load: PARTS.reviews.load },
};

/** The page of one part, or with `id` of one thing of it. */
export function Operator({ part = "nodes", id }) {
  const detail = id && DETAILS[part];
  if (detail) return html`<${Lazy} key=${`${part} ${id}`} load=${detail.load} name=${detail.name} id=${id} />`;
  const known = PARTS[part] ? part : "nodes";
  const { load, name } = PARTS[known];
  return html`<${PageHead} title="Operator" lead="Everything the ops command shows and does, for the people listed in WAYBILL_OPERATORS." chip=${html`<${Cells} />`} />
    <${Tabs} label="Parts of the service" items=${Object.entries(PARTS).map(([key, one]) => [key, one.title])} current=${known} onSelect=${(key) => go(`/operator/${key}`)} />
    <${Lazy} key=${`${known} ${operatorCell.value}`} load=${load} name=${name} />`;
}

/** The choice of a cell, in an installation with several. */
function Cells() {
  const { data } = useCall("GET /v1/operator/cells");
  const cells = data?.data ?? [];
  if (cells.length < 2) return null;
  const current = operatorCell.value || cells.find((one) => one.own)?.name;
  return html`<${SelectField} label="Cell" hideLabel value=${current} onValue=${(name) => { operatorCell.value = name; }} options=${cells.map((one) => [one.name, `Cell ${one.name}`])} />`;
}
