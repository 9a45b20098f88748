// A client of the TypeScript SDK: `node client.mjs URL`, with a JSON list of steps on standard input.
// Writes what came of each step, and what it was asked, as JSON.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { text } from "node:stream/consumers";

const { headers, answers, steps } = JSON.parse(await text(process.stdin));
const asked = [];
const capabilities = answers ? { elicitation: { form: {} }, sampling: {} } : {};
const client = new Client({ name: "node", version: "1" }, { capabilities });
if (answers) {
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { count: 3 } };
  });
  client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
    asked.push(params.messages[0].content.text);
    return { role: "assistant", model: "m", content: { type: "text", text: "Tea!" } };
  });
}
const requestInit = { headers };
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit }));
const replies = [];
for (const [method, params] of steps) {
  const progress = [];
  const onprogress = (step) => progress.push(step.message);
  try {
    const more = method === "callTool" ? [undefined, { onprogress }] : [];
    const result = await client[method](params, ...more);
    replies.push({ result, progress });
  } catch (error) {
    replies.push({ code: error.code, data: error.data ?? null });
  }
}
process.stdout.write(JSON.stringify({ replies, asked, instructions: client.getInstructions() }));
await client.close();
