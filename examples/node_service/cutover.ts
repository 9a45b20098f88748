// What a service does to the world, done once and on cutover's tape: the protocol of docs/effects.md.
//
//     const gateway = new Gateway("http://router.internal:8080", process.env.GATEWAY_KEY!);
//     const insertOrder = effect("orders.insert", async (order: Order) => …);
//     createServer((request, response) =>
//       gateway.exchange(request.headers, () => handle(request, response)));
//
// A request that cutover sent is an exchange: the function runs in the run that serves it, and in a
// shadow or a successor it returns what it returned before. Outside of any it is the function alone.

import { AsyncLocalStorage } from "node:async_hooks";

const HEADERS = ["x-cutover-exchange", "x-cutover-role"] as const;
const TRIES = 3;
/** Signs of life in the time of a lease. */
const SIGNS = 3;

export type Headers = Record<string, string | string[] | undefined>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** The gateway refused, or could not be reached, by a stable `code`: nothing was performed. */
export class GatewayError extends Error {
  constructor(readonly code: string, why: string) {
    super(`${code}: ${why}`);
    this.name = new.target.name;
  }
}
/** The effect was begun before, and no result was reported: it may have happened. */
export class EffectInDoubt extends GatewayError {}
/** Another run has taken over, or the exchange has ended: stop. */
export class ExchangeOver extends GatewayError {}
/** This run is a shadow, and does what the serving run did not do. */
export class NotOnTape extends GatewayError {}

/** The effect failed where it was performed, with an error that is not named in `errors`. */
export class EffectFailed extends Error {
  constructor(effect: string, readonly kind: string) {
    super(`'${effect}' has failed with ${kind}`);
    this.name = new.target.name;
  }
}

/** An argument of an effect, or what it returns, cannot be written as JSON. */
export class NotJson extends TypeError {
  constructor(effect: string, kind: string) {
    super(`a value of the effect '${effect}' is ${kind}, which is no JSON: leave an argument out by passing it second, or write values with encode and read them with decode`);
    this.name = new.target.name;
  }
}

const ERRORS: Record<string, typeof GatewayError> = {
  effect_in_doubt: EffectInDoubt,
  exchange_over: ExchangeOver,
  unknown_exchange: ExchangeOver,
  tape_miss: NotOnTape,
};

export interface Options<A, R> {
  /** It changes nothing, and may be done again. */
  readOnly?: boolean;
  /** Returns an idempotency key: with one it is performed again where its outcome is not known. */
  key?: (argument: A) => string;
  /** Errors that are raised again in other runs, made from their message. */
  errors?: (new (message: string) => Error)[];
  /** Make JSON of a result or a streamed value, and a value of that again. */
  encode?: (value: R) => unknown;
  decode?: (value: any) => R;
  /** How long a process that has died is waited for. */
  seconds?: number;
  /** The other service calls this tool from an MCP server: results are as such servers write them. */
  mcp?: boolean;
}

type Failure = { type: string; message?: string };
type Perform = { do: "perform"; lease: string; seconds: number };
type Play = { do: "play"; items: Json[]; result: Json; error: Failure | null };
type Report = { items?: Json[]; result?: Json; error?: Failure };
type Call = { effect: string; arguments: Json; read_only: boolean; key: string; seconds: number };

const current = new AsyncLocalStorage<Exchange | undefined>();

/** Return the headers that name the exchange, for calls of the model and of tools; {} outside. */
export function correlationHeaders(): Record<string, string> {
  return { ...current.getStore()?.headers };
}

/** The router's effect API, at its address and with the gateway's key. */
export class Gateway {
  constructor(readonly url: string, readonly key: string, readonly timeout = 30_000) {}

  /** Work in `handle` for the exchange that the headers of a request name, if they name one. */
  exchange<T>(headers: Headers, handle: () => T): T {
    const found = HEADERS.flatMap((name) => {
      const value = headers[name];
      return typeof value === "string" ? [[name, value] as const] : [];
    });
    const named = found.some(([name]) => name === HEADERS[0]);
    return current.run(named ? new Exchange(this, Object.fromEntries(found)) : undefined, handle);
  }
}

