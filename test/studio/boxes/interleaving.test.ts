// Two reviewers of one job over connections that fail. Goal: at the end both see what the server
// has, each edit was applied once or is shown to its maker, and no undo took back what somebody
// else did.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Box, BoxFields } from "../../../edge/studio/boxes/box.ts";
import { fieldsOf, isSame } from "../../../edge/studio/boxes/box.ts";
import { compose, type EditRow } from "../../../edge/studio/boxes/edit.ts";
import type { OutboxEntry } from "../../../edge/studio/boxes/outbox-queue.ts";
import { type EditServer, REFUSED_CLASS, VIDEO } from "../../support/edit-server.ts";
import {
  Browser,
  boxId,
  type Faults,
  NO_FAULTS,
  type Scenario,
  scenarioOf,
  type Tab,
} from "../../support/studio-browser.ts";

const BOXES = 6;
const FAULTS: Faults = {
  dropsRequest: 0.2,
  dropsAnswer: 0.2,
  doubles: 0.2,
  fails: 0.1,
  delay: 300,
};
const LONG_MS = 3_600_000;

/** A box as both sides must have it. */
const plain = (box: Box) => ({ ...fieldsOf(box), polygon: null, revision: box.revision });

const boxesOf = ({ job: { table } }: Tab) =>
  new Map(
    Array.from({ length: table.size }, (_, index) => index)
      .filter((index) => !table.isDeleted(index))
      .map((index) => [table.idAt(index), plain(table.read(index))] as const)
      .sort(([one], [other]) => (one < other ? -1 : 1)),
  );

const boxesOfServer = ({ rows }: EditServer) =>
  new Map(
    [...rows.values()]
      .map((row) => {
        const { frame_id, class: className, bbox, accepted, track_id, revision } = row;
        const fields = { frame_id, class: className, bbox, accepted, track_id };
        return [row.annotation_id, { ...fields, polygon: null, revision }] as const;
      })
      .sort(([one], [other]) => (one < other ? -1 : 1)),
  );

/** One thing that happens. */
type Move =
  | { kind: "set"; who: 0 | 1; box: number; fields: Partial<BoxFields> }
  | { kind: "delete" | "insist" | "dismiss"; who: 0 | 1; box: number }
  | { kind: "draw" | "undo" | "redo" | "kill" | "second" | "offline" | "online"; who: 0 | 1 }
  | { kind: "pass"; milliseconds: number };

const who = fc.constantFrom(0 as const, 1 as const);
const box = fc.nat(BOXES - 1);
const corner = fc.integer({ min: -50, max: 1_050 });
const fields: fc.Arbitrary<Partial<BoxFields>> = fc.oneof(
  fc.record({ class: fc.constantFrom("car", "bag", "person", REFUSED_CLASS) }),
  fc.record({ accepted: fc.constantFrom(true, false, null) }),
  fc.record({ class: fc.constantFrom("car", "bag"), accepted: fc.constantFrom(true, false) }),
  corner.map((x): Partial<BoxFields> => ({ bbox: [x, 10, x + 30, 40] })),
);
const move: fc.Arbitrary<Move> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("set" as const), who, box, fields }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom("delete" as const, "insist" as const, "dismiss" as const),
      who,
      box,
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom(
        ...(["draw", "undo", "undo", "redo", "kill", "second", "offline", "online"] as const),
      ),
      who,
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("pass" as const),
      milliseconds: fc.constantFrom(0, 50, 100, 500, 5_000),
    }),
  },
);

/** A reviewer with the browser and the tab in which the moves are made. */
class Reviewer {
  readonly browser: Browser;
  tabs: Tab[] = [];
  /** Cards that were given up: their edits are accounted for. */
  readonly dismissed = new Set<string>();

  constructor(name: string, scenario: Scenario) {
    this.browser = new Browser(name, scenario);
  }

  async open(): Promise<void> {
    this.tabs.push(await this.browser.open());
  }

