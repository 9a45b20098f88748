// A chat service that answers in the AI SDK's UI message stream, as `toUIMessageStreamResponse`
// does: Node.js, no packages. `node ai_sdk_service.mjs`; a line of JSON on its input sets it up.

import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

// Where its model is ("" for none), how many pieces of the model make one of its own, after how
// many of these it breaks down, and what it says before its model does.
let own = { model: "", every: 1, breaks: -1, says: "" };

async function read(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return JSON.parse(Buffer.concat(pieces).toString("utf8"));
}

async function* answer(messages, headers) {
  if (!own.model) {
    yield* "abcdefgh";
    return;
  }
  const passed = ["x-cutover-exchange", "x-cutover-role"].filter((name) => headers[name]);
  const response = await fetch(`${own.model}/chat/completions`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...Object.fromEntries(passed.map((name) => [name, headers[name]])),
    },
    body: JSON.stringify({ model: "gpt-4.1", messages, stream: true }),
  });
  if (!response.ok) throw new Error(`the model answers ${response.status}`);
  let text = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: {")) continue;
      const content = JSON.parse(event.slice(6)).choices[0]?.delta?.content;
      if (content) yield content;
    }
  }
}

const server = createServer(async (request, response) => {
  const { messages } = await read(request);
  if (own.breaks === 0) {
    response.writeHead(500).end();
    return;
  }
  const turns = messages.map(({ role, parts }) => ({
    role,
    content: parts.map(({ text }) => text).join(""),
  }));
  response.writeHead(200, {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
    "x-vercel-ai-ui-message-stream": "v1",
  });
  const send = (part) => response.write(`data: ${JSON.stringify(part)}\n\n`);
  const id = randomUUID();
  send({ type: "start", messageId: randomUUID() });
  send({ type: "start-step" });
  send({ type: "text-start", id });
  let [held, count, sent] = [own.says, 0, 0];
  const flush = () => {
    send({ type: "text-delta", id, delta: held });
    [held, sent] = ["", sent + 1];
  };
  for await (const piece of answer(turns, request.headers)) {
    held += piece;
    count += 1;
    if (count % own.every) continue;
    if (sent === own.breaks) {
      response.socket.end(); // as where its process ends
      return;
    }
    flush();
  }
  if (held) flush();
  send({ type: "text-end", id });
  send({ type: "finish-step" });
  send({ type: "finish", finishReason: "stop" });
  response.write("data: [DONE]\n\n");
  response.end();
});

createInterface({ input: process.stdin })
  .on("line", (line) => {
    own = { ...own, ...JSON.parse(line) };
    console.log("set up");
  })
  .on("close", () => process.exit());
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
