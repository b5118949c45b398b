// The workbench of one webhook endpoint.
export { Webhook } from "../parts/webhook_workbench.js";
