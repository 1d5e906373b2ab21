// The outbox of a job. Goal: an edit is sent once it is stored, in batches; whatever the server and
// the connection answer, it is sent again or shown, and it holds up no other edit.

import { describe, expect, it } from "vitest";
import { BATCH_MAX } from "../../../edge/studio/boxes/outbox.ts";
import { REFUSED_CLASS, VIDEO } from "../../support/edit-server.ts";
import {
  Browser,
  boxId,
  NO_FAULTS,
  replyOf,
  type Scenario,
  scenarioOf,
  type Tab,
} from "../../support/studio-browser.ts";

interface World extends Scenario {
  browser: Browser;
  tab: Tab;
}

async function world(boxes = 3): Promise<World> {
  const scenario = scenarioOf(1, boxes);
  const browser = new Browser("ann", scenario);
  return { ...scenario, browser, tab: await browser.open() };
}

const accept = (tab: Tab, index: number) =>
  tab.job.commit([{ id: boxId(index), after: { accepted: true } }], "accept");
const relabel = (tab: Tab, index: number, name: string) =>
  tab.job.commit([{ id: boxId(index), after: { class: name } }], "relabel");
const classOf = ({ server }: Scenario, index: number) => server.rows.get(boxId(index))?.class;
const draw = (tab: Tab) =>
  tab.job.draw(
    {
      frame_id: `${VIDEO}.0`,
      class: "bag",
      bbox: [1, 2, 3, 4],
      polygon: null,
      accepted: true,
      track_id: null,
    },
    "draw",
  );

describe("batches", () => {
  it("go after 80 ms, or at 50 edits", async () => {
    const { tab, time } = await world(60);
    for (let index = 0; index < 3; index++) accept(tab, index);
    await time.pass(70);
    expect(tab.requests).toHaveLength(0);
    await time.pass(40);
    expect(tab.requests.map(({ length }) => length)).toEqual([3]);
    for (let index = 3; index < 53; index++) accept(tab, index);
    await time.pass(30);
    expect(tab.requests.map(({ length }) => length)).toEqual([3, 50]);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 0, failures: 0, stored: true });
  });

  it("have 500 rows at most", async () => {
    const { tab, time } = await world(1_200);
    const changes = Array.from({ length: 1_200 }, (_, index) => ({
      id: boxId(index),
      after: { accepted: false },
    }));
    tab.job.commit(changes, "reject 1,200 boxes");
    await time.pass(1_000);
    expect(tab.requests.map(({ length }) => length)).toEqual([BATCH_MAX, BATCH_MAX, 200]);
    expect(tab.job.history.undoCount).toBe(1);
  });

  it("hold the changes of one annotation apart, each at the revision of the one before", async () => {
    const all = await world();
    for (const name of ["bag", "dog", "cat"]) relabel(all.tab, 0, name);
    accept(all.tab, 1);
    await all.time.pass(1_000);
    const sent = all.tab.requests.map((batch) => batch.map(({ revision }) => revision));
    expect(sent).toEqual([[1, 1], [2], [3]]);
    expect(classOf(all, 0)).toBe("cat");
  });

  it("wait until they are stored, and go all the same where nothing can be stored", async () => {
    const { tab, time, browser, server } = await world();
    browser.isFull = true;
    accept(tab, 0);
    await time.pass(200);
    expect(server.rows.get(boxId(0))?.accepted).toBe(true);
    expect(tab.job.outbox.status.stored).toBe(false);
    browser.isFull = false;
    accept(tab, 1);
    await time.pass(200);
    expect(tab.job.outbox.status.stored).toBe(true);
    expect((await browser.store.load(server.rows.get(boxId(0))?.job_id ?? "")).entries).toEqual([]);
  });
});

