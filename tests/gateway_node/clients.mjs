// Clients of providers on Node, unmodified: `node clients.mjs NAME BASE` prints what one gets.
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { streamText } from "ai";
import OpenAI from "openai";

const [, , name, base] = process.argv;
const messages = [{ role: "user", content: "Hello" }];
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "theirs", maxRetries: 1 });

async function collect(stream, read) {
  const found = [];
  for await (const one of stream) found.push(read(one));
  return found;
}

const clients = {
  async chat_streamed() {
    const stream = await openai.chat.completions.create({ model: "sim-chat", messages, stream: true });
    return collect(stream, (chunk) => chunk.choices[0]?.delta?.content ?? null);
  },
  async chat_whole() {
    const answer = await openai.chat.completions.create({ model: "sim-chat", messages });
    return answer.choices[0].message.content;
  },
  async responses() {
    const stream = await openai.responses.create({ model: "sim-chat", input: "Hello", stream: true });
    return collect(stream, (event) => event.type);
  },
  async embeddings() {
    const answer = await openai.embeddings.create({ model: "sim-embed", input: "Hello" });
    return answer.data[0].embedding;
  },
  async cancelled() {
    const stream = await openai.chat.completions.create({ model: "sim-chat", messages, stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;
    return "left";
  },
  async anthropic() {
    const client = new Anthropic({ baseURL: `${base}/anthropic`, apiKey: "theirs", maxRetries: 1 });
    const asked = { model: "claude-sim", max_tokens: 64, messages, stream: true };
    return collect(await client.messages.create(asked), (event) => event.type);
  },
  async ai() {
    const provider = createOpenAI({ baseURL: `${base}/v1`, apiKey: "theirs" });
    const { textStream } = streamText({ model: provider.chat("sim-chat"), prompt: "Hello" });
    return collect(textStream, (text) => text);
  },
};

try {
  console.log(JSON.stringify({ got: await clients[name]() }));
} catch (error) {
  console.log(JSON.stringify({ status: error.status ?? null, code: error.code ?? null }));
}
