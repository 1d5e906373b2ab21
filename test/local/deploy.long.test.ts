// The production path as far as it goes without an account: wrangler takes the configuration,
// bundles each Worker and finds its bindings.

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { unstable_readConfig as readConfig } from "wrangler";
import { ROOT } from "../../edge/local/state.ts";
import { WORKERS } from "../../edge/local/workers.ts";

const deploy = (args: string[], environment: Record<string, string> = {}) =>
  spawnSync(process.execPath, [join(ROOT, "edge/local/deploy.ts"), "--settings", "none", ...args], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, HOME: process.env.HOME, CI: "true", ...environment },
  });

/** The longest that Cloudflare lets a request compute; without a limit of its own it is 30 s. */
const CPU_MS_MAX = 300_000;

describe("wrangler.toml", () => {
  // A read with `start` or `end` has no cap on its rows, nor has a compaction: what they compute
  // grows with the series, so no less than the platform's longest is enough.
  it.each(["markets", "console"])("gives %s the CPU time that work without a cap needs", (env) => {
    const { limits } = readConfig({ config: join(ROOT, "wrangler.toml"), env });
    expect(limits).toEqual({ cpu_ms: CPU_MS_MAX });
  });
});

describe("every Worker in wrangler.toml", () => {
  it.each(WORKERS)(
    "%s says whether it wants Node's modules, and no line of its own a request",
    (env) => {
      const { compatibility_flags: flags, observability } = readConfig({
        config: join(ROOT, "wrangler.toml"),
        env,
      });
      // By now they are there unless they are refused: silence would mean the opposite of before.
      expect(flags.filter((flag: string) => /^(no_)?nodejs_compat$/.test(flag))).toHaveLength(1);
      expect(observability).toEqual({
        enabled: true,
        head_sampling_rate: 1,
        logs: { enabled: true, invocation_logs: false },
      });
    },
  );
});

describe("npm run deploy", () => {
  it("passes wrangler's dry run for every service", () => {
    const { status, stdout } = deploy(["--dry-run"]);
    expect([status, stdout.match(/--dry-run: exiting now/g)?.length]).toEqual([0, 4]);
    expect(stdout).toContain("env.STORE (vantage-markets)");
    expect(stdout).toContain("env.INGEST_EIA (vantage-ingest-eia)");
    expect(stdout).toContain("env.PROGRESS (ProgressTopic)");
    expect(stdout).toContain("env.DOORBELL (Doorbell)");
    expect(stdout).toContain("env.INFER (vantage-infer)");
    // The platform takes 10 MB, and starts by reading all of it. Of inference at the edge the
    // runtime's WebAssembly is nine tenths.
    const kibibytes = [...stdout.matchAll(/gzip: ([\d.]+) KiB/g)].map(([, size]) => Number(size));
    expect(kibibytes.length).toBe(4);
    expect(Math.max(...kibibytes)).toBeLessThan(4_096);
  });

  it("gives wrangler what a deployment does beyond wrangler.toml, in a form that it takes", () => {
    const { status, stdout, stderr } = deploy(["--dry-run", "markets", "vision"], {
      DOMAIN_MARKETS: "markets.example.com",
      DOMAIN_VISION: "vision.example.com",
      PLACEMENT: "aws:us-east-2",
    });
    expect([status, stderr]).toEqual([0, ""]);
    // Wrangler hides the values of variables that it is given.
    expect(stdout).toContain("env.REGISTRATION");
    expect(stdout).toContain("env.CACHE_HOST");
    const placed = readdirSync(ROOT).filter((name) => name.startsWith("wrangler.deploy."));
    expect(placed).toEqual([]);
  });

  it("says what is missing before it changes anything, and refuses an unknown service", () => {
    const url = "postgresql://owner:hunter2@127.0.0.1:1/vision";
    const { status, stdout, stderr } = deploy(["markets", "vision"], { VISION_MIGRATE_URL: url });
    expect([status, stderr]).toEqual([1, expect.stringContaining("nothing was changed")]);
    expect(stdout).toContain("not set: CLOUDFLARE_ACCOUNT_ID, CLOUDFLARE_API_TOKEN");
    expect(stdout).toContain("MARKETS_MIGRATE_URL is not set");
    expect(stdout).toContain("database vision: cannot be looked at: ECONNREFUSED");
    expect(stdout + stderr).not.toMatch(/hunter2|^ {4}at /m);
    const unknown = deploy(["--dry-run", "nope"]);
    expect([unknown.status, unknown.stderr]).toEqual([
      2,
      expect.stringContaining("no service is named nope"),
    ]);
  });
});
