// Verify posts with the npm packages `standardwebhooks` and `svix`: prints for each package which it accepts.

const { readFileSync } = require("node:fs");

const packages = [require("standardwebhooks"), require("svix")];
const posts = JSON.parse(readFileSync(0, "utf8"));

const accepted = ({ Webhook, WebhookVerificationError }, { body, headers, secret }) => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
};

console.log(JSON.stringify(packages.map((one) => posts.map((post) => accepted(one, post)))));
