// The boxes of a job while several people work on them. Goal: one's own change shows at once and
// stays until it is answered, the changes of others show on the fields around it, and an undo takes
// back nothing but one's own work.

import { describe, expect, it } from "vitest";
import type { BoxFields } from "../../../edge/studio/boxes/box.ts";
import { uuidSource } from "../../../edge/studio/boxes/identity.ts";
import type { Notice } from "../../../edge/studio/boxes/job.ts";
import { dice } from "../../support/dice.ts";
import { VIDEO } from "../../support/edit-server.ts";
import {
  Browser,
  boxId,
  type Scenario,
  scenarioOf,
  type Tab,
} from "../../support/studio-browser.ts";

interface World {
  scenario: Scenario;
  browser: Browser;
  tab: Tab;
  /** Somebody else's edit of a box. */
  mara(index: number, fields: Partial<BoxFields> | null): void;
}

const newId = uuidSource(() => 5, dice(9));

async function world(): Promise<World> {
  const scenario = scenarioOf(1, 3, {
    dropsRequest: 0,
    dropsAnswer: 0,
    doubles: 0,
    fails: 0,
    delay: 5,
  });
  const browser = new Browser("ann", scenario);
  const { server } = scenario;
  const mara = (index: number, fields: Partial<BoxFields> | null) => {
    const own = { edit_id: newId(), annotation_id: boxId(index) };
    const revision = server.rows.get(boxId(index))?.revision ?? 0;
    if (fields) server.edit("mara", [{ ...own, op: "set", revision, fields }]);
    else server.edit("mara", [{ ...own, op: "delete", revision }]);
  };
  return { scenario, browser, tab: await browser.open(), mara };
}

const set = (tab: Tab, index: number, after: Partial<BoxFields>) =>
  tab.job.commit([{ id: boxId(index), after }], "set");
const shown = (tab: Tab, index: number) => tab.job.table.get(boxId(index));
const stored = ({ scenario }: World, index: number) => scenario.server.rows.get(boxId(index));

describe("an own change", () => {
  it("shows at once, and the changes of others around it too", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    const notices: Notice[] = [];
    const stop = tab.job.subscribe((notice) => notices.push(notice));
    set(tab, 0, { class: "bag" });
    expect(shown(tab, 0)?.class).toBe("bag");
    expect(notices).toEqual([{ ids: new Set([boxId(0)]) }]);
    mara(0, { class: "dog", accepted: true });
    await scenario.time.pass(20);
    expect(shown(tab, 0)).toMatchObject({ class: "bag", accepted: true });
    await scenario.time.pass(500);
    expect(shown(tab, 0)).toMatchObject({ class: "dog", accepted: true });
    expect(tab.job.cards()).toMatchObject([{ reason: "conflict", theirs: { class: "dog" } }]);
    stop();
    const { length } = notices;
    set(tab, 1, { class: "bag" });
    expect(notices).toHaveLength(length);
  });

  it("is sent again on top of others' changes of other fields, and nobody is asked", async () => {
    const all = await world();
    set(all.tab, 0, { class: "bag" });
    all.mara(0, { accepted: false });
    await all.scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ class: "bag", accepted: false, revision: 3 });
    expect(all.tab.job.cards()).toEqual([]);
    expect(shown(all.tab, 0)?.revision).toBe(3);
  });

  it("that changes nothing is none, also in its last corner's float32", async () => {
    const { tab } = await world();
    expect(set(tab, 0, { class: "car", bbox: [10, 10, 20, 20 + 1e-9] })).toBeNull();
    expect(tab.job.history.undoCount).toBe(0);
  });

  it("of a box takes its polygon away, and one of a polygon sets the box", async () => {
    const all = await world();
    const { tab, scenario } = all;
    set(tab, 0, { polygon: [0, 1, 50, 1, 50, 61] });
    expect(shown(tab, 0)?.bbox).toEqual([0, 1, 50, 61]);
    set(tab, 0, { bbox: [5, 5, 9, 9] });
    expect(shown(tab, 0)?.polygon).toBeNull();
    tab.job.undo();
    await scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ polygon: [0, 1, 50, 1, 50, 61], bbox: [0, 1, 50, 61] });
    tab.job.undo();
    await scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ polygon: null, bbox: [10, 10, 20, 20] });
  });

  it("of an annotation that somebody deleted can be drawn again", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    set(tab, 0, { class: "bag" });
    mara(0, null);
    await scenario.time.pass(500);
    const [card] = tab.job.cards();
    expect(card).toMatchObject({ reason: "gone", theirs: null });
    expect(shown(tab, 0)).toBeNull();
    tab.job.insist(card?.key ?? "");
    await scenario.time.pass(500);
    const again = [...scenario.server.rows.values()].filter((row) => row.class === "bag");
    expect(again).toMatchObject([{ bbox: [10, 10, 20, 20], frame_id: `${VIDEO}.0`, revision: 1 }]);
    expect(tab.job.cards()).toEqual([]);
    tab.job.undo();
    await scenario.time.pass(500);
    expect(scenario.server.rows.size).toBe(2);
  });
});

