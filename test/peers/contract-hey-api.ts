// hey-api's generator: a client of each document that the compiler takes, and a call of every
// operation with it.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FILES, type ServiceDescription } from "./contract-services.ts";
import { execute } from "./environments.ts";
import type { GroupContext } from "./group.ts";
import { type Outcome, parseOutcomes } from "./known.ts";

/** How strictly generated clients are checked. */
export const COMPILER = {
  noEmit: true,
  strict: true,
  target: "es2023",
  lib: ["es2023", "dom", "dom.iterable"],
  module: "nodenext",
  allowImportingTsExtensions: true,
  types: [],
};

/** Makes the calls that it is told of, and prints an outcome for each. */
const program = (name: string) => `import { readFileSync } from "node:fs";
import { createClient } from "./${name}/client/index.ts";
import * as sdk from "./${name}/sdk.gen.ts";

const [, , group = "", described = ""] = process.argv;
const { url: baseUrl, calls, files } = JSON.parse(readFileSync(described, "utf8"));
const client = createClient({ baseUrl, redirect: "manual" });
const say = (name, outcome, detail) =>
  process.stdout.write(JSON.stringify({ case: group + "/call/" + name, outcome, detail }) + "\\n");
for (const { name, operationId, path, query, body, form, headers, skipped } of calls) {
  if (skipped) {
    say(name, "skipped", skipped);
    continue;
  }
  const [, kind = "video"] = /(image|archive)s?$/.exec(name) ?? [];
  const bytes = files[kind];
  const file = (value) => value ?? new Blob([Buffer.from(bytes, "base64")]);
  const fields = Object.entries(form).map(([key, value]) =>
    [key, key === "files" ? [file(value)] : file(value)]);
  const sent = fields.length > 0 ? Object.fromEntries(fields) : body;
  try {
    const { data, error, response } = await sdk[operationId]({
      client, path, query, headers, ...(sent === undefined ? {} : { body: sent }),
    });
    const { status } = response;
    const refused = Object.keys(headers).length > 0 ? [400, 401, 422] : [400, 422];
    const isSense = !refused.includes(status);
    const isRead = status === 204 || status >= 300 || data !== undefined;
    const detail = status + " " + JSON.stringify(status < 400 ? null : error)?.slice(0, 300);
    say(name, isSense && isRead ? "passed" : "failed", detail);
  } catch (thrown) {
    say(name, "failed", String(thrown).slice(0, 300));
  }
}
`;

/** The client's outcomes. */
export async function heyApiClients(
  described: readonly ServiceDescription[],
  context: GroupContext,
): Promise<Outcome[]> {
  const folder = join(context.folder, "node/hey-api");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const outcomes: Outcome[] = [];
  for (const service of described) outcomes.push(...(await oneClient(service, folder, context)));
  const include = described.map(({ name }) => name);
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...COMPILER, skipLibCheck: true }, include }),
  );
  const compiler = join(context.folder, "node/node_modules/typescript/bin/tsc");
  const { code, output } = await execute([process.execPath, compiler, "--project", folder], {
    msMax: context.msLeft(),
  });
  const compiled = "contract/hey-api/compile";
  if (code === 0) return [{ case: compiled, outcome: "passed" }, ...outcomes];
  return [{ case: compiled, outcome: "failed", detail: output.slice(0, 1_000) }, ...outcomes];
}

async function oneClient(
  { name, document, calls, url }: ServiceDescription,
  folder: string,
  context: GroupContext,
): Promise<Outcome[]> {
  const group = `contract/hey-api/${name}`;
  const files = {
    config: join(folder, `${name}.config.mjs`),
    calls: join(folder, `${name}.json`),
    program: join(folder, `${name}.call.mjs`),
  };
  const config = {
    input: document,
    output: { path: join(folder, name), importFileExtension: ".ts" },
    plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
    logs: { level: "warn" },
  };
  writeFileSync(files.config, `export default ${JSON.stringify(config)};\n`);
  writeFileSync(files.calls, JSON.stringify({ url, calls: calls.heyApi, files: FILES }));
  writeFileSync(files.program, program(name));
  const tool = join(context.folder, "node/node_modules/@hey-api/openapi-ts/bin/run.js");
  const run = (...command: [string, ...string[]]) =>
    execute([process.execPath, ...command], { msMax: context.msLeft(), env: { NO_COLOR: "1" } });
  const made = await run(tool, "--file", files.config);
  const complaints = /\b(warn|error)/i.test(made.output) || made.code !== 0;
  const generated: Outcome = complaints
    ? { case: `${group}/generate`, outcome: "failed", detail: made.output.slice(-1_000) }
    : { case: `${group}/generate`, outcome: "passed" };
  const called = await run(files.program, group, files.calls);
  return [generated, ...parseOutcomes(`${group}/call`, called.output, called)];
}