describe("a failing connection", () => {
  it("is tried again with growing pauses, under the same ids", async () => {
    const { tab, time, browser } = await world();
    tab.setOnline(false);
    accept(tab, 0);
    await time.pass(3_000);
    const early = tab.requests.length;
    await time.pass(57_000);
    expect(early).toBeGreaterThanOrEqual(3);
    expect(tab.requests.length - early).toBeLessThanOrEqual(8);
    expect(new Set(tab.requests.map(([edit]) => edit?.edit_id)).size).toBe(1);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 1, failures: tab.requests.length });
    tab.setOnline(true);
    tab.job.outbox.retry();
    await time.pass(10);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 0, failures: 0 });
    expect(browser.entries.size).toBe(1);
  });

  it.each([
    ["seconds", "120", 120_000],
    ["a date", new Date(1_800_000_000_000 + 180_000).toUTCString(), 179_000],
  ])("waits as Retry-After says, in %s", async (_, header, milliseconds) => {
    const { tab, time, browser } = await world();
    browser.reply = () => replyOf(429, { code: "rate_limited" }, { "Retry-After": header });
    accept(tab, 0);
    await time.pass(milliseconds - 2_000);
    expect(tab.requests).toHaveLength(1);
    browser.reply = null;
    await time.pass(5_000);
    expect(tab.job.outbox.status.waiting).toBe(0);
  });

  it("ends a request that is never answered after 30 seconds", async () => {
    const { tab, time, browser, server } = await world();
    browser.reply = () => ({
      ...replyOf(200, null),
      json: () => new Promise(() => {}),
    });
    accept(tab, 0);
    await time.pass(20_000);
    expect(tab.requests).toHaveLength(1);
    browser.reply = null;
    await time.pass(20_000);
    expect(server.rows.get(boxId(0))?.accepted).toBe(true);
  });

  it.each([
    ["a page of somebody else", 200, "<html>"],
    ["a fault of the server", 500, { code: "internal" }],
    ["a refusal of a proxy", 403, "<html>"],
    ["an older release", 404, { code: "route_not_found" }],
    ["answers to other edits", 200, { edits_seq: 1, results: [] }],
  ])("is also %s", async (_, status, body) => {
    const { tab, time, browser } = await world();
    browser.reply = () => replyOf(status, body);
    accept(tab, 0);
    await time.pass(200);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 1, failures: 1 });
    browser.reply = null;
    await time.pass(2_000);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 0, failures: 0 });
  });
});

describe("a refusal", () => {
  it.each([
    [401, "unauthorized"],
    [403, "form_refused"],
  ])("of the session, %i %s, pauses until somebody signs in, in any tab", async (status, code) => {
    const { tab, time, browser } = await world();
    const other = await browser.open();
    browser.reply = () => replyOf(status, { code });
    accept(tab, 0);
    await time.pass(100_000);
    expect(tab.requests).toHaveLength(1);
    expect([tab, other].map(({ job }) => job.outbox.status.signedOut)).toEqual([true, true]);
    browser.reply = null;
    other.job.outbox.signedIn();
    await time.pass(200);
    expect(tab.job.outbox.status).toMatchObject({ waiting: 0, signedOut: false });
  });

  it("of the person shows each edit, and the next edits go on", async () => {
    const { tab, time, browser, server } = await world();
    browser.reply = () => replyOf(403, { code: "forbidden", detail: "annotators only" });
    accept(tab, 0);
    accept(tab, 1);
    await time.pass(200);
    browser.reply = null;
    accept(tab, 2);
    await time.pass(200);
    const card = { reason: "refused", code: "forbidden", detail: "annotators only" };
    expect(tab.job.cards()).toMatchObject([card, card]);
    expect([...server.rows.values()].map(({ accepted }) => accepted)).toEqual([null, null, true]);
    expect(tab.job.table.get(boxId(0))?.accepted).toBeNull();
    for (const { key } of tab.job.cards()) tab.job.insist(key);
    await time.pass(200);
    expect([...server.rows.values()].map(({ accepted }) => accepted)).toEqual([true, true, true]);
    expect(tab.job.cards()).toEqual([]);
  });

  it("of a whole request finds the one row that it is about", async () => {
    const { tab, time, browser, server } = await world(40);
    const isBad = (id: string) => id === boxId(17);
    browser.reply = (edits) =>
      edits.some((edit) => isBad(edit.annotation_id))
        ? replyOf(422, { code: "invalid_request", detail: "edits: no" })
        : replyOf(200, server.edit("ann", edits));
    for (let index = 0; index < 40; index++) accept(tab, index);
    await time.pass(5_000);
    expect(tab.job.cards().map(({ ours }) => ours.id)).toEqual([boxId(17)]);
    expect(tab.job.outbox.status.waiting).toBe(0);
    expect(tab.requests.length).toBeLessThan(20);
  });

  it("of a change lets the later ones of the annotation pass, and its undo vanish", async () => {
    const all = await world();
    const { tab, time, server } = all;
    relabel(tab, 0, REFUSED_CLASS);
    accept(tab, 0);
    relabel(tab, 1, REFUSED_CLASS);
    tab.job.undo();
    await time.pass(1_000);
    expect(server.rows.get(boxId(0))).toMatchObject({ class: "car", accepted: true, revision: 2 });
    expect(tab.job.cards().map(({ ours }) => ours.id)).toEqual([boxId(0), boxId(1)]);
    expect(server.rows.get(boxId(1))?.revision).toBe(1);
    expect([tab.job.history.undoCount, tab.job.history.redoCount]).toEqual([1, 0]);
    expect(tab.job.table.get(boxId(0))).toMatchObject({ class: "car", accepted: true });
  });

  it("of a drawing takes the later changes of the box with it", async () => {
    const { tab, time, server } = await world();
    const id = draw(tab);
    tab.job.commit([{ id, after: { class: REFUSED_CLASS } }], "relabel");
    const bad = tab.job.draw(
      {
        frame_id: `${VIDEO}.0`,
        class: REFUSED_CLASS,
        bbox: [1, 2, 3, 4],
        accepted: null,
        track_id: null,
      },
      "draw",
    );
    tab.job.commit([{ id: bad, after: { accepted: false } }], "reject");
    await time.pass(1_000);
    expect(server.rows.get(id)?.class).toBe("bag");
    expect(server.rows.has(bad)).toBe(false);
    const cards = new Map(tab.job.cards().map((card) => [card.ours.id, card]));
    const [set, drawn] = [cards.get(id), cards.get(bad)];
    expect(set?.ours.after).toEqual({ class: REFUSED_CLASS });
    expect(drawn?.ours).toMatchObject({ id: bad, before: null, after: { accepted: false } });
    expect(tab.job.table.get(bad)).toBeNull();
  });
});