  get tab(): Tab {
    return this.tabs.at(-1) as Tab;
  }

  async make(move: Exclude<Move, { kind: "pass" }>): Promise<void> {
    const { job } = this.tab;
    if (move.kind === "set") job.commit([{ id: boxId(move.box), after: move.fields }], "set");
    else if (move.kind === "delete") job.commit([{ id: boxId(move.box), after: null }], "delete");
    else if (move.kind === "draw") {
      const bbox = [1, 2, 3, 4] as const;
      const drawn = { class: "bag", bbox, polygon: null, accepted: true, track_id: null };
      job.draw({ frame_id: `${VIDEO}.1`, ...drawn }, "draw");
    } else if (move.kind === "undo") job.undo();
    else if (move.kind === "redo") job.redo();
    else if (move.kind === "insist" || move.kind === "dismiss") {
      const card = job.cards()[move.box];
      if (!card) return;
      this.dismissed.add(card.key);
      if (move.kind === "insist") job.insist(card.key);
      else job.dismiss([card.key]);
    } else if (move.kind === "kill") {
      this.tab.kill();
      this.tabs.pop();
      if (this.tabs.length === 0) await this.open();
    } else if (move.kind === "second") {
      if (this.tabs.length < 2) await this.open();
    } else for (const tab of this.tabs) tab.setOnline(move.kind === "online");
  }

  /** Entries that were stored, none of whose forms the server applied and that nobody is shown. */
  lost(server: EditServer): unknown[] {
    const cards = new Set(this.tab.job.cards().map(({ ours }) => ours.id));
    const dismissedIds = new Set(
      [...this.dismissed].map((key) => this.browser.entries.get(key)?.[0]?.row.id),
    );
    const first = [...this.browser.entries.values()].map(([entry]) => entry as OutboxEntry);
    // Edits of one annotation that come to nothing together: their maker took them back.
    const isTakenBack = (own: OutboxEntry) => {
      const all = first.filter(({ row }) => row.id === own.row.id);
      all.sort((one, other) => (one.key < other.key ? -1 : 1));
      const index = all.indexOf(own);
      return all.slice(0, index + 1).some((_, start) => {
        let sum: EditRow | null = null;
        return all.slice(start).some(({ row }, position) => {
          sum = sum ? compose(sum, row) : row;
          return sum === null && start + position >= index;
        });
      });
    };
    return [...this.browser.entries.values()].filter((forms) => {
      if (isTakenBack(forms[0] as OutboxEntry)) return false;
      const { row } = forms.at(-1) ?? {};
      if (!row || forms.some(({ edit_id }) => server.applied.has(edit_id))) return false;
      if (cards.has(row.id) || dismissedIds.has(row.id)) return false;
      // The annotation was as the edit wants it, by somebody else's hand.
      const isMet = (server.states.get(row.id) ?? []).some(({ row: state }) => {
        if (!state || !row.after) return state === row.after;
        const { after } = row;
        const names = Object.keys(after) as (keyof BoxFields)[];
        return names.every((name) => isSame(name, after, state as BoxFields));
      });
      return !isMet;
    });
  }

  /** Undos that the server applied on top of somebody else's work. */
  overwrites(server: EditServer): unknown[] {
    const undos = [...this.browser.entries.values()].flat().filter(({ strict }) => strict);
    return undos.filter(({ edit_id, row }) => {
      const applied = server.applied.get(edit_id);
      // A deleted annotation is drawn again, whoever deleted it.
      return applied && row.before !== null && applied.before !== this.browser.account;
    });
  }
}

