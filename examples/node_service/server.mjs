// A shop's chat on Node, without a dependency: streams what a model says, and orders with a tool.
import { createServer } from "node:http";
import { askModel, effect, runOf } from "./tape.mjs";

const { OPENAI_BASE_URL = "https://api.openai.com/v1", OPENAI_API_KEY = "none" } = process.env;
const { MODEL = "gpt-4.1-mini", PORT = "8002" } = process.env;
const headers = { "content-type": "application/json", authorization: `Bearer ${OPENAI_API_KEY}` };
const properties = { item: { type: "string" }, grams: { type: "integer" } };
const parameters = { type: "object", properties, required: ["item", "grams"] };
const tools = [{ type: "function", function: { name: "create_order", parameters } }];
const orders = [];

async function createOrder(order) {
  orders.push(order);
  return `Order ${orders.length}`;
}

/** Yield the deltas of a streamed answer. */
async function* deltas(run, messages, signal) {
  const body = JSON.stringify({ model: MODEL, messages, tools, stream: true });
  const url = `${OPENAI_BASE_URL}/chat/completions`;
  const answer = await askModel(run, url, { method: "POST", headers, body, signal });
  if (!answer.ok) throw new Error(`the model answers ${answer.status}`);
  let rest = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((one) => one.startsWith("data: {"))) {
      yield JSON.parse(line.slice(6)).choices[0]?.delta ?? {};
    }
  }
}

/** Yield what the model says, and make the orders that it asks for in between. */
async function* chat(run, message, signal) {
  const messages = [{ role: "system", content: "You sell tea." }];
  messages.push({ role: "user", content: message });
  for (;;) {
    const said = { role: "assistant", content: "", tool_calls: [] };
    for await (const { content, tool_calls: calls = [] } of deltas(run, messages, signal)) {
      if (content) yield content;
      said.content += content ?? "";
      for (const { index, id, function: { name, arguments: piece = "" } } of calls) {
        said.tool_calls[index] ??= { id, type: "function", function: { name, arguments: "" } };
        said.tool_calls[index].function.arguments += piece;
      }
    }
    if (!said.tool_calls.length) return;
    messages.push(said);
    for (const { id, function: call } of said.tool_calls) {
      const order = JSON.parse(call.arguments);
      const perform = () => createOrder(order);
      const content = await effect(run, "orders.create", order, perform, { writes: true });
      messages.push({ role: "tool", tool_call_id: id, content });
    }
  }
}

createServer(async (request, response) => {
  const leaving = new AbortController();
  response.on("close", () => leaving.abort());
  const say = (delta, finish_reason = null) =>
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
  try {
    if (request.method === "GET") return response.end(JSON.stringify(orders));
    const run = runOf(request.headers);
    const { message } = JSON.parse((await request.toArray()).join(""));
    response.writeHead(200, { "content-type": "text/event-stream" });
    for await (const content of chat(run, message, leaving.signal)) say({ content });
    say({}, "stop");
    response.end("data: [DONE]\n\n");
  } catch (error) {
    console.error(error.message);
    if (response.headersSent) response.destroy(); // the router goes on with the other service
    else response.writeHead(error.status ?? 500).end();
  }
}).listen(Number(PORT), "127.0.0.1", function listening() {
  console.log(`listening port=${this.address().port}`);
});
