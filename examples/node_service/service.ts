// The kitchen assistant, with the Vercel AI SDK: `npm start -- 9003`.
// It writes orders into the shop's database.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createOpenAI } from "@ai-sdk/openai";
import { jsonSchema, stepCountIs, streamText, tool, type ModelMessage } from "ai";
import Database from "libsql";

const PROMPT = `You are the assistant of a cooking school.
Answer in the language of the question, in at most five sentences.
Use the tools for every sum and every weight. Never guess what a picture does not show.`;
const GRAMS: Record<string, number> = { g: 1, kg: 1000, oz: 28.3495, lb: 453.592 };

type Question = { conversation_id: string; message: string; picture?: string | null };
type Send = (event: string, data: object) => void;
type Weight = { value: number; from_unit: string; to_unit: string };
type Goods = { item: string; grams: number };

const shop = new Database(process.env.SHOP_FILE ?? "shop.sqlite", { timeout: 5_000 });
shop.exec(
  "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item VARCHAR NOT NULL, grams INTEGER NOT NULL)",
);
const insert = shop.prepare("INSERT INTO orders (item, grams) VALUES (?, ?)");

async function order({ item, grams }: Goods): Promise<string> {
  const number = insert.run(item, grams).lastInsertRowid;
  console.error(`order ${number}: ${grams} g of ${item}`);
  return `order ${number}: ${grams} g of ${item}`;
}

function calculate(expression: string): string {
  if (!/^[\d\s.+*/()-]+$/.test(expression)) return "this is no sum";
  try {
    return String(Function(`return ${expression}`)());
  } catch {
    return "this is no sum";
  }
}

function convert({ value, from_unit, to_unit }: Weight): string {
  const [from, to] = [GRAMS[from_unit], GRAMS[to_unit]];
  if (!from || !to) return "I know g, kg, oz and lb only";
  return `${((value * from) / to).toFixed(2)} ${to_unit}`;
}

function parameters<T>(types: Record<keyof T & string, "string" | "number" | "integer">) {
  const properties = Object.fromEntries(
    Object.entries<"string" | "number" | "integer">(types).map(([name, type]) => [name, { type }]),
  );
  return jsonSchema<T>({ type: "object", properties, required: Object.keys(types) });
}

const tools = {
  calculate: tool({
    description: "Work out a sum, such as 12 * 7.",
    inputSchema: parameters<{ expression: string }>({ expression: "string" }),
    execute: async ({ expression }) => calculate(expression),
  }),
  convert_units: tool({
    description: "Convert a weight between g, kg, oz and lb.",
    inputSchema: parameters<Weight>({ value: "number", from_unit: "string", to_unit: "string" }),
    execute: async (weight) => convert(weight),
  }),
  order: tool({
    description: "Order an ingredient from the school's shop.",
    inputSchema: parameters<Goods>({ item: "string", grams: "integer" }),
    execute: async (goods) => order(goods),
  }),
};

const openai = createOpenAI();
const conversations = new Map<string, ModelMessage[]>();

async function answer(question: Question, send: Send): Promise<void> {
  const messages = conversations.get(question.conversation_id) ?? [];
  conversations.set(question.conversation_id, messages);
  messages.push({ role: "user", content: contentOf(question) });
  const result = streamText({
    model: openai.chat("gpt-4.1-mini"),
    system: PROMPT,
    messages,
    tools,
    temperature: 0,
    maxOutputTokens: 600,
    maxRetries: 0,
    stopWhen: stepCountIs(8),
    onError: ({ error }) => console.error("the model did not answer:", error),
  });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") send("token", { text: part.text });
    else if (part.type === "tool-call") send("tool", { tool: part.toolName });
    else if (part.type === "error") return send("error", { code: "no_answer" });
  }
  messages.push(...(await result.response).messages);
  send("done", {});
}

function contentOf({ message, picture }: Question) {
  if (!picture) return message;
  return [
    { type: "text" as const, text: message },
    { type: "image" as const, image: picture },
  ];
}

const server = createServer(async (request, response) => {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  const question: Question = JSON.parse(Buffer.concat(pieces).toString("utf8"));
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send: Send = (event, data) => {
    response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  };
  try {
    await answer(question, send);
    response.end();
  } catch (error) {
    console.error("the answer broke off:", error);
    response.destroy();
  }
});

server.listen(Number(process.argv[2] ?? 9003), "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.error(`listening on http://127.0.0.1:${port}`);
});
