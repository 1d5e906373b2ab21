// What the minute cron clears away: uploads never completed, expired tokens, old answers.

import { sql } from "drizzle-orm";
import { expect, it } from "vitest";
import { KEPT_FOR_LOGIN } from "../../../edge/vision/auth/sessions.ts";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import { abandonUploads } from "../../../edge/vision/media/uploads/uploads.ts";
import { KEPT_CODES } from "../../../edge/vision/tasks/queue/delivery.ts";
import { Secret } from "../../../shared/secret.ts";
import { systemClock } from "../../../shared/time.ts";
import { forgetRows } from "../../support/retention.ts";
import { register } from "../../support/vision.ts";
import { createWorld } from "../../support/world.ts";

it("clears what has expired and nothing else", async () => {
  const world = await createWorld({ services: ["vision"] });
  const database = world.visionDatabase;
  const secret = new Secret("test");
  const parts = {
    database,
    bucket: world.media,
    clock: systemClock,
    s3: {
      url: `${world.s3Url}/vantage-vision`,
      accessKeyId: secret,
      secretAccessKey: secret,
    },
    // The duty uses no other part.
  } as unknown as Parts;
  const person = await register(world.urls.vision);
  const key = { "Idempotency-Key": "old" };
  const made = await person.ask("POST", "/projects", { name: "x" }, key);
  const begin = async () => {
    const body = { project_id: made.body.project_id, filename: "x", bytes: 9 };
    return (await person.ask("POST", "/uploads", body)).body;
  };
  const [stale, fresh] = [await begin(), await begin()];
  await database.execute(sql`UPDATE upload SET expires_at = now() - interval '1 second'
    WHERE id = ${String(stale.upload_id)}::uuid`);
  expect([await abandonUploads(parts), await abandonUploads(parts)]).toEqual([1, 0]);
  const states = [stale, fresh].map(async ({ upload_id }) => {
    return (await person.ask("GET", `/uploads/${upload_id}`)).body.status;
  });
  expect(await Promise.all(states)).toEqual(["aborted", "open"]);
  const [{ url }] = stale.urls as [{ url: string }];
  expect((await fetch(url, { method: "PUT", body: "late late" })).status).toBe(404);

  const counts = async () =>
    (
      await database.execute(sql`SELECT (SELECT count(*)::int FROM refresh_token) AS tokens,
        (SELECT count(*)::int FROM throttle) AS throttles,
        (SELECT count(*)::int FROM idempotent_answer) AS answers,
        (SELECT count(*)::int FROM node_code) AS codes`)
    ).rows[0];
  await database.execute(sql`
    INSERT INTO node_code (hash, expires_at) VALUES ('\\x0a', now() - interval '8 days'),
      ('\\x0b', now() - interval '6 days')`);
  await forgetRows(parts, ...KEPT_FOR_LOGIN, KEPT_CODES);
  expect(await counts()).toEqual({ tokens: 1, throttles: 2, answers: 1, codes: 1 });
  await database.execute(sql`WITH t AS (
      UPDATE refresh_token SET expires_at = now() - interval '2 days'),
    h AS (UPDATE throttle SET window_ends_at = now() - interval '1 second')
    UPDATE idempotent_answer SET created_at = now() - interval '2 days'`);
  await forgetRows(parts, ...KEPT_FOR_LOGIN);
  expect(await counts()).toEqual({ tokens: 0, throttles: 0, answers: 0, codes: 1 });
});