describe("several tabs", () => {
  it("send from one, and show what the others do", async () => {
    const { tab, time, browser } = await world();
    const other = await browser.open();
    accept(other, 0);
    relabel(tab, 1, "bag");
    await time.pass(50);
    expect([tab, other].map(({ job }) => job.table.get(boxId(0))?.accepted)).toEqual([true, true]);
    await time.pass(200);
    expect([tab, other].map(({ requests }) => requests.length > 0)).toEqual([true, false]);
    expect([tab, other].map(({ job }) => job.outbox.status.waiting)).toEqual([0, 0]);
    expect([tab, other].map(({ job }) => job.table.get(boxId(0))?.revision)).toEqual([2, 2]);
    expect(other.job.table.get(boxId(1))?.class).toBe("bag");
  });

  it("go on with what the sending one left", async () => {
    const { tab, time, browser, server } = await world();
    const other = await browser.open();
    tab.setOnline(false);
    accept(tab, 0);
    accept(other, 1);
    await time.pass(500);
    tab.kill();
    await time.pass(2_000);
    expect([0, 1].map((index) => server.rows.get(boxId(index))?.accepted)).toEqual([true, true]);
    expect(other.job.outbox.status.waiting).toBe(0);
  });

  it("decide a card once for all", async () => {
    const all = await world();
    const { tab, time, browser, server } = all;
    const other = await browser.open();
    relabel(tab, 0, "bag");
    server.edit("mara", [
      {
        edit_id: boxId(99),
        op: "set",
        annotation_id: boxId(0),
        revision: 1,
        fields: { class: "dog" },
      },
    ]);
    await time.pass(200);
    const cards = [tab, other].map(({ job }) => job.cards());
    expect(cards).toMatchObject([
      [{ reason: "conflict", theirs: { class: "dog" }, ours: { after: { class: "bag" } } }],
      [{ reason: "conflict", theirs: { class: "dog" }, ours: { after: { class: "bag" } } }],
    ]);
    expect(tab.job.table.get(boxId(0))?.class).toBe("dog");
    other.job.insist(cards[1]?.[0]?.key ?? "");
    await time.pass(200);
    expect([tab, other].map(({ job }) => job.cards())).toEqual([[], []]);
    expect(classOf(all, 0)).toBe("bag");
  });
});

describe("a reload", () => {
  it("sends what was not answered, keeps cards and shows both", async () => {
    const all = await world();
    const { tab, time, browser, server } = all;
    relabel(tab, 2, REFUSED_CLASS);
    await time.pass(200);
    tab.setOnline(false);
    relabel(tab, 0, "bag");
    relabel(tab, 0, "dog");
    const drawn = draw(tab);
    await time.pass(50);
    tab.kill();
    browser.reply = () => replyOf(503, null);
    const again = await browser.open();
    expect(again.job.table.get(boxId(0))?.class).toBe("dog");
    expect(again.job.table.get(drawn)?.class).toBe("bag");
    expect(again.job.cards().map(({ ours }) => ours.id)).toEqual([boxId(2)]);
    browser.reply = null;
    await time.pass(10_000);
    expect(server.rows.get(boxId(0))).toMatchObject({ class: "dog", revision: 3 });
    expect(server.rows.get(drawn)?.revision).toBe(1);
    again.job.dismiss(again.job.cards().map(({ key }) => key));
    await time.pass(100);
    again.kill();
    expect((await browser.open()).job.cards()).toEqual([]);
  });

  it("counts an answer that was lost as the answer that it was", async () => {
    const all = await world();
    const { tab, time, browser, server } = all;
    all.faults = NO_FAULTS;
    browser.reply = (edits) => {
      server.edit("ann", edits);
      return { ...replyOf(200, null), json: () => new Promise(() => {}) };
    };
    relabel(tab, 0, "bag");
    await time.pass(200);
    tab.kill();
    browser.reply = null;
    // Somebody else goes on with it before the answer comes.
    server.edit("mara", [
      { edit_id: boxId(98), op: "delete", annotation_id: boxId(0), revision: 2 },
    ]);
    const again = await browser.open();
    await time.pass(1_000);
    expect(again.job.outbox.status.waiting).toBe(0);
    expect(again.job.cards()).toEqual([]);
    expect(again.job.table.get(boxId(0))).toBeNull();
  });
});
