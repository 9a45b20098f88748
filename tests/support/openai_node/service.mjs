// The assistant of examples/openai_service, with the openai package of Node.js:
// `node service.mjs PORT GATEWAY KEY`.

import { createServer } from "node:http";
import OpenAI from "openai";

const PROMPT = `You are the assistant of a cooking school.
Answer in the language of the question, in at most five sentences.
Use the tools for every sum and every weight. Never guess what a picture does not show.`;
const GRAMS = { g: 1, kg: 1000, oz: 28.3495, lb: 453.592 };

const calculate = ({ expression }) =>
  /^[\d\s.+*/()-]+$/.test(expression) ? String(Function(`return ${expression}`)()) : "this is no sum";
const convert = ({ value, from_unit, to_unit }) =>
  `${((value * GRAMS[from_unit]) / GRAMS[to_unit]).toFixed(2)} ${to_unit}`;
const RUN = { calculate, convert_units: convert };

const tool = (name, description, types) => {
  const properties = Object.fromEntries(Object.entries(types).map(([key, type]) => [key, { type }]));
  const parameters = { type: "object", properties, required: Object.keys(types) };
  return { type: "function", function: { name, description, parameters } };
};
const WEIGHT = { value: "number", from_unit: "string", to_unit: "string" };
const TOOLS = [
  tool("calculate", "Work out a sum, such as 12 * 7.", { expression: "string" }),
  tool("convert_units", "Convert a weight between g, kg, oz and lb.", WEIGHT),
  tool("order", "Order an ingredient from the school's shop.", { item: "string", grams: "integer" }),
];

const [port, baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const conversations = new Map();

async function answer({ conversation_id, message, picture }, headers, send) {
  if (!conversations.has(conversation_id)) conversations.set(conversation_id, []);
  const messages = conversations.get(conversation_id);
  const shown = { type: "image_url", image_url: { url: picture } };
  const content = picture ? [{ type: "text", text: message }, shown] : message;
  messages.push({ role: "user", content });
  for (let calls = true; calls; ) {
    const asked = {
      model: "gpt-4.1-mini",
      messages: [{ role: "system", content: PROMPT }, ...messages],
      tools: TOOLS,
      temperature: 0,
      max_tokens: 600,
    };
    const stream = client.chat.completions.stream(asked, { headers });
    for await (const chunk of stream) {
      const text = chunk.choices[0]?.delta?.content;
      if (text) send("token", { text });
    }
    const said = await stream.finalMessage();
    messages.push(said);
    calls = said.tool_calls?.length;
    for (const { id, function: called } of said.tool_calls ?? []) {
      send("tool", { tool: called.name });
      const result = RUN[called.name](JSON.parse(called.arguments));
      messages.push({ role: "tool", tool_call_id: id, content: result });
    }
  }
  send("done", {});
}

const server = createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const question = JSON.parse(Buffer.concat(pieces).toString("utf8"));
  const headers = Object.fromEntries(
    Object.entries(request.headers).filter(([name]) => name.startsWith("x-cutover-")),
  );
  response.writeHead(200, { "content-type": "text/event-stream" });
  await answer(question, headers, (name, data) =>
    response.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`),
  );
  response.end();
});

server.listen(Number(port), "127.0.0.1", () => console.error(`on http://127.0.0.1:${port}`));
