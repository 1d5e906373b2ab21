// `npm run backup`: copies of databases with the objects that they name, and what brings the two
// together again.

import { adoptBucket } from "../http/bucket-identity.ts";
import { adopt as adoptMarkets } from "../markets/store/compact.ts";
import {
  type BackupRecord,
  compare,
  keepNewest,
  listBackups,
  makeBackup,
  noteBackup,
  readRecord,
  restoreObjects,
  withDatabase,
} from "./backup/backups.ts";
import { type Place, placeAt } from "./backup/places.ts";
import { deployedSources, fillLocal, type Source, withLocal } from "./backup/sources.ts";
import { restoreDatabase } from "./backup/tables.ts";
import { EXIT, meant, readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import type { DatabaseName } from "./migrations.ts";
import { stateAt } from "./state.ts";

const VERBS = ["restore", "list", "verify", "adopt"];
const PARTS = ["databases", "objects"];
/** Keys that are shown of each kind; `--json` has all. */
const SHOWN = 20;

const say = (line: string) => process.stdout.write(`${line}\n`);

async function main() {
  const { values, positionals } = readArguments({
    allowPositionals: true,
    options: {
      to: { type: "string" },
      from: { type: "string" },
      at: { type: "string" },
      only: { type: "string" },
      keep: { type: "string" },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const [verb, service] = positionals;
  if (values.help || (verb === undefined && values.to === undefined)) {
    process.stdout.write(usageOf("backup"));
    return;
  }
  if (verb === undefined) return backUp(placeAt(values.to ?? ""), values.keep);
  if (!VERBS.includes(verb)) throw new UsageError(`backup does not ${verb}${meant(verb, VERBS)}`);
  if (verb === "verify") return verify(values.json);
  if (verb === "adopt") return adopt(service);
  if (values.from === undefined) throw new UsageError(`${verb} needs --from PLACE`);
  const backups = placeAt(values.from);
  if (verb === "list") {
    for (const name of await listBackups(backups)) say(name);
    return;
  }
  if (values.only !== undefined && !PARTS.includes(values.only)) {
    throw new UsageError(`--only ${values.only}${meant(values.only, PARTS)}`);
  }
  await restore(backups, values.at, values.only);
}

/** Works with what is deployed, where the environment names it, or with this machine's stack. */
function withSources<Result>(work: (sources: Source[]) => Promise<Result>): Promise<Result> {
  const deployed = deployedSources(process.env);
  return deployed.length > 0 ? work(deployed) : withLocal(stateAt(), work);
}

async function backUp(place: Place, keep: string | undefined) {
  if (keep !== undefined && !/^[1-9]\d{0,5}$/.test(keep)) {
    throw new UsageError("--keep takes a number of backups, at least 1");
  }
  const { name, record, copied, kept } = await withSources((all) => makeBackup(all, place, say));
  say(`${name}: ${copied} objects were copied, ${kept} had been before.`);
  const lost = Object.values(record.services).flatMap(({ missing }) => missing);
  const isWhole = !lost.some(({ required }) => required);
  if (keep !== undefined && isWhole) {
    const gone = await keepNewest(place, Number(keep));
    if (gone > 0) say(`${gone} older backups were deleted.`);
  }
  showKeys(
    "lacking in the bucket",
    lost.filter((one) => one.required).map(({ key }) => key),
  );
  if (isWhole) return;
  if (keep !== undefined) say("No older backup was deleted.");
  process.exitCode = EXIT.failed;
}

async function restore(place: Place, at: string | undefined, only: string | undefined) {
  const names = await listBackups(place);
  const name = at ?? names[0];
  if (name === undefined || !names.includes(name)) {
    throw new Error(name === undefined ? "there is no backup" : `there is no backup ${name}`);
  }
  const record = await readRecord(place, name);
  const fillBuckets = async (sources: readonly Source[]) => {
    for (const source of sources) await restoreObjects(source, { place, record }, say);
  };
  if (only === "objects") await withSources(fillBuckets);
  else await restoreAll(place, record, only === "databases" ? null : fillBuckets);
  say(`Restored ${name}, made at ${record.made_at}.`);
}

async function restoreAll(
  place: Place,
  record: BackupRecord,
  fillBuckets: ((sources: Source[]) => Promise<void>) | null,
) {
  const fill = async (database: DatabaseName, connection: Source["connection"]) => {
    const dump = record.services[database]?.database;
    if (!dump) return;
    // Without its buckets it is to have those that are there, and so keeps its identity.
    await restoreDatabase(connection, database, { dump, place, isCopy: fillBuckets !== null });
    await noteBackup({ name: database, connection }, record);
    say(`${database}: ${dump.tables.reduce((sum, { rows }) => sum + rows, 0)} rows`);
  };
  const deployed = deployedSources(process.env);
  if (deployed.length > 0) {
    for (const { name, connection } of deployed) await fill(name, connection);
    await fillBuckets?.(deployed);
    return;
  }
  const fillDatabases = async (connectionOf: (name: DatabaseName) => Source["connection"]) => {
    for (const name of ["markets", "vision", "graph"] as const) {
      await fill(name, connectionOf(name));
    }
  };
  await fillLocal(stateAt(), fillDatabases, fillBuckets ?? (async () => {}));
}

async function verify(json: boolean) {
  const found = await withSources(async (sources) => {
    const all = await Promise.all(
      sources.map(async (source) => [source.name, await compare(source)] as const),
    );
    return Object.fromEntries(all.filter(([, one]) => one !== null));
  });
  if (json) say(JSON.stringify(found));
  for (const [name, one] of Object.entries(found)) {
    if (!one) continue;
    if (one.missing.length > 0) process.exitCode = EXIT.failed;
    if (json) continue;
    say(`${name}: ${one.named} objects are named.`);
    showKeys("missing", one.missing);
    showKeys("named by nothing", one.superfluous);
  }
}

function showKeys(what: string, keys: readonly string[]) {
  if (keys.length === 0) return;
  say(`${keys.length} ${keys.length === 1 ? "object is" : "objects are"} ${what}:`);
  for (const key of keys.slice(0, SHOWN)) say(`  ${key}`);
  if (keys.length > SHOWN) say(`  … and ${keys.length - SHOWN} more`);
}

async function adopt(service: string | undefined) {
  const known = ["markets", "vision"];
  if (service === undefined) throw new UsageError("adopt needs markets or vision");
  if (!known.includes(service))
    throw new UsageError(`no bucket of ${service}${meant(service, known)}`);
  await withSources(async (sources) => {
    const source = sources.find(({ name }) => name === service);
    if (!source?.bucket) throw new Error(`the environment names no ${service} database`);
    const bucket = source.bucket.objects.asBinding();
    const listed = await withDatabase(source, async (database) => {
      if (service === "markets") return adoptMarkets({ database, bucket });
      await adoptBucket({ database, bucket });
      return 0;
    });
    say(`The bucket is the ${service} database's.`);
    if (listed > 0)
      say(`${listed} objects that nothing names are deleted after OBJECT_GRACE_DAYS.`);
  });
}

await runCommand("npm run backup", main);
