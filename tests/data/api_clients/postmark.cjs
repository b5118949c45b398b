const { ServerClient } = require("postmark");

const base = new URL(process.env.BASE);
const options = { useHttps: base.protocol === "https:", requestHost: `${base.host}/v1/compat/postmark` };
const client = new ServerClient(process.env.KEY, options);
const mail = { From: process.env.SENDER, To: "ann@people.test", Subject: "Hi", TextBody: "Hi" };
const templated = {
  From: process.env.SENDER, To: "ann@people.test", TemplateAlias: "receipt", TemplateModel: { name: "Ann" },
};
const refusal = (call) => call.then(() => null, (error) => ({ code: error.code, message: error.message }));

async function main() {
  const keyed = { ...mail, idempotencyKey: "receipt-7" };
  const sent = await client.sendEmail(keyed);
  const bounces = await client.getBounces({ count: 10, offset: 0 });
  const [{ ID: bounce }] = bounces.Bounces;
  const found = {
    sent, bounces,
    again: await client.sendEmail(keyed),
    batch: await client.sendEmailBatch([mail, mail]),
    templated: await client.sendEmailWithTemplate(templated),
    templates: await client.sendEmailBatchWithTemplates([templated, { ...templated, TemplateAlias: undefined }]),
    searched: await client.getOutboundMessages({ count: 50, offset: 0 }),
    details: await client.getOutboundMessageDetails(sent.MessageID),
    dump: await client.getOutboundMessageDump(sent.MessageID),
    bounce: await client.getBounce(bounce),
    bounceDump: await client.getBounceDump(bounce),
    suppressed: await client.getSuppressions("outbound"),
    activated: await client.activateBounce(bounce),
    refused: await refusal(client.sendEmail({ ...mail, TrackOpens: true })),
    missing: await refusal(client.getServer()),
  };
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
