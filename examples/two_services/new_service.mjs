// The new service: Node.js, no packages. `node new_service.mjs [PORT]`.

import { createServer } from "node:http";

const PAUSE = 20;
const kept = []; // what it would store: a message once, and nothing at all for a shadow

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE));

async function read(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString("utf8"));
}

const server = createServer(async (request, response) => {
  const role = request.headers["x-cutover-role"];
  const { content } = await read(request);
  if (!content) {
    response.writeHead(404, { "content-type": "application/problem+json" });
    response.end(JSON.stringify({ code: "message_not_found" }));
    return;
  }
  const send = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
  response.writeHead(200, { "content-type": "text/event-stream" });
  let said = "";
  send({ step: "ACCEPT" });
  send({ step: "START_REPLY" });
  for (const word of `You said: ${content}`.split(" ")) {
    await pause();
    if (response.destroyed) return; // the client has left
    said = `${said} ${word}`.trim();
    send({ step: "SEND", content: said });
  }
  send({ step: "SUCCESS", content: said });
  send({ step: "END" });
  response.end();
  if (role !== "shadow") kept.push(content);
  console.log(`new service: 200 as ${role}, ${kept.length} kept`);
});

server.listen(Number(process.argv[2] ?? 9002), "127.0.0.1", () => {
  console.log(`new service on http://127.0.0.1:${server.address().port}/chat/sse`);
});
