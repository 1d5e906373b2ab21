// What the vision service refuses of its operator's webhook: each key by its name, no value shown.

import { expect, it } from "vitest";
import { alertWebhookOf } from "../../../../edge/http/alert-webhook.ts";
import { parseConfig } from "../../../../edge/vision/config.ts";
import { Failure } from "../../../../shared/errors.ts";

const BOUND = [
  ...["MEDIA", "PROGRESS", "LISTENERS", "DOORBELL", "LINES", "METERS", "COUNTERS"],
  "ASSETS",
];
const REQUIRED = {
  ...Object.fromEntries(BOUND.map((name) => [name, {}])),
  DATABASE_URL: "postgresql://writer:hunter2@127.0.0.1/vision",
  TOKEN_SECRET: "a secret of the tests, of 32 characters",
  S3_URL: "http://127.0.0.1/vantage-vision",
  S3_ACCESS_KEY_ID: "test",
  S3_SECRET_ACCESS_KEY: "test",
};
const parse = (more: object) => parseConfig({ ...REQUIRED, ...more });
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

it.each([
  [{ ALERT_WEBHOOK_URL: URL_GIVEN }, "ALERT_WEBHOOK_SECRET"],
  [{ ALERT_WEBHOOK_SECRET: SECRET }, "ALERT_WEBHOOK_URL"],
  [{ ALERT_WEBHOOK_URL: URL_GIVEN, ALERT_WEBHOOK_SECRET: "hunter2" }, "ALERT_WEBHOOK_SECRET"],
  [
    { ALERT_WEBHOOK_URL: "http://127.0.0.1/hunter2", ALERT_WEBHOOK_SECRET: SECRET },
    "ALERT_WEBHOOK_URL",
  ],
  [{ ALERT_WEBHOOK_PRIVATE: "hunter2" }, "ALERT_WEBHOOK_PRIVATE"],
  [{ BACKUP_HOURS_MAX: "hunter2" }, "BACKUP_HOURS_MAX"],
  [{ BACKUP_HOURS_MAX: "0" }, "BACKUP_HOURS_MAX"],
])("is refused by name: %j", (given, key) => {
  const { keys, detail } = refusal(given) ?? {};
  expect(keys).toEqual([key]);
  expect(detail).not.toContain("hunter2");
});

it("is optional, like the age of backups", () => {
  const none = parse({ ALERT_WEBHOOK_URL: "", ALERT_WEBHOOK_SECRET: "", BACKUP_HOURS_MAX: "" });
  expect([alertWebhookOf(none), none.BACKUP_HOURS_MAX]).toEqual([null, undefined]);
  const all = parse({
    ALERT_WEBHOOK_URL: "http://127.0.0.1:9/",
    ALERT_WEBHOOK_SECRET: SECRET,
    ALERT_WEBHOOK_PRIVATE: "true",
    BACKUP_HOURS_MAX: "26",
  });
  expect(alertWebhookOf(all)).toMatchObject({ allowPrivate: true });
  expect(all.BACKUP_HOURS_MAX).toBe(26);
});
