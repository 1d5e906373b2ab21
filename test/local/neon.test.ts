// The endpoint in front of the embedded Postgres, when Postgres hangs and when nothing may be
// written: what nobody waits for is not done, what waits is bounded, and reading goes on.

import { sql } from "drizzle-orm";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { asFailure, batch, type Database, openDatabase } from "../../edge/http/database.ts";
import { type NeonEndpoint, startNeonEndpoint } from "../../edge/local/neon.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { Failure } from "../../shared/errors.ts";
import { Secret } from "../../shared/secret.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { createDatabases } from "../support/world.ts";

let way: Cuttable;
let endpoint: NeonEndpoint;
/** Past the endpoint. */
let direct: pg.Client;
let patient: Database;
let impatient: Database;

beforeAll(async () => {
  const { port, credentials } = inject("postgres");
  way = await cuttable(port);
  endpoint = await startNeonEndpoint(way.port);
  const url = new URL((await createDatabases()).visionWriter);
  direct = new pg.Client(superuser(port, credentials.superuser, url.pathname.slice(1)));
  await direct.connect();
  await direct.query("CREATE TABLE written (value int); GRANT ALL ON written TO vision_writer");
  url.port = String(endpoint.port);
  patient = openDatabase(new Secret(url.href));
  impatient = openDatabase(new Secret(url.href), { timeoutMs: 300 });
});
afterAll(async () => {
  await direct.end();
  await endpoint.close();
  await way.close();
});

const write = (database: Database, value: number) =>
  batch(database, [sql`SELECT 1`, sql`INSERT INTO written VALUES (${value}::int)`]);
const written = async () =>
  (await direct.query<{ value: number }>("SELECT value FROM written ORDER BY 1")).rows;

describe("a Postgres that hangs", () => {
  it("does nothing of what was given up meanwhile, and answers again by itself", async () => {
    await write(patient, 1);
    way.hold();
    const writes = Array.from({ length: 200 }, (_, index) => write(impatient, 100 + index));
    const given = await Promise.allSettled(writes);
    expect(given.filter(({ status }) => status === "fulfilled")).toEqual([]);
    way.mend();
    await write(patient, 2);
    await expect
      .poll(async () => {
        const { rows } = await direct.query(
          `SELECT 1 FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`,
        );
        return rows.length;
      })
      .toBe(0);
    expect(await written()).toEqual([{ value: 1 }, { value: 2 }]);
  });
});

describe("an endpoint that only lets read", () => {
  it("answers reads, refuses writes as a full disk does, and takes them again", async () => {
    await direct.query("TRUNCATE written");
    endpoint.readOnly(true);
    const refused = [write(patient, 3), patient.execute(sql`INSERT INTO written VALUES (4)`)];
    for (const one of refused) {
      const failure = asFailure(await one.catch((thrown: unknown) => thrown)) as Failure;
      expect(failure).toBeInstanceOf(Failure);
      expect([failure.code, failure.message]).toEqual([
        "store_unavailable",
        "the database's disk is full; try again",
      ]);
    }
    const { rows } = await patient.execute(sql`SELECT count(*)::int AS count FROM written`);
    expect(rows).toEqual([{ count: 0 }]);
    endpoint.readOnly(false);
    await write(patient, 5);
    await patient.execute(sql`INSERT INTO written VALUES (6)`);
    expect(await written()).toEqual([{ value: 5 }, { value: 6 }]);
  });
});
