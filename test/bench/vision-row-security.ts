// What Postgres' row-level security would cost the vision service: statements of the size of its
// reads, as it sends them, in a batch with a setting that names the tenant, and so as a role that
// owns nothing, for which a policy compares the setting. A whole request stands beside them, since
// the batch is one statement of it. Run: npm run bench -- vision-row-security

import { type SQL, sql } from "drizzle-orm";
import pg from "pg";
import { batch, openDatabase } from "../../edge/http/database.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { API } from "../../edge/vision/base/api.ts";
import { Secret } from "../../shared/secret.ts";
import type { TokenPair } from "../../shared/wire/vision.ts";
import { startVision } from "./vision-world.ts";

const PROJECTS = 200;
const ROUNDS = 400;
const WARM_UP = 50;

const { shared, workers, database, stop } = await startVision();
const print = (line: string) => process.stdout.write(`${line}\n`);
const owner = new pg.Client(superuser(shared.port, shared.credentials.superuser, "vision"));
await owner.connect();
const password = crypto.randomUUID();
await owner.query(`
  INSERT INTO project (id, workspace_id, name)
    SELECT gen_random_uuid(), w.id, 'project ' || n FROM workspace w, generate_series(1, ${PROJECTS}) n
     WHERE w.is_default;
  ANALYZE project;
  CREATE ROLE tenant LOGIN PASSWORD '${password}';
  GRANT SELECT ON project TO tenant;
  ALTER TABLE project ENABLE ROW LEVEL SECURITY;
  CREATE POLICY own ON project TO tenant
    USING (workspace_id = ANY (current_setting('app.workspaces')::uuid[]))`);
const { rows } = await owner.query("SELECT id::text FROM workspace WHERE is_default");
const workspace = String(rows[0].id);
const url = new URL(`postgres://tenant:${password}@127.0.0.1:${shared.endpointPort}/vision`);
const tenant = openDatabase(new Secret(url.href));

const statements: Record<string, SQL> = {
  "one row": sql`SELECT name FROM project
    WHERE workspace_id = ${workspace}::uuid ORDER BY created_at, id LIMIT 1`,
  "200 rows": sql`SELECT id, name, created_at FROM project
    WHERE workspace_id = ${workspace}::uuid ORDER BY created_at, id LIMIT 200`,
};
const base = workers.urls.vision + API;
const account = { email: "bench@example.com", password: "a password of the bench" };
const registered = await fetch(`${base}/auth/register`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({ ...account, display_name: "bench" }),
});
const { access_token: token } = (await registered.json()) as TokenPair;
const read = async (path: string) => {
  const answer = await fetch(base + path, { headers: { Authorization: `Bearer ${token}` } });
  await answer.arrayBuffer();
};
const setting = sql`SELECT set_config('app.workspaces', ${`{${workspace}}`}, true)`;

const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;

for (const [name, statement] of Object.entries(statements)) {
  const ways = {
    plain: () => database.execute(statement),
    batched: () => batch(database, [setting, statement]),
    secured: () => batch(tenant, [setting, statement]),
    request: () => read("/projects"),
  };
  const times = Object.fromEntries(Object.keys(ways).map((way) => [way, [] as number[]]));
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    for (const [way, run] of Object.entries(ways)) {
      const started = performance.now();
      await run();
      if (round >= 0) times[way]?.push(performance.now() - started);
    }
  }
  const p50 = (way: keyof typeof ways) => median(times[way] ?? []);
  const more = p50("secured") - p50("plain");
  const figures = Object.keys(ways).map(
    (way) => `${way} ${p50(way as keyof typeof ways).toFixed(2)} ms`,
  );
  print(`${name}: ${figures.join(", ")}`);
  print(
    `  a statement takes ${(p50("secured") / p50("plain")).toFixed(2)} ×, a request of one ` +
      `${(1 + more / p50("request")).toFixed(2)} ×`,
  );
}
await owner.end();
await stop();
