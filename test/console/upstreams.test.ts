// Which upstream a provider is, by what is configured, and how politely it is asked.

import { describe, expect, it } from "vitest";
import type { Config } from "../../edge/console/config.ts";
import { chooseUpstreams, REQUEST_INTERVALS_MS } from "../../edge/console/upstreams.ts";
import { ERCOT_SITE_URL } from "../../edge/markets/ingest/sources/ercot-mis.ts";
import { NOAA_BASE_URL } from "../../edge/markets/ingest/sources/noaa.ts";
import { TWELVE_DATA_BASE_URL } from "../../edge/markets/ingest/sources/twelve-data.ts";
import { Secret } from "../../shared/secret.ts";

const fetcher = { fetch, pause: async () => {} };
const choose = (config: Partial<Config>) => chooseUpstreams(config as Config, fetcher);
const SANDBOX_URL = "http://127.0.0.1:9";
const key = new Secret("hunter2");

describe("a provider with a credential", () => {
  it("is the real one when that is set, whatever else is", () => {
    const { twelveData } = choose({ TWELVE_DATA_API_KEY: key, SANDBOX_URL });
    const access = { baseUrl: TWELVE_DATA_BASE_URL, shownAs: TWELVE_DATA_BASE_URL, sandbox: false };
    expect(twelveData()).toMatchObject({ ...access, apiKey: key });
  });

  it("is else the sandbox, and names itself so", () => {
    const { twelveData } = choose({ EIA_API_KEY: key, SANDBOX_URL });
    const shown = { baseUrl: `${SANDBOX_URL}/twelve_data/`, shownAs: "sandbox://twelve_data/" };
    expect(twelveData()).toMatchObject({ ...shown, sandbox: true });
    expect(twelveData().apiKey.reveal()).toBe("sandbox");
  });

  it("is else none, and says what to set", () => {
    expect(() => choose({}).twelveData()).toThrow(
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

it("asks no real provider more often than its limit", () => {
  const interval = (url: string) => REQUEST_INTERVALS_MS.get(new URL(url).host) ?? 0;
  expect(interval(TWELVE_DATA_BASE_URL)).toBeGreaterThanOrEqual(60_000 / 8);
  expect(interval(NOAA_BASE_URL)).toBeGreaterThanOrEqual(1_000);
});
