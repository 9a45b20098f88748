// A shop on the TypeScript client, of which each line of standard input asks one thing:
// {"task", "url", "headers"}. What comes of it, and what was really done, is a line of output.

import { createInterface } from "node:readline";
import { effect, Gateway, streamingEffect } from "../../examples/node_service/cutover.ts";

class OutOfStock extends Error {}
class Order {
  constructor(readonly number: number, readonly day: Date) {}
}

let done: string[] = [];
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

const insert = effect(
  "orders.insert",
  async ({ item, count }: { item: string; count: number }, connection: Map<string, string>) => {
    done.push(`insert ${count} ${item} by ${connection.get("user")}`);
    if (count > 3) throw new OutOfStock(item);
    return done.length;
  },
  { errors: [OutOfStock] },
);
const find = effect(
  "orders.find",
  (number: number) => {
    done.push(`find ${number}`);
    return new Order(number, new Date(0));
  },
  {
    readOnly: true,
    encode: ({ number, day }: Order) => ({ number, day }),
    decode: ({ number, day }: { number: number; day: string }) => new Order(number, new Date(day)),
  },
);
const numbers = streamingEffect("orders.stream", async function* (until: number) {
  for (let number = 0; number < until; number += 1) {
    done.push(`stream ${number}`);
    yield number;
  }
});
const broken = streamingEffect(
  "orders.broken",
  async function* (item: string) {
    done.push("broken");
    yield 1;
    yield 2;
    throw new OutOfStock(item);
  },
  { errors: [OutOfStock] },
);
const fail = effect("orders.fail", () => {
  done.push("fail");
  throw new RangeError("a secret");
});
const missing = effect("orders.missing", () => {
  done.push("missing");
  return null;
});
const slow = effect(
  "orders.slow",
  async () => {
    await sleep(1_500);
    done.push("slow");
    return "done";
  },
  { seconds: 1 },
);
// Its process dies in the middle, and one that does not may repeat it by its key.
const payment = (key?: (sum: number) => string) =>
  effect(
    "payments.make",
    async (sum: number) => {
      done.push(`pay ${sum}`);
      if (process.argv[2] === "dies") {
        answer({ got: "dead" });
        process.exit(9);
      }
      return `paid ${sum}`;
    },
    { key, seconds: 0.2 },
  );
const values: Record<string, unknown> = {
  bigint: 1n,
  cycle: (() => {
    const one: unknown[] = [];
    one.push(one);
    return one;
  })(),
  date: new Date(0),
  function: () => 1,
  map: new Map(),
  nan: NaN,
  surrogate: "half of 🍝".slice(0, -1),
};
const give = effect("values.give", (name: string) => {
  done.push(`give ${name}`);
  return values[name];
});
const take = effect("values.take", (value: unknown) => {
  done.push("take");
  return typeof value;
});

async function all<T>(stream: AsyncIterable<T>): Promise<unknown> {
  const got: unknown[] = [];
  try {
    for await (const value of stream) got.push(value);
  } catch (error) {
    got.push(told(error));
  }
  return got;
}

const connection = new Map([["user", "ann"]]);
const tasks: Record<string, (given: any) => unknown> = {
  insert: () => insert({ item: "tea", count: 2 }, connection),
  too_much: () => insert({ item: "tea", count: 9 }, connection),
  find: async () => {
    const found = await find(7);
    return [found instanceof Order, found.number, found.day.getTime()];
  },
  stream: () => all(numbers(3)),
  first_of_stream: async () => {
    for await (const number of numbers(3)) return number;
  },
  broken: () => all(broken("tea")),
  fail: () => fail(undefined),
  missing: async () => String(await missing(undefined)),
  read_outside: () => numbers(3),
  slow: () => slow(undefined),
  pay: () => payment()(7),
  pay_by_key: () => payment((sum) => `payment ${sum}`)(7),
  give: ({ value }) => give(value),
  take: ({ value }) => take(values[value]),
};

function told(error: unknown): object {
  const { name, message, kind, code } = error as Record<string, unknown>;
  const type = (error as object).constructor.name;
  return { error: type, message: type === "OutOfStock" ? message : (kind ?? code ?? name) };
}

function answer(line: object): void {
  process.stdout.write(`${JSON.stringify({ ...line, done })}\n`);
  done = [];
}

for await (const line of createInterface({ input: process.stdin })) {
  const { task, url, headers, ...given } = JSON.parse(line);
  const gateway = new Gateway(url, "key-of-the-gateway");
  let got: any;
  try {
    got = await gateway.exchange(headers, () => tasks[task](given));
    if (got?.[Symbol.asyncIterator]) got = await all(got);
  } catch (error) {
    got = told(error);
  }
  answer({ got: got === undefined ? "undefined" : got });
}