describe("an undo", () => {
  it("takes back one step at a time, before and after it was answered, and a redo brings it", async () => {
    const all = await world();
    const { tab, scenario } = all;
    set(tab, 0, { class: "bag" });
    await scenario.time.pass(500);
    set(tab, 0, { class: "dog" });
    set(tab, 0, { accepted: true });
    expect([tab.job.undo(), tab.job.undo()]).toEqual(["set", "set"]);
    expect(shown(tab, 0)).toMatchObject({ class: "bag", accepted: null });
    await scenario.time.pass(1_000);
    expect(stored(all, 0)).toMatchObject({ class: "bag", accepted: null, revision: 6 });
    tab.job.undo();
    await scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ class: "car", revision: 7 });
    expect(tab.job.undo()).toBeNull();
    for (let step = 0; step < 3; step++) tab.job.redo();
    await scenario.time.pass(1_000);
    expect(stored(all, 0)).toMatchObject({ class: "dog", accepted: true, revision: 10 });
    expect(tab.job.cards()).toEqual([]);
  });

  it("works after a reload", async () => {
    const all = await world();
    const { tab, scenario, browser } = all;
    set(tab, 0, { class: "bag" });
    tab.job.commit([{ id: boxId(1), after: null }], "delete");
    await scenario.time.pass(500);
    set(tab, 2, { class: "bag" });
    await scenario.time.pass(20);
    tab.kill();
    const again = await browser.open();
    expect(again.job.history.undoCount).toBe(3);
    for (let step = 0; step < 3; step++) again.job.undo();
    await scenario.time.pass(1_000);
    expect([0, 1, 2].map((index) => stored(all, index)?.class)).toEqual(["car", "car", "car"]);
    expect(again.job.cards()).toEqual([]);
    again.kill();
    const last = await browser.open();
    expect([last.job.history.undoCount, last.job.history.redoCount]).toEqual([0, 3]);
  });

  it.each<[string, Partial<BoxFields>[]]>([
    ["the same field", [{ class: "dog" }]],
    ["another field", [{ accepted: true }]],
    ["it and back", [{ class: "dog" }, { class: "bag" }]],
  ])("never takes back somebody else's change of %s", async (_, changes) => {
    const all = await world();
    const { tab, scenario, mara } = all;
    set(tab, 0, { class: "bag" });
    await scenario.time.pass(500);
    for (const change of changes) mara(0, change);
    await scenario.time.pass(500);
    const before = structuredClone(stored(all, 0));
    tab.job.undo();
    await scenario.time.pass(500);
    expect(stored(all, 0)).toEqual(before);
    expect(tab.job.cards()).toMatchObject([
      { reason: "conflict", ours: { after: { class: "car" } } },
    ]);
    expect(tab.job.history.redoCount).toBe(0);
  });

  it("of a change that somebody else made too has nothing to take back", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    mara(0, { class: "bag" });
    set(tab, 0, { class: "bag" });
    tab.job.undo();
    await scenario.time.pass(1_000);
    expect(stored(all, 0)).toMatchObject({ class: "bag", revision: 2 });
    expect([tab.job.history.undoCount, tab.job.history.redoCount]).toEqual([0, 0]);
    expect(shown(tab, 0)?.class).toBe("bag");
  });

  it("keeps what others made of a field while the change waited", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    mara(0, { accepted: true });
    set(tab, 0, { class: "bag", accepted: true });
    await scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ class: "bag", accepted: true });
    tab.job.undo();
    await scenario.time.pass(500);
    expect(stored(all, 0)).toMatchObject({ class: "car", accepted: true });
  });

  it("takes back a thousand boxes at once", async () => {
    const scenario = scenarioOf(1, 1_000);
    const tab = await new Browser("ann", scenario).open();
    const changes = Array.from({ length: 1_000 }, (_, index) => ({
      id: boxId(index),
      after: { accepted: true },
    }));
    tab.job.commit(changes, "accept 1,000 boxes");
    await scenario.time.pass(1_000);
    tab.job.undo();
    await scenario.time.pass(1_000);
    const states = new Set([...scenario.server.rows.values()].map(({ accepted }) => accepted));
    expect(states).toEqual(new Set([null]));
    expect(tab.requests).toHaveLength(4);
  });
});

