// Which upstream a provider is, by what is configured, how politely it is asked, and what a new one
// owes to files that no type holds to the table.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { unstable_readConfig as readConfig } from "wrangler";
import { ROOT } from "../../edge/local/state.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import {
  INGEST_QUEUES,
  openUpstreams,
  PROVIDER_IDS,
  PROVIDER_SETTINGS,
  PROVIDERS,
  type ProviderConfig,
  queueBinding,
  queueName,
  requestIntervalsMs,
} from "../../edge/markets/ingest/providers.ts";
import { ERCOT_SITE_URL } from "../../edge/markets/ingest/sources/ercot-mis.ts";
import { NOAA_BASE_URL } from "../../edge/markets/ingest/sources/noaa.ts";
import { TWELVE_DATA_BASE_URL } from "../../edge/markets/ingest/sources/twelve-data.ts";
import { politely } from "../../edge/markets/ingest/sources/upstream.ts";
import { Secret } from "../../shared/secret.ts";
import { unnamed } from "../tidy/documents.ts";

const fetcher = { fetch, pause: async () => {} };
const choose = (config: Partial<ProviderConfig>) =>
  openUpstreams(config as ProviderConfig, fetcher);
const SANDBOX_URL = "http://127.0.0.1:9";
const key = new Secret("hunter2");
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

describe("a provider with a credential", () => {
  it("is the real one when that is set, whatever else is", () => {
    const { twelve_data } = choose({ TWELVE_DATA_API_KEY: key, SANDBOX_URL });
    const access = { baseUrl: TWELVE_DATA_BASE_URL, shownAs: TWELVE_DATA_BASE_URL, sandbox: false };
    expect(twelve_data()).toMatchObject({ ...access, apiKey: key });
  });

  it("is else the sandbox, and names itself so", () => {
    const { twelve_data } = choose({ EIA_API_KEY: key, SANDBOX_URL });
    const shown = { baseUrl: `${SANDBOX_URL}/twelve_data/`, shownAs: "sandbox://twelve_data/" };
    expect(twelve_data()).toMatchObject({ ...shown, sandbox: true });
    expect(twelve_data().apiKey.reveal()).toBe("sandbox");
  });

  it("is else none, and says what to set", () => {
    expect(() => choose({}).twelve_data()).toThrow(
      expect.objectContaining({
        code: "credential_missing",
        message: expect.stringContaining("TWELVE_DATA_API_KEY is not set"),
      }),
    );
  });
});

describe("ERCOT", () => {
  it("is none without credentials and sandbox, and says what to set", () => {
    expect(() => choose({}).ercot()).toThrow(
      expect.objectContaining({
        code: "credential_missing",
        message: expect.stringMatching(
          /^ERCOT_USERNAME, ERCOT_PASSWORD, ERCOT_SUBSCRIPTION_KEY are not set.+ERCOT_PUBLIC_LISTS/,
        ),
      }),
    );
  });

  it("is its public document lists where these are configured", () => {
    const { api, site, sandbox } = choose({ ERCOT_PUBLIC_LISTS: true }).ercot();
    expect([api, site.shownAs, sandbox]).toEqual([null, ERCOT_SITE_URL, false]);
    expect(choose({ ERCOT_PUBLIC_LISTS: true, SANDBOX_URL }).ercot().api).toBeNull();
  });
});

