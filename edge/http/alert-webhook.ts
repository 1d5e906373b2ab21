// The webhook that an operator's alerts go to, as each service's configuration has it.

import type { z } from "zod";
import { optionalSecret, truth } from "./config.ts";
import { publicResolver, type Resolve, urlProblem } from "./public-address.ts";
import { isWebhookSecret, type WebhookTarget } from "./webhook.ts";

/** Its keys, for a service's schema. */
export const alertWebhookKeys = () => ({
  /** Where alerts are sent: an https address, with its signing secret. Unset: none is sent. */
  ALERT_WEBHOOK_URL: optionalSecret(),
  /** `whsec_` and base64, or any text of 24 characters or more. */
  ALERT_WEBHOOK_SECRET: optionalSecret(),
  /** `true`: private addresses and plain http are allowed, on one's own machine. Default: no. */
  ALERT_WEBHOOK_PRIVATE: truth(),
});

type WebhookKeys = ReturnType<typeof alertWebhookKeys>;
type GivenWebhook = { [Key in keyof WebhookKeys]: z.output<WebhookKeys[Key]> };

const SECRET_FORM = "must be whsec_ and base64 of 24 bytes or more, or 24 characters or more";

/** What is wrong with the keys of the webhook, by key. */
function webhookProblems(given: GivenWebhook): [key: keyof GivenWebhook, problem: string][] {
  const { ALERT_WEBHOOK_URL: url, ALERT_WEBHOOK_SECRET: signing } = given;
  if (!url && !signing) return [];
  if (!url) return [["ALERT_WEBHOOK_URL", "required beside ALERT_WEBHOOK_SECRET"]];
  if (!signing) return [["ALERT_WEBHOOK_SECRET", "required beside ALERT_WEBHOOK_URL"]];
  const problem = urlProblem(url.reveal(), { allowPrivate: given.ALERT_WEBHOOK_PRIVATE });
  const isSecret = isWebhookSecret(signing.reveal());
  return [
    ...(problem ? [["ALERT_WEBHOOK_URL", problem] as [keyof GivenWebhook, string]] : []),
    ...(isSecret ? [] : [["ALERT_WEBHOOK_SECRET", SECRET_FORM] as [keyof GivenWebhook, string]]),
  ];
}

/** Adds what is wrong with the webhook's keys to a configuration's issues. */
export function checkAlertWebhook(given: GivenWebhook, context: z.RefinementCtx): void {
  for (const [key, message] of webhookProblems(given)) {
    context.addIssue({ code: "custom", path: [key], message });
  }
}

/** Where alerts are sent, or null. */
export function alertWebhookOf(
  given: GivenWebhook,
  resolve: Resolve = publicResolver,
): WebhookTarget | null {
  const { ALERT_WEBHOOK_URL: url, ALERT_WEBHOOK_SECRET: signing } = given;
  if (!url || !signing) return null;
  return { url, secret: signing, allowPrivate: given.ALERT_WEBHOOK_PRIVATE, resolve };
}
