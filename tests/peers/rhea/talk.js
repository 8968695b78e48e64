// A client of AMQP 1.0 that is not ours, over TCP or WebSocket: what it was told, one JSON object a line.
//
//   NODE_PATH=build/rhea/node_modules node talk.js HOST PORT USER PASSWORD [SUB-PROTOCOL]
//
// With a sub-protocol it speaks over WebSocket. Rows: what, and what came of it.

"use strict";

const rhea = require("rhea");
const WebSocket = require("ws");

const [host, port, username, password, token] = process.argv.slice(2);

function say(what, told) {
  console.log(JSON.stringify({ what, ...told }));
}

// Wait for one of some events; the name of that which came first, and its context.
function first(emitter, ...names) {
  return new Promise((resolve) => {
    for (const name of names) emitter.once(name, (context) => resolve({ name, context }));
  });
}

function condition(error) {
  const info = error && error.info ? error.info["delivery-tag"] : undefined;
  return error ? { condition: error.condition, tag: info ? Buffer.from(info).toString() : null } : {};
}

// What became of one message.
async function outcome(sender, message, tag) {
  const ended = first(sender, "accepted", "rejected", "released", "modified", "sender_close");
  sender.send(message, tag);
  const { name, context } = await ended;
  const error = name === "sender_close" ? context.sender.error : (context.delivery.remote_state || {}).error;
  return { outcome: name, ...condition(error) };
}

async function ready(sender) {
  if (!sender.sendable()) await first(sender, "sendable");
  return sender;
}

async function main() {
  const container = rhea.create_container();
  container.on("disconnected", () => {}); // else rhea tells it as an error
  const details = token
    ? { connection_details: container.websocket_connect(WebSocket)(`ws://${host}:${port}`, [token]) }
    : { host, port: Number(port) };
  const connection = container.connect({
    ...details,
    username,
    password,
    reconnect: false,
    desired_capabilities: ["ANONYMOUS-RELAY"],
  });
  const opened = await first(connection, "connection_open", "connection_error", "disconnected");
  if (opened.name !== "connection_open") {
    say("open", { refused: true, ...condition(opened.context.connection.error || connection.error) });
    return;
  }
  say("open", { offers: connection.remote.open.offered_capabilities, product: connection.properties.product });

  const outcomes = ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"];
  const relay = await ready(connection.open_sender({ target: {}, source: { outcomes } }));
  const onTopic = connection.open_receiver({ source: { address: "topic://news" } });
  await first(onTopic, "receiver_open");
  const arrived = first(onTopic, "message");

  for (const to of ["orders", "topic://news", "temp-queue://nobody", "forbidden", undefined]) {
    say(`relay ${to}`, await outcome(relay, { to, body: "x", message_id: `id ${to}` }));
  }
  const { context: news } = await arrived;
  say("topic", { body: news.message.body, to: news.message.to });

  const blind = await ready(connection.open_sender({ target: {}, snd_settle_mode: 1 }));
  const ended = first(blind, "sender_close");
  blind.send({ to: "temp-queue://nobody", body: "x" }, "the-tag");
  say("settled", condition((await ended).context.sender.error));

  const direct = connection.open_sender({ target: { address: "forbidden" } });
  say("direct", condition((await first(direct, "sender_close", "sender_error")).context.sender.error));

  // Request and reply: the reply goes through the same link as all else.
  const service = connection.open_receiver({ source: { address: "orders" }, autoaccept: false, credit_window: 0 });
  const replies = connection.open_receiver({ source: { dynamic: true } });
  await first(replies, "receiver_open");
  service.add_credit(10);
  service.on("message", (context) => {
    const { message } = context;
    context.delivery.accept();
    if (message.reply_to) {
      relay.send({ to: message.reply_to, correlation_id: message.message_id, body: `${message.body}!` });
    }
  });
  relay.send({
    to: "orders",
    reply_to: replies.source.address,
    message_id: 7,
    body: "hello",
    application_properties: { isFault: false, count: rhea.types.wrap_int(5) },
  });
  const answered = await first(replies, "message");
  say("reply", { body: answered.context.message.body, correlation_id: answered.context.message.correlation_id });

  connection.close();
  await first(connection, "connection_close");
  say("closed", {});
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