describe("a provider without a credential", () => {
  it("is the sandbox where there is one, else the real one", () => {
    const [sandbox, real] = [choose({ SANDBOX_URL, EIA_API_KEY: key }).noaa(), choose({}).noaa()];
    expect(sandbox).toMatchObject({
      sandbox: true,
      shownAs: expect.stringMatching(/^sandbox:\/\/noaa\//),
    });
    expect(real).toEqual({ baseUrl: NOAA_BASE_URL, shownAs: NOAA_BASE_URL, sandbox: false });
  });
});

describe("the intervals between requests", () => {
  const intervals = requestIntervalsMs({ SANDBOX_URL } as ProviderConfig);

  it("are no shorter than what providers publish, and none with the sandbox", () => {
    const interval = (url: string) => intervals.get(new URL(url).host) ?? 0;
    expect(interval(TWELVE_DATA_BASE_URL)).toBeGreaterThanOrEqual(60_000 / 8);
    expect(interval(NOAA_BASE_URL)).toBeGreaterThanOrEqual(1_000);
    expect(interval(SANDBOX_URL)).toBe(0);
  });

  it("name every host that a source has an address of", () => {
    const folder = "edge/markets/ingest/sources";
    const texts = readdirSync(join(ROOT, folder)).map((file) => read(`${folder}/${file}`));
    const hosts = texts.flatMap((text) =>
      [...text.matchAll(/https:\/\/([a-z0-9.-]+)/g)].map(([, host]) => host ?? ""),
    );
    expect(new Set(hosts).size).toBeGreaterThanOrEqual(PROVIDER_IDS.length);
    expect([...new Set(hosts)].filter((host) => !intervals.has(host))).toEqual([]);
  });

  it("are the longest one for a host that nobody named", async () => {
    const pauses: number[] = [];
    const polite = politely(
      { fetch: async () => new Response(), pause: async (ms) => void pauses.push(ms) },
      new Map([...intervals, ["slow.test", 9_000]]),
      () => 0,
    );
    const init = { redirect: "manual" as const, signal: AbortSignal.timeout(1_000) };
    for (const _ of [1, 2]) await polite.fetch("https://elsewhere.test/file", init);
    expect(pauses).toEqual([9_000]);
  });
});

describe("every provider", () => {
  const { queues } = readConfig({ config: join(ROOT, "wrangler.toml"), env: "console" });

  it("has a queue in wrangler.toml that runs one of its runs at a time", () => {
    const names = PROVIDER_IDS.map((id) => ({ binding: queueBinding(id), queue: queueName(id) }));
    expect(queues.producers).toEqual(names.map((name) => expect.objectContaining(name)));
    expect(queues.consumers).toEqual(
      names.map(({ queue }) => ({
        queue,
        max_batch_size: 1,
        max_batch_timeout: 0,
        max_concurrency: 1,
        max_retries: 10,
      })),
    );
  });

  it("has its settings and its queue in the documents that name all of them", () => {
    const settings = Object.keys(PROVIDER_SETTINGS);
    const documented = read("edge/local/README.md");
    expect(unnamed([...settings, ...Object.keys(INGEST_QUEUES)], documented)).toEqual([]);
    const lines = read(".dev.vars.example").split("\n");
    const isSet = (name: string) => lines.some((line) => line.startsWith(`${name}=`));
    expect(
      settings.filter((name) => !isSet(name)),
      ".dev.vars.example",
    ).toEqual([]);
    const compose = read("edge/local/container/compose.yaml");
    const isPassed = (name: string) => compose.includes(`      ${name}: \${${name}:-}`);
    expect(
      settings.filter((name) => !isPassed(name)),
      "compose.yaml",
    ).toEqual([]);
  });
});

it("has a pipeline, whichever provider it is", () => {
  const used = new Set(PIPELINES.map(({ provider }) => provider));
  expect(
    PROVIDER_IDS.filter((id) => !used.has(id)),
    "list it in ingest/pipelines.ts",
  ).toEqual([]);
});

describe("every pipeline", () => {
  const rows = read("edge/markets/README.md")
    .split("\n")
    .flatMap((line) => {
      const job = /^\| `(\w+)`[^|]* \| `[a-z]+(\.|` \|)/.exec(line)?.[1];
      return job === undefined ? [] : [[job, line] as const];
    });

  it("has a row in the table of edge/markets/README.md, in the order of lists", () => {
    expect(rows.map(([job]) => job)).toEqual(PIPELINES.map(({ job }) => job));
  });

  it.each(PIPELINES)("$job is told there with what is its own", (pipeline) => {
    const [, row = ""] = rows.find(([job]) => job === pipeline.job) ?? [];
    const [schedule] = pipeline.schedules;
    const zone = schedule?.timeZone.split("/")[1]?.replace("_", " ");
    expect(unnamed(pipeline.libraries, row)).toEqual([]);
    if (schedule) expect(row).toContain(`\`${schedule.cron}\` ${zone}`);
    const [credential] = Object.keys(PROVIDERS[pipeline.provider].settings);
    if (credential) expect(row).toMatch(new RegExp(`\`${credential.split("_")[0]}_`));
  });
});
