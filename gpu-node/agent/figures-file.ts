// What models came to, over restarts of the agent: the gates of the next rollout hold a model's
// scores against those of the one before, which a restart must not take away.

import { z } from "zod";
import { SCORE_BINS } from "../../shared/wire/fleet.ts";
import { isDiskFull } from "../base/failure.ts";
import { readIfThere, writeDurably } from "./durable-file.ts";

const count = () => z.number().int().min(0);
const Tally = z.object({
  inferences: count(),
  failures: count(),
  /** Detections of a score of 0.2 or more, in tenths from 0 to 1. */
  scores: z.array(count()).length(SCORE_BINS),
});
/** What a model came to since it was switched to. */
export type Tally = z.infer<typeof Tally>;

/** Versions whose counts are kept: what predicts, and what it may go back to. */
const VERSIONS_MAX = 2;
const VersionTallies = z.array(Tally.extend({ version: z.string() }));

export const nothingCounted = (): Tally => ({
  inferences: 0,
  failures: 0,
  scores: new Array<number>(SCORE_BINS).fill(0),
});

/** The counts of the newest versions, in one file. */
export class FiguresFile {
  readonly #path: string;
  /** The newest last. */
  #kept: z.infer<typeof VersionTallies>;

  constructor(path: string) {
    this.#path = path;
    this.#kept = keptAt(path);
  }

  /** What a version came to until it was kept last. */
  of(version: string): Tally {
    const known = this.#kept.find((one) => one.version === version);
    return known ? Tally.parse(known) : nothingCounted();
  }

  /** Keeps what a version came to; on a full disk, in memory. */
  keep(version: string, tally: Tally): void {
    const former = this.#kept.find((one) => one.version === version);
    if (former?.inferences === tally.inferences && former.failures === tally.failures) return;
    const others = this.#kept.filter((one) => one !== former);
    const own = { version, ...tally, scores: [...tally.scores] };
    this.#kept = [...others, own].slice(-VERSIONS_MAX);
    try {
      writeDurably(this.#path, JSON.stringify(this.#kept));
    } catch (thrown) {
      if (!isDiskFull(thrown)) throw thrown;
    }
  }
}

function keptAt(path: string): z.infer<typeof VersionTallies> {
  try {
    return VersionTallies.parse(JSON.parse(readIfThere(path) ?? "[]"));
  } catch {
    // A spoilt file is counts that are lost, and no reason not to predict.
    return [];
  }
}
