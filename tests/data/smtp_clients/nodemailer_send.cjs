const nodemailer = require("nodemailer");

const [host, port, from, to] = process.argv.slice(2);
const transport = nodemailer.createTransport({ host, port: Number(port) });
transport.sendMail({ from, to, subject: "Hello", text: "It works." }).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
