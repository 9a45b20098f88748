// A service of the AI SDK's UI message stream on Node alone, as `useChat` asks it.
import http from "node:http";

const model = process.env.MODEL_URL;

async function* answer(messages, trace) {
  const headers = { "content-type": "application/json", authorization: "Bearer none" };
  if (trace) headers.traceparent = trace;
  const asked = { model: "small", messages, stream: true };
  const response = await fetch(`${model}/chat/completions`, {
    method: "POST", headers, body: JSON.stringify(asked),
  });
  let rest = "";
  for await (const piece of response.body) {
    rest += Buffer.from(piece).toString();
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      for (const choice of JSON.parse(line.slice(6)).choices) {
        if (choice.delta.content) yield choice.delta.content;
      }
    }
  }
}

const server = http.createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  if (request.method !== "POST" || request.url !== "/api/chat") {
    response.writeHead(404).end();
    return;
  }
  const say = (event) => response.write(`data: ${JSON.stringify(event)}\n\n`);
  response.writeHead(200, {
    "content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1",
  });
  const messages = JSON.parse(body).messages.map((one) => ({
    role: one.role, content: one.parts.map((part) => part.text).join(""),
  }));
  const trace = process.env.TRACED ? request.headers.traceparent : undefined;
  say({ type: "start", messageId: crypto.randomUUID() });
  say({ type: "start-step" });
  say({ type: "text-start", id: "0" });
  for await (const delta of answer(messages, trace)) {
    say({ type: "text-delta", id: "0", delta });
  }
  say({ type: "text-end", id: "0" });
  say({ type: "finish-step" });
  say({ type: "finish" });
  response.end("data: [DONE]\n\n");
});
server.listen(Number(process.env.PORT), "127.0.0.1");
