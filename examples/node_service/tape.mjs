// The tape of a router, for services on Node: docs/gateway.md. Without its headers, nothing changes.
import { timingSafeEqual } from "node:crypto";

const { CUTOVER_GATEWAY: GATEWAY = "", CUTOVER_GATEWAY_KEY: KEY = "" } = process.env;
const LOOPBACK = /^http:\/\/(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/;
const keyed = KEY ? { "x-cutover-key": KEY } : {};

/** Return the address of the run that a request names, "" for none; throws where not trusted. */
export function runOf({ "x-cutover-gateway": address = "", "x-cutover-key": given = "" }) {
  if (!address) return "";
  const [, gateway, run] = /^(.*)(\/runs\/[0-9a-f]{32})$/.exec(address) ?? [];
  const known = GATEWAY ? gateway === GATEWAY : LOOPBACK.test(gateway);
  const [a, b] = [Buffer.from(given), Buffer.from(KEY)];
  if (run && known && (!KEY || (a.length === b.length && timingSafeEqual(a, b)))) return address;
  throw Object.assign(new Error("the gateway is not trusted"), { status: 403 });
}

async function post(url, body) {
  const headers = { "content-type": "application/json", ...keyed };
  const sent = { method: "POST", headers, body: JSON.stringify(body), redirect: "error" };
  const answer = await fetch(url, sent);
  if ([200, 409].includes(answer.status)) return answer.json();
  throw new Error(`the gateway answers ${answer.status}`);
}

/** Return the result of a call: found on the tape of a run, or performed and reported. */
export async function effect(run, name, args, perform, { writes = false, seconds = 30 } = {}) {
  const call = { name, arguments: args, writes, seconds };
  const answer = run ? await post(`${run}/effects`, call).catch((error) => {
    if (writes) throw error; // another service may have made it; a read can be made again
    return { outside: true };
  }) : { outside: true };
  if (answer.outside) return perform();
  if (answer.refused) throw new Error(`refused: ${answer.refused} ${answer.subject}`);
  if (answer.fault) throw new Error(`${name}: ${answer.fault.kind} ${answer.fault.message}`);
  if (answer.items) return answer.items.at(-1);
  const report = (body) => post(`${run}/effects/${answer.perform}`, body).catch(console.error);
  try {
    const result = await perform(AbortSignal.timeout(seconds * 1000));
    await report({ items: [result] });
    return result;
  } catch (error) {
    await report({ fault: { kind: error.name, message: error.message } });
    throw error;
  }
}

/** Post to a model, through the gateway where there is a run. */
export function askModel(run, url, { headers, ...options }) {
  const { origin, pathname } = new URL(url);
  const more = run ? { ...keyed, "x-cutover-target": origin } : {};
  return fetch((run || origin) + pathname, { headers: { ...headers, ...more }, ...options });
}