class Exchange {
  constructor(readonly gateway: Gateway, readonly headers: Record<string, string>) {}

  /** Ask whether to perform a call. */
  async begin(call: Call): Promise<Perform | Play> {
    let response: Response;
    try {
      response = await this.post("/effects", call);
    } catch (error) {
      throw new GatewayError("gateway_unreachable", `${error}; nothing was performed`);
    }
    if (response.ok) return (await response.json()) as Perform | Play;
    const { code, message } = await refusal(response);
    throw new (ERRORS[code] ?? GatewayError)(code, message);
  }

  /** Report what came of an effect; throws nothing, as it has happened. */
  async report({ lease }: Perform, report: Report): Promise<void> {
    for (let tried = 0; tried < TRIES; tried += 1) {
      try {
        const response = await this.post(`/effects/${lease}`, report);
        if (!response.ok) {
          const { code, message } = await refusal(response);
          // "effect_reported" is a report whose answer was lost.
          if (code !== "effect_reported") console.warn(`the report of an effect was refused: ${code}: ${message}`);
        }
        return;
      } catch {
        // No answer: the report is sent again.
      }
    }
    console.warn("an effect could not be reported: it is in doubt");
  }

  /** Give signs of life until the function that is returned is called. */
  alive(told: Perform): () => void {
    const timer = setInterval(() => void this.report(told, {}), (told.seconds * 1_000) / SIGNS);
    return () => clearInterval(timer);
  }

