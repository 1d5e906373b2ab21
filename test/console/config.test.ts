// What the console's configuration refuses: each key by its name, no value ever shown.

import { describe, expect, it } from "vitest";
import { parseConfig } from "../../edge/console/config.ts";
import { operatorsOf } from "../../edge/console/operators.ts";
import { alertWebhookOf } from "../../edge/http/alert-webhook.ts";
import { PROVIDER_SETTINGS } from "../../edge/markets/ingest/providers.ts";
import { Failure } from "../../shared/errors.ts";
import { CONSOLE_ENVIRONMENT } from "../support/upstreams.ts";

const parse = (more: object) => parseConfig({ ...CONSOLE_ENVIRONMENT, ...more });
const refusal = (more: object) => {
  try {
    parse(more);
    return null;
  } catch (thrown) {
    if (!(thrown instanceof Failure)) throw thrown;
    return { keys: thrown.data.keys, detail: thrown.message };
  }
};
const SECRET = "hunter2-hunter2-hunter2-hunter2";
const URL_GIVEN = "https://hooks.example.com/hunter2";

describe("the webhook's keys", () => {
  it.each([
    [{ ALERT_WEBHOOK_URL: URL_GIVEN }, "ALERT_WEBHOOK_SECRET"],
    [{ ALERT_WEBHOOK_SECRET: SECRET }, "ALERT_WEBHOOK_URL"],
    [{ ALERT_WEBHOOK_URL: URL_GIVEN, ALERT_WEBHOOK_SECRET: "hunter2" }, "ALERT_WEBHOOK_SECRET"],
    ...[
      "hunter2",
      "http://hooks.example.com/hunter2",
      "https://hunter2:hunter2@hooks.example.com/",
      "https://127.0.0.1/hunter2",
      "https://[fd00::1]/hunter2",
    ].map((url): [object, string] => [
      { ALERT_WEBHOOK_URL: url, ALERT_WEBHOOK_SECRET: SECRET },
      "ALERT_WEBHOOK_URL",
    ]),
    [{ ALERT_WEBHOOK_PRIVATE: "hunter2" }, "ALERT_WEBHOOK_PRIVATE"],
  ])("are refused by name: %j", (given, key) => {
    const { keys, detail } = refusal(given) ?? {};
    expect(keys).toEqual([key]);
    expect(detail).not.toContain("hunter2");
  });

  it("make a target, a private one only where that is allowed, and none where they are unset", () => {
    expect(alertWebhookOf(parse({}))).toBeNull();
    expect(alertWebhookOf(parse({ ALERT_WEBHOOK_URL: "", ALERT_WEBHOOK_SECRET: "" }))).toBeNull();
    const keys = { ALERT_WEBHOOK_URL: URL_GIVEN, ALERT_WEBHOOK_SECRET: SECRET };
    expect(alertWebhookOf(parse(keys))).toMatchObject({ allowPrivate: false });
    const local = { ...keys, ALERT_WEBHOOK_URL: "http://127.0.0.1:9/" };
    expect(refusal({ ...local, ALERT_WEBHOOK_PRIVATE: "false" })?.keys).toHaveLength(1);
    expect(alertWebhookOf(parse({ ...local, ALERT_WEBHOOK_PRIVATE: "true" }))?.allowPrivate).toBe(
      true,
    );
  });
});

describe("the operators' tokens", () => {
  it("are one by default, and named ones beside it", () => {
    expect(operatorsOf(parse({})).map(({ name }) => name)).toEqual(["operator"]);
    const tokens = "ada: a:token,with-colons , bob:another-token-16";
    const wrong = refusal({ OPERATOR_TOKENS: tokens });
    expect(wrong?.keys).toEqual(["OPERATOR_TOKENS"]);
    const operators = operatorsOf(
      parse({ OPERATOR_TOKENS: "ada:a:token:with-colons, bob:another-token-16," }),
    );
    expect(operators.map(({ name, token }) => [name, token.reveal()])).toEqual([
      ["operator", CONSOLE_ENVIRONMENT.OPERATOR_TOKEN],
      ["ada", "a:token:with-colons"],
      ["bob", "another-token-16"],
    ]);
  });

  it.each([
    "hunter2-hunter2-hunter2",
    ":hunter2-hunter2-hunter2",
    "a b:hunter2-hunter2-hunter2",
    "ada:hunter2",
    "operator:hunter2-hunter2-hunter2",
    "ada:hunter2-hunter2-hunter2,ada:hunter2-hunter2-hunter3",
    "ada:hunter2-hunter2-hunter2,bob:hunter2-hunter2-hunter2",
  ])("are refused where they cannot be told apart or are no tokens: %s", (tokens) => {
    const { keys, detail } = refusal({ OPERATOR_TOKENS: tokens }) ?? {};
    expect(keys).toEqual(["OPERATOR_TOKENS"]);
    expect(detail).not.toContain("hunter2");
  });

  it("are refused where one is short enough to be guessed", () => {
    for (const token of ["h", "hunter2-hunter2"]) {
      expect(refusal({ OPERATOR_TOKEN: token })?.keys).toEqual(["OPERATOR_TOKEN"]);
    }
    expect(refusal({ OPERATOR_TOKEN: "hunter2-hunter2-" })).toBeNull();
  });

  it.each([
    [{ OPERATOR_TOKEN: "hunter2-hunter2-hunter2", OPERATOR_TOKENS: "ada:hunter2-hunter2-hunter2" }],
    [{ METRICS_TOKEN: "hunter2-hunter2-hunter2", OPERATOR_TOKENS: "ada:hunter2-hunter2-hunter2" }],
    [{ OPERATOR_TOKEN: "hunter2-hunter2-hunter2", METRICS_TOKEN: "hunter2-hunter2-hunter2" }],
  ])("are refused where one opens what another should: %#", (tokens) => {
    const { keys, detail } = refusal(tokens) ?? {};
    expect(keys).toEqual(["OPERATOR_TOKENS"]);
    expect(detail).not.toContain("hunter2");
  });
});

it("takes every empty optional setting for unset", () => {
  const optional = [
    ...Object.keys(PROVIDER_SETTINGS),
    "ALERT_WEBHOOK_PRIVATE",
    "ALERT_WEBHOOK_SECRET",
    "ALERT_WEBHOOK_URL",
    "BEHIND_CLOUDFLARE",
    "GRAPH_DATABASE_URL",
    "INGEST_LEASE_SECONDS",
    "METRICS_TOKEN",
    "OPERATOR_TOKENS",
    "SANDBOX_URL",
    "SERVICE_API_URL",
    "SERVICE_READ_API_KEY",
  ];
  const empty = Object.fromEntries(optional.map((name) => [name, ""]));
  expect(parse(empty)).toEqual(parse({}));
});