async function play(seed: number, moves: readonly Move[], faults: Faults) {
  const scenario = scenarioOf(seed, BOXES, faults);
  const reviewers = [new Reviewer("ann", scenario), new Reviewer("mara", scenario)] as const;
  for (const reviewer of reviewers) await reviewer.open();
  for (const one of moves) {
    if (one.kind === "pass") await scenario.time.pass(one.milliseconds);
    else await reviewers[one.who].make(one);
  }
  scenario.faults = { ...faults, dropsRequest: 0, dropsAnswer: 0, fails: 0 };
  for (const { tabs } of reviewers) for (const tab of tabs) tab.setOnline(true);
  await scenario.time.pass(LONG_MS);
  return { scenario, reviewers };
}

async function check(seed: number, moves: readonly Move[], faults: Faults): Promise<void> {
  const { scenario, reviewers } = await play(seed, moves, faults);
  const { server } = scenario;
  const truth = boxesOfServer(server);
  for (const reviewer of reviewers) {
    for (const tab of reviewer.tabs) {
      expect(tab.job.outbox.status.waiting).toBe(0);
      expect(boxesOf(tab)).toEqual(truth);
    }
    expect(reviewer.lost(server)).toEqual([]);
    expect(reviewer.overwrites(server)).toEqual([]);
  }
}

const RUNS = Number(process.env.RUNS ?? 150);
const seedOf = Number(process.env.SEED ?? 20_261_129);

describe("two reviewers", () => {
  it("end with what the server has, and lose no edit", async () => {
    const moves = fc.array(move, { minLength: 5, maxLength: 40, size: "max" });
    await fc.assert(
      fc.asyncProperty(fc.nat(), moves, (seed, all) =>
        check(seed, all, { ...NO_FAULTS, delay: 200 }),
      ),
      { numRuns: RUNS, seed: seedOf },
    );
  });

  it("do so over connections that drop, double and delay requests and answers", async () => {
    const moves = fc.array(move, { minLength: 5, maxLength: 40, size: "max" });
    await fc.assert(
      fc.asyncProperty(fc.nat(), moves, (seed, all) => check(seed, all, FAULTS)),
      { numRuns: RUNS, seed: seedOf },
    );
  });
});

describe("10,000 edits over a connection that fails", () => {
  it("are applied once each", async () => {
    const scenario = scenarioOf(5, BOXES, FAULTS);
    const { server, time, random } = scenario;
    const reviewer = new Reviewer("ann", scenario);
    await reviewer.open();
    const changes = new Map<string, number>();
    const expected = new Map<string, number>();
    const ids: string[] = [];
    for (let edit = 0; edit < 10_000; edit++) {
      const { job } = reviewer.tab;
      const isNew = ids.length < 500 || random() < 0.3;
      const x = Math.floor(random() * 900);
      const bbox = [x, edit % 900, x + 10, 1_000] as const;
      const id = isNew
        ? job.draw(
            {
              frame_id: `${VIDEO}.1`,
              class: "bag",
              bbox,
              accepted: true,
              polygon: null,
              track_id: null,
            },
            "draw",
          )
        : (ids[Math.floor(random() * ids.length)] as string);
      if (isNew) ids.push(id);
      const isSet = isNew || job.commit([{ id, after: { bbox } }], "move") !== null;
      if (isSet) changes.set(id, (changes.get(id) ?? 0) + 1);
      expected.set(id, x);
      if (edit % 20 === 0) await time.pass(random() * 400);
      if (edit % 1_000 === 999) {
        // What was done in the last instant is not stored yet.
        await time.pass(30);
        await reviewer.make({ kind: "kill", who: 0 });
      }
    }
    await time.pass(LONG_MS);
    expect(reviewer.tab.job.outbox.status.waiting).toBe(0);
    expect(reviewer.tab.job.cards()).toEqual([]);
    const revisions = new Map(ids.map((id) => [id, server.rows.get(id)?.revision]));
    expect(revisions).toEqual(changes);
    expect(new Map(ids.map((id) => [id, server.rows.get(id)?.bbox[0]]))).toEqual(expected);
    expect(boxesOf(reviewer.tab)).toEqual(boxesOfServer(server));
  });
});