  private post(path: string, body: unknown): Promise<Response> {
    return fetch(this.gateway.url.replace(/\/+$/, "") + path, {
      method: "POST",
      headers: {
        ...this.headers,
        authorization: `Bearer ${this.gateway.key}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(this.gateway.timeout),
    });
  }
}

/**
 * Perform a function once in an exchange, and return what it returned in every other run.
 *
 * Its first argument decides which call it is, and must be JSON: an object's keys are the names that
 * the arguments have in other languages. Further arguments (connections, sessions) do not count. What
 * it returns must be JSON, too; `undefined` is null in other runs. Throws `NotJson` and `GatewayError` before it is performed.
 */
export function effect<A, R, M extends unknown[]>(
  name: string,
  perform: (argument: A, ...more: M) => R | Promise<R>,
  options: Options<A, R> = {},
): (argument: A, ...more: M) => Promise<R> {
  const form = new Form(name, options);
  return async (argument, ...more) => {
    const exchange = current.getStore();
    if (!exchange) return perform(argument, ...more);
    const told = await exchange.begin(form.call(argument));
    if (told.do === "play") return form.result(told);
    const stop = exchange.alive(told);
    let result: R;
    try {
      result = await perform(argument, ...more);
    } catch (error) {
      await exchange.report(told, form.failed(error, []));
      throw error;
    } finally {
      stop();
    }
    await exchange.report(told, form.report([], result));
    return result;
  };
}

/** As `effect`, for a function that yields values; other runs get them once it has ended. */
export function streamingEffect<A, R, M extends unknown[]>(
  name: string,
  perform: (argument: A, ...more: M) => AsyncIterable<R>,
  options: Options<A, R> = {},
): (argument: A, ...more: M) => AsyncGenerator<R, void> {
  const form = new Form(name, options);
  // The exchange is that of the call: a response may be read where there is none.
  return (argument, ...more) => streamed(current.getStore(), argument, more);

  async function* streamed(exchange: Exchange | undefined, argument: A, more: M): AsyncGenerator<R, void> {
    if (!exchange) {
      yield* perform(argument, ...more);
      return;
    }
    const told = await exchange.begin(form.call(argument));
    if (told.do === "play") {
      yield* form.items(told);
      return;
    }
    const values: R[] = [];
    const stop = exchange.alive(told);
    let report: Report | undefined;
    try {
      for await (const value of perform(argument, ...more)) {
        values.push(value);
        yield value;
      }
    } catch (error) {
      report = form.failed(error, values);
      throw error;
    } finally {
      // Also where the reader wanted no more of it.
      stop();
      await exchange.report(told, report ?? form.report(values));
    }
  }
}

/** How the calls of one effect are written and read. */
class Form<A, R> {
  constructor(readonly name: string, readonly options: Options<A, R>) {}

  call(argument: A): Call {
    const { readOnly = false, key, seconds = 10 } = this.options;
    return {
      effect: this.name,
      arguments: asJson(this.name, argument),
      read_only: readOnly,
      key: key?.(argument) ?? "",
      seconds,
    };
  }

  /** The caller gets a result also where it is no JSON: it has happened. Other runs get an error. */
  report(values: R[], result?: R): Report {
    const { encode = (value: R) => value, mcp } = this.options;
    const json = (value: R) => asJson(this.name, encode(value));
    try {
      const items = values.map(json);
      const ended = result === undefined ? null : json(result);
      return { items, result: mcp ? asMcp(ended) : ended };
    } catch (error) {
      console.error(`what '${this.name}' returned is on no tape: other runs fail there:`, error);
      return { error: { type: kindOf(error), message: "" } };
    }
  }

  failed(error: unknown, values: R[]): Report {
    const type = kindOf(error);
    const named = this.options.errors?.some((known) => known.name === type);
    const { items, error: broken } = this.report(values);
    return { items, error: broken ?? { type, message: named ? (error as Error).message : "" } };
  }

  *items(told: Play): Generator<R, void> {
    for (const item of told.items) yield this.decode(item);
    this.throwAgain(told);
  }

  result(told: Play): R {
    this.throwAgain(told);
    const result = this.options.mcp ? ofMcp(this.name, told.result) : told.result;
    return result === null ? (null as R) : this.decode(result);
  }

  private decode(value: Json): R {
    return this.options.decode ? this.options.decode(value) : (value as R);
  }

  private throwAgain({ error }: Play): void {
    if (!error) return;
    const known = this.options.errors?.find(({ name }) => name === error.type);
    throw known ? new known(error.message ?? "") : new EffectFailed(this.name, error.type);
  }
}

const kindOf = (error: unknown) =>
  error instanceof Error ? error.constructor.name : typeof error;

/** Return a value as it is after it was written as JSON and read; throws `NotJson`. */
function asJson(effect: string, value: unknown): Json {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, (key, part: unknown) => {
      const kind = notJson(key) || notJson(part);
      if (kind) throw new NotJson(effect, kind);
      return part;
    });
  } catch (error) {
    // A value that contains itself, or whose own `toJSON` fails.
    throw error instanceof NotJson ? error : new NotJson(effect, `not written (${error})`);
  }
  return text === undefined ? null : (JSON.parse(text) as Json);
}

function notJson(value: unknown): string {
  if (typeof value === "string") return /\p{Surrogate}/u.test(value) ? "half of a character" : "";
  if (typeof value === "number") return Number.isFinite(value) ? "" : String(value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return ["bigint", "function", "symbol"].includes(typeof value) ? `a ${typeof value}` : "";
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  const plain = prototype === Object.prototype || prototype === null;
  return plain ? "" : `a ${value.constructor.name}`;
}

/** Write a result as MCP servers do: what is no object is one under `result`. */
function asMcp(value: Json): Json {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return {
    content: [{ type: "text", text }],
    structuredContent: isObject ? value : { result: value },
    isError: false,
  };
}

function ofMcp(effect: string, value: any): Json {
  const text = (value?.content ?? []).map((part: { text?: string }) => part.text ?? "").join("");
  if (value?.isError) throw new EffectFailed(effect, text || "isError");
  const made = value?.structuredContent;
  if (!made) return text;
  return Object.keys(made).join() === "result" ? made.result : made;
}

async function refusal(response: Response): Promise<{ code: string; message: string }> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    return { code: String(error.code), message: String(error.message) };
  } catch {
    return { code: `status_${response.status}`, message: "not an answer of the effect API" };
  }
}
