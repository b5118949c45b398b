const { Resend } = require("resend");

const resend = new Resend(process.env.KEY, { baseUrl: `${process.env.BASE}/v1/compat/resend` });
const mail = { from: `Shop <${process.env.SENDER}>`, to: ["ann@people.test"], subject: "Hi", html: "<p>Hi" };
const hours = (count) => new Date(Date.now() + count * 3_600_000).toISOString();

async function done(call) {
  const { data, error } = await call;
  if (error) throw new Error(JSON.stringify(error));
  return data;
}

async function main() {
  const sent = await done(resend.emails.send(mail));
  const scheduled = await done(resend.emails.send({ ...mail, scheduledAt: hours(1) }));
  const headers = { "X-Waybill-Idempotency-Key": "receipt-7" }; // the client passes known fields only
  const keyed = await done(resend.emails.send({ ...mail, headers }));
  const domains = await done(resend.domains.list());
  const found = {
    sent, scheduled, keyed, domains,
    again: await done(resend.emails.send({ ...mail, headers })),
    got: await done(resend.emails.get(sent.id)),
    moved: await done(resend.emails.update({ id: scheduled.id, scheduledAt: hours(2) })),
    canceled: await done(resend.emails.cancel(scheduled.id)),
    batch: await done(resend.batch.send([mail, mail])),
    templated: await done(resend.emails.send({
      from: mail.from, to: mail.to, template: { id: "receipt", variables: { name: "Ann" } },
    })),
    listed: await done(resend.emails.list({ limit: 50 })),
    domain: await done(resend.domains.get(domains.data[0].id)),
    refused: (await resend.emails.send({ ...mail, topicId: "x" })).error,
    missing: (await resend.webhooks.list()).error,
  };
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
