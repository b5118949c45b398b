// Name, address and tax id on invoices: the fields, and the card that changes them.
import { call, useAction, whyNot } from "../core/api.js";
import { Button, Card, ErrorNote, fieldError, Form, SelectField, TextField, toast } from "../core/ui.js";
import { html, useMemo, useState } from "../core/view.js";

const FIELDS = ["legalName", "country", "address", "taxId", "email"];
// ISO 3166-1 alpha-2, as the service knows them.
const CODES = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW";

/** Return the stored profile as texts of fields. */
export const writtenFields = (profile) => Object.fromEntries(FIELDS.map((name) => [name, profile?.[name] ?? ""]));

/** Return the texts of fields as a profile: what is empty is null. */
export const readFields = (values) => Object.fromEntries(FIELDS.map((name) => [name, values[name].trim() || null]));

const told = (error, name) => fieldError(error, `profile.${name}`) ?? fieldError(error, name);

/** The fields of the buyer, with the refusal of the service at its field. */
export function BillingFields({ values, setValues, error, readonly = false }) {
  const countries = useMemo(() => {
    const names = new Intl.DisplayNames(["en"], { type: "region" });
    return [["", "Choose a country"], ...CODES.split(" ").map((code) => [code, names.of(code)]).sort((one, other) => one[1].localeCompare(other[1]))];
  }, []);
  const set = (name) => (value) => setValues({ ...values, [name]: value });
  const field = (name, rest) => html`<${TextField} value=${values[name]} onValue=${set(name)} error=${told(error, name)} readonly=${readonly} ...${rest} />`;
  return html`
    ${field("legalName", { label: "Name on invoices", required: true, maxlength: 200, autocomplete: "organization" })}
    <${SelectField} label="Country" required disabled=${readonly} value=${values.country} onValue=${set("country")} options=${countries} error=${told(error, "country")} autocomplete="country" />
    ${field("address", { label: "Postal address (optional)", rows: 3, maxlength: 500, autocomplete: "street-address" })}
    ${field("taxId", { label: "Tax id (optional)", hint: "If you enter a VAT ID from an EU country other than the seller's, you pay the VAT yourself (reverse charge).", maxlength: 40, autocomplete: "off" })}
    ${field("email", { label: "Email address for invoices (optional)", type: "email", maxlength: 320, autocomplete: "email" })}
    <${ErrorNote} error=${FIELDS.some((name) => told(error, name)) ? null : error} />`;
}

/** The card that changes them between purchases. */
export function BillingProfileCard({ profile, onChanged }) {
  const [values, setValues] = useState(() => writtenFields(profile));
  const why = whyNot("admin") ?? undefined;
  const [save, { busy, error }] = useAction(async () => {
    await call("PATCH /v1/billing/profile", { body: readFields(values) });
    toast("Invoice details saved");
    onChanged();
  });
  return html`<${Card} title="Invoice details"><${Form} onSubmit=${() => !why && save()}>
    <p class="soft">They appear on invoices from now on. Issued invoices never change.</p>
    <${BillingFields} values=${values} setValues=${setValues} error=${error} readonly=${Boolean(why)} />
    <div class="form-actions"><${Button} type="submit" why=${why} busy=${busy}>Save invoice details<//></div>
  <//><//>`;
}
