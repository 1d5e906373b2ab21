// What the agency would truly answer, changed row by row: a provider's bad day.

import type { SandboxAnswer } from "../../edge/local/sandbox/answers.ts";
import { answerEia } from "../../edge/local/sandbox/eia.ts";
import { type EiaRecord, eiaPage } from "./recordings.ts";

/**
 * The sandbox's answer at `now`, epoch milliseconds, with each row changed; undefined leaves a row
 * out.
 */
export const distorted =
  (change: (row: EiaRecord) => EiaRecord | undefined, now: () => number) =>
  (url: URL): SandboxAnswer => {
    const asked = new URL(url);
    const all: EiaRecord[] = [];
    for (let offset = 0, total = 1; offset < total; offset += 5_000) {
      asked.searchParams.set("offset", String(offset));
      // The sandbox answers in the agency's own form.
      const { response } = answerEia(asked, now()).body as {
        response: { total: string; data: EiaRecord[] };
      };
      total = Number(response.total);
      all.push(...response.data);
    }
    const kept = all.flatMap((row) => change(row) ?? []);
    return { status: 200, body: eiaPage(kept, url) };
  };

/** Rows of ERCOT's demand. */
export const isErcotDemand = ({ respondent, type }: EiaRecord): boolean =>
  respondent === "ERCO" && type === "D";
