// The delivery history of one address.
export { AddressPage } from "../parts/bounces.js";
