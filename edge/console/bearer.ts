// Who asks the operator API. Guesses at a token are counted here as those at the login are, in the
// same lines: else whoever is told to wait there would go on here.

import type { MiddlewareHandler } from "hono";
import { bearerOf, bearerRefusal, holderOf } from "../http/keys.ts";
import type { Log } from "../http/log.ts";
import { clientAddress } from "../http/throttle.ts";
import { operatorsOf } from "./operators.ts";
import type { Console } from "./parameters.ts";
import { checkedToken } from "./throttle.ts";

const LET_IN_MAX = 1_000;

interface Var {
  service: Console;
  log: Log;
  operatorName: string;
}

/**
 * Lets a request pass only with `Authorization: Bearer <token>` of an operator. Who was let in is
 * not counted again from the same address, until somebody guesses wrong from there: so neither
 * strangers nor a statement for each request hold programs up. Where no address is known, tokens
 * are long enough that counting them once is not what protects them.
 */
export const requireOperator: MiddlewareHandler<{ Variables: Var }> = async (context, next) => {
  const { config, ingest, letIn } = context.var.service;
  const given = bearerOf(context);
  if (given === "") throw bearerRefusal(context);
  const holder = await holderOf(given, operatorsOf(config));
  const address = clientAddress(context.req, config.BEHIND_CLOUDFLARE);
  if (letIn.size >= LET_IN_MAX) letIn.clear();
  if (!holder && address !== null)
    for (const one of letIn) if (one.endsWith(` ${address}`)) letIn.delete(one);
  const entry = `${holder?.name} ${address}`;
  if (!holder || !letIn.has(entry)) {
    const checked = await checkedToken(ingest, { address, device: null }, async () => holder);
    if (!checked) {
      context.var.log.warning("console_bearer_refused", { address });
      throw bearerRefusal(context);
    }
    letIn.add(entry);
  }
  if (holder) context.set("operatorName", holder.name);
  await next();
};

/** The name of whose token a request passed `requireOperator` with. */
export const bearerName = (context: { var: object }): string => (context.var as Var).operatorName;
