// What a device knows of its models, in one file that is replaced whole: what it runs, what it can
// go back to, and how far it is with what is wanted of it. Every move is on the disk before it is
// made, so a device that is cut off at any moment goes on from it.

import { join } from "node:path";
import { z } from "zod";
import { MODEL_STATES, type ModelState } from "../../shared/wire/fleet.ts";
import { Manifest } from "../../shared/wire/rollouts.ts";
import { isDiskFull } from "../base/failure.ts";
import { readIfThere, writeDurably } from "./durable-file.ts";

const SLOTS = ["a", "b"] as const;
/** One of the two files that a device has room for. */
export type Slot = (typeof SLOTS)[number];

/** A model that is in a slot, and was tried there. */
const InstalledModel = z.object({ slot: z.enum(SLOTS), manifest: Manifest });

const Update = z.object({
  manifest: Manifest,
  slot: z.enum(SLOTS),
  state: z.enum(MODEL_STATES),
  failure: z.string().nullable(),
  /** Starts of the agent on this model, unconfirmed, that were not ended in order. */
  starts: z.number().int().min(0),
  /** Whether the file came in more than one answer, and may be put together wrongly. */
  in_parts: z.boolean(),
  /** Whether it is fetched again from its beginning, since what was put together was wrong. */
  again: z.boolean(),
});
/** How far the device is with the newest manifest that it took. */
export type Update = z.infer<typeof Update>;

const State = z.object({
  /** Version of the newest manifest that was taken. */
  seen: z.string(),
  /** What predicts. */
  current: InstalledModel.nullable(),
  /** What predicted before, in the other slot, while that still holds it. */
  former: InstalledModel.nullable(),
  update: Update.nullable(),
});
/** All that a device knows of its models. */
export type DeviceModels = z.infer<typeof State>;

const NONE: DeviceModels = { seen: "0", current: null, former: null, update: null };

/** An update after which nothing more is done. */
export const isEnd = (state: ModelState): boolean =>
  state === "confirmed" || state === "rolled_back" || state === "failed";

/** Hears of each move when it is on the disk; tests cut the process off there. */
export type OnStep = (step: string) => void;

/** The state file of a device's folder. */
export class DeviceStateFile {
  readonly #path: string;
  readonly #onStep: OnStep;
  #models: DeviceModels;
  /** Whether the disk lacks something. */
  #isBehind = false;
  /** Whether a file was there that could not be read. */
  readonly spoilt: boolean;

  constructor(dir: string, onStep: OnStep = () => {}) {
    this.#path = join(dir, "state.json");
    this.#onStep = onStep;
    const text = readIfThere(this.#path);
    const kept = text === null ? null : parsed(text);
    this.spoilt = text !== null && kept === null;
    this.#models = kept ?? NONE;
  }

  get models(): DeviceModels {
    return this.#models;
  }

  /**
   * Keeps a change; it is on the disk when this returns. Where that is full, fails with ENOSPC.
   */
  keep(change: Partial<DeviceModels>, step: string): void {
    this.#onStep(`before:${step}`);
    const models = { ...this.#models, ...change };
    writeDurably(this.#path, JSON.stringify(models));
    this.#models = models;
    this.#isBehind = false;
    this.#onStep(`after:${step}`);
  }

  /**
   * Keeps a change that would be found again from what is on the disk: where that is full, in
   * memory, until there is room.
   */
  keepInAnyCase(change: Partial<DeviceModels>, step: string): void {
    try {
      this.keep(change, step);
    } catch (thrown) {
      if (!isDiskFull(thrown)) throw thrown;
      this.#models = { ...this.#models, ...change };
      this.#isBehind = true;
    }
  }

  /** Brings to the disk what found no room there. */
  catchUp(): void {
    if (this.#isBehind) this.keepInAnyCase({}, "caught_up");
  }

  /** Keeps how far the update is; fails with ENOSPC where there is no room. */
  move(state: ModelState, more: Partial<Update> = {}, models: Partial<DeviceModels> = {}): void {
    this.keep(this.#moved(state, more, models), state);
  }

  /** Keeps how far the update is, in memory where there is no room. */
  moveInAnyCase(
    state: ModelState,
    more: Partial<Update> = {},
    models: Partial<DeviceModels> = {},
  ): void {
    this.keepInAnyCase(this.#moved(state, more, models), state);
  }

  #moved(
    state: ModelState,
    more: Partial<Update>,
    models: Partial<DeviceModels>,
  ): Partial<DeviceModels> {
    const { update } = this.#models;
    if (!update) throw new Error("an update is under way when it moves");
    return { ...models, update: { ...update, state, ...more } };
  }
}

function parsed(text: string): DeviceModels | null {
  try {
    return State.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** The slot that is not the one that predicts. */
export const freeSlot = ({ current }: DeviceModels): Slot => (current?.slot === "a" ? "b" : "a");