describe("the feed", () => {
  it("shows what others do, and after a pause what they did meanwhile", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    mara(0, { class: "bag" });
    await scenario.time.pass(50);
    expect(shown(tab, 0)?.class).toBe("bag");
    tab.setOnline(false);
    mara(0, { class: "dog" });
    mara(1, null);
    scenario.server.seed(boxId(7), { class: "cat" });
    await scenario.time.pass(50);
    expect(shown(tab, 0)?.class).toBe("bag");
    tab.setOnline(true);
    await scenario.time.pass(50);
    expect([0, 1, 7].map((index) => shown(tab, index)?.class)).toEqual(["dog", undefined, "cat"]);
  });

  it("reads what changed where an event has no rows, and takes no older row for a newer one", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    tab.setOnline(false);
    mara(0, { class: "bag" });
    const old = structuredClone(stored(all, 0));
    mara(0, { class: "dog" });
    tab.isOnline = true;
    tab.job.receive({ edits_seq: scenario.server.seq });
    await scenario.time.pass(50);
    expect(shown(tab, 0)?.class).toBe("dog");
    tab.job.receive({ edits_seq: 9, rows: old ? [old] : [] });
    expect(shown(tab, 0)?.class).toBe("dog");
  });

  it("reads what an event told that was lost, once a later one shows the gap", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    tab.isOnline = false;
    mara(0, { class: "bag" });
    await scenario.time.pass(10);
    tab.isOnline = true;
    mara(1, { class: "bag" });
    await scenario.time.pass(100);
    expect([0, 1].map((index) => shown(tab, index)?.class)).toEqual(["car", "bag"]);
    await scenario.time.pass(3_000);
    expect([0, 1].map((index) => shown(tab, index)?.class)).toEqual(["bag", "bag"]);
  });

  it("begins anew with a whole job, as after a restored backup", async () => {
    const all = await world();
    const { tab, scenario, mara } = all;
    mara(0, { class: "bag" });
    await scenario.time.pass(50);
    const { rows } = scenario.server;
    rows.delete(boxId(1));
    const row = stored(all, 0);
    if (row) rows.set(boxId(0), { ...row, class: "car", revision: 1 });
    scenario.server.seq = 3;
    scenario.server.isRestored = true;
    await Promise.all([tab.job.refresh(), scenario.time.pass(50)]);
    expect(shown(tab, 0)).toMatchObject({ class: "car", revision: 1 });
    expect(shown(tab, 1)).toBeNull();
  });

  it("learns polygons of a frame, and keeps a newer row", async () => {
    const all = await world();
    const { tab, scenario } = all;
    const row = structuredClone(stored(all, 0));
    if (!row) throw new Error("seeded");
    tab.job.learn([{ ...row, polygon: [1, 2, 3, 4, 5, 6] }]);
    expect(shown(tab, 0)?.polygon).toEqual([1, 2, 3, 4, 5, 6]);
    set(tab, 0, { class: "bag" });
    await scenario.time.pass(500);
    tab.job.learn([row]);
    expect(shown(tab, 0)?.class).toBe("bag");
  });
});
