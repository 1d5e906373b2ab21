// Edits as pure data, the ids that they get, and the steps that can be undone. Goal: an inverse
// takes back all of its edit, a composition is both edits in turn, and a rebase never touches a
// field that somebody else changed.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Box, type BoxFields, boxOf, fieldsOf } from "../../../edge/studio/boxes/box.ts";
import {
  appliedRow,
  apply,
  compose,
  type Edit,
  type EditRow,
  invert,
  isIdle,
  rebase,
  requestOf,
  withBefore,
} from "../../../edge/studio/boxes/edit.ts";
import { History, STEPS_MAX } from "../../../edge/studio/boxes/history.ts";
import { uuidSource } from "../../../edge/studio/boxes/identity.ts";
import { dice } from "../../support/dice.ts";
import { EditServer, JOB, VIDEO } from "../../support/edit-server.ts";

const idOf = (index: number) => `00000000-0000-7000-8000-${String(index).padStart(12, "0")}`;

function boxWith(id: string, fields: Partial<BoxFields>): Box {
  const server = new EditServer(dice(1));
  server.seed(id);
  const row = server.rows.get(id);
  if (!row) throw new Error("seeded");
  return { ...boxOf(row), keyframe: true, ...fields };
}

const fieldValues: fc.Arbitrary<BoxFields> = fc.record({
  frame_id: fc.constant(`${VIDEO}.0`),
  class: fc.constantFrom("car", "bag", "person"),
  bbox: fc.nat(5).map((x) => [x, 0, x + 1, 1] as const),
  polygon: fc.constantFrom(null, [1, 2, 3, 4, 5, 6]),
  accepted: fc.constantFrom(null, true, false),
  track_id: fc.constantFrom(null, 1),
});
const settable = ["class", "bbox", "polygon", "accepted", "track_id"] as const;

type Change = { id: string } & ({ set: Partial<BoxFields> } | { isDeleted: true });
const change: fc.Arbitrary<Change> = fc.oneof(
  fc
    .tuple(fc.nat(3), fieldValues, fc.subarray([...settable], { minLength: 1 }))
    .map(([box, values, names]) => ({
      id: idOf(box),
      set: Object.fromEntries(names.map((name) => [name, values[name]])),
    })),
  fc.nat(3).map((box) => ({ id: idOf(box), isDeleted: true as const })),
);

/** The row of a change to boxes as they are. */
function rowOf(boxes: ReadonlyMap<string, Box>, one: Change, whole: BoxFields): EditRow {
  const box = boxes.get(one.id);
  const revision = box?.revision ?? null;
  if (!box) return { id: one.id, revision: null, before: null, after: whole };
  if (!("set" in one)) return { id: one.id, revision, before: fieldsOf(box), after: null };
  const names = Object.keys(one.set) as (keyof BoxFields)[];
  const before = Object.fromEntries(names.map((name) => [name, box[name]]));
  return { id: one.id, revision, before, after: one.set };
}

const plain = (boxes: ReadonlyMap<string, Box>) =>
  new Map([...boxes].map(([id, box]) => [id, fieldsOf(box)]));
const editOf = (rows: EditRow[]): Edit => ({ edit_id: "e", job: JOB, rows, label: "edit" });
const start = new Map([0, 1].map((index) => [idOf(index), boxWith(idOf(index), {})]));

describe("an edit", () => {
  it("and its inverse leave the boxes as they were", () => {
    fc.assert(
      fc.property(fc.array(change, { maxLength: 6 }), fieldValues, (changes, whole) => {
        let boxes = new Map(start);
        const edits: Edit[] = [];
        const states = [plain(boxes)];
        for (const one of changes) {
          const edit = editOf([rowOf(boxes, one, whole)]);
          edits.push(edit);
          boxes = apply(boxes, edit);
          states.push(plain(boxes));
        }
        for (const edit of edits.toReversed()) {
          states.pop();
          boxes = apply(
            boxes,
            invert(edit, "i", () => 1),
          );
          expect(plain(boxes)).toEqual(states.at(-1));
        }
      }),
    );
  });

  it("composes with the next one to what both do in turn", () => {
    fc.assert(
      fc.property(change, change, fieldValues, (one, other, whole) => {
        const second = { ...other, id: one.id };
        const first = rowOf(start, one, whole);
        const between = apply(start, editOf([first]));
        const both = compose(first, rowOf(between, second, whole));
        const after = apply(between, editOf([rowOf(between, second, whole)]));
        const composed = both ? apply(start, editOf([both])) : start;
        expect(plain(composed)).toEqual(plain(after));
      }),
    );
  });

  it("inverts at the revision that it made, and draws again without one", () => {
    const box = boxWith(idOf(0), {});
    const deletion = { id: box.id, revision: 4, before: fieldsOf(box), after: null };
    const set = { id: idOf(1), revision: 4, before: { class: "car" }, after: { class: "bag" } };
    expect(invert(editOf([deletion, set]), "i", () => 5).rows).toEqual([
      { id: box.id, revision: null, before: null, after: fieldsOf(box) },
      { id: idOf(1), revision: 5, before: { class: "bag" }, after: { class: "car" } },
    ]);
  });

  it("does not bring back what is gone, unless it draws", () => {
    const set = { id: idOf(0), revision: 1, before: { class: "car" }, after: { class: "bag" } };
    expect(appliedRow(null, set)).toBeNull();
    const drawn = { ...fieldsOf(boxWith(idOf(0), {})), class: "bag" };
    const box = appliedRow(null, { id: idOf(0), revision: null, before: null, after: drawn });
    expect(box).toMatchObject({ class: "bag", source: "person", confidence: null });
  });

  it("replaces only touched values of what was before it", () => {
    const row = { id: idOf(0), revision: 1, before: { class: "bag" }, after: { class: "car" } };
    expect(withBefore(row, { class: "car", accepted: true }).before).toEqual({ class: "car" });
    expect(isIdle(withBefore(row, { class: "car" }))).toBe(true);
    expect(isIdle(row)).toBe(false);
  });
});

describe("a rebase", () => {
  const row = {
    id: idOf(0),
    revision: 1,
    before: { class: "car", accepted: null },
    after: { class: "bag", accepted: true },
  };
  const theirs = (fields: Partial<BoxFields>) => ({ ...boxWith(idOf(0), fields), revision: 3 });

  it("goes on where others changed other fields", () => {
    const rebased = rebase(row, theirs({ bbox: [0, 0, 5, 5] }), { strict: false });
    expect(rebased).toEqual({ kind: "resent", row: { ...row, revision: 3 } });
  });

  it("keeps for an undo what others made of a field that it touches", () => {
    const rebased = rebase(row, theirs({ accepted: true }), { strict: false });
    const before = { class: "car", accepted: true };
    expect(rebased).toEqual({ kind: "resent", row: { ...row, revision: 3, before } });
  });

  it("asks where others changed the same field", () => {
    expect(rebase(row, theirs({ class: "dog" }), { strict: false }).kind).toBe("conflict");
  });

  it("has nothing to do where others did the same", () => {
    const same = theirs({ class: "bag", accepted: true });
    expect(rebase(row, same, { strict: true }).kind).toBe("met");
  });

  it("asks after any change where it is strict, and where it deletes what was changed", () => {
    const other = theirs({ bbox: [0, 0, 5, 5] });
    expect(rebase(row, other, { strict: true }).kind).toBe("conflict");
    const deletion = { ...row, before: fieldsOf(boxWith(idOf(0), {})), after: null };
    expect(rebase(deletion, other, { strict: false }).kind).toBe("conflict");
    expect(rebase(deletion, theirs({}), { strict: false }).kind).toBe("resent");
    expect(rebase(deletion, theirs({}), { strict: true }).kind).toBe("conflict");
  });

  it("compares corners as the server stores them", () => {
    const moved: EditRow = {
      ...row,
      before: { bbox: [0, 0, 1, 1] },
      after: { bbox: [0.1, 0, 1.3, 1] },
    };
    const stored = theirs({ bbox: [Math.fround(0.1), 0, Math.fround(1.3), 1] });
    expect(rebase(moved, stored, { strict: false }).kind).toBe("met");
  });
});

describe("a request", () => {
  const whole = fieldsOf(boxWith(idOf(0), {}));

  it("draws without what a new box lacks, and sets only what was touched", () => {
    const drawn = { id: idOf(0), revision: null, before: null, after: whole };
    const { polygon: _, track_id: __, ...fields } = whole;
    const own = { edit_id: "e", annotation_id: idOf(0) };
    expect(requestOf(drawn, "e")).toEqual({ ...own, op: "create", fields });
    const set = { id: idOf(0), revision: 2, before: { polygon: [1] }, after: { polygon: null } };
    const request = { ...own, op: "set", revision: 2, fields: { polygon: null } };
    expect(requestOf(set, "e")).toEqual(request);
  });

  it("names a revision that no annotation has where none is known, not the newest", () => {
    const set = { id: idOf(0), revision: null, before: { class: "a" }, after: { class: "b" } };
    expect(requestOf(set, "e").revision).toBe(0);
    expect(requestOf({ ...set, before: whole, after: null }, "e").revision).toBe(0);
  });
});

describe("an id", () => {
  it("is a UUID of version 7 and greater than those before, whatever the clock does", () => {
    const times = [5, 5, 4, 1_000, 900, 1_000];
    let call = 0;
    const next = uuidSource(() => times[call++ % times.length] as number, dice(3));
    const ids = Array.from({ length: 10_000 }, next);
    expect(ids.every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab]/.test(id))).toBe(true);
    expect(ids).toEqual(ids.toSorted());
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe("a history", () => {
  const keyOf = (number: number) => String(number).padStart(6, "0");
  const editAt = (number: number, id = idOf(0)): Edit => ({
    edit_id: keyOf(number),
    job: JOB,
    rows: [{ id, revision: number, before: { class: "a" }, after: { class: "b" } }],
    label: `edit ${number}`,
  });
  const answer = (history: History, number: number, revisions: [number, number | null]) => {
    const [revision, made] = revisions;
    const [row] = editAt(number).rows as [EditRow];
    history.note({ edit: keyOf(number), row: { ...row, revision }, made });
  };

  it("keeps the newest 500 steps, and forgets what was undone with the next edit", () => {
    const history = new History();
    for (let number = 0; number <= STEPS_MAX; number++) history.record(editAt(number));
    expect(history.undoCount).toBe(STEPS_MAX);
    history.turn("undo", editAt(900));
    expect([history.undoCount, history.redoCount]).toEqual([STEPS_MAX - 1, 1]);
    history.record(editAt(901));
    expect([history.undoCount, history.redoCount]).toEqual([STEPS_MAX, 0]);
    const { put, remove } = history.takeChanges();
    expect(put).toHaveLength(STEPS_MAX);
    expect(remove.sort()).toEqual([keyOf(0), keyOf(STEPS_MAX), keyOf(900)]);
    expect(history.takeChanges()).toEqual({ put: [], remove: [] });
  });

  it("moves older steps on with the person's own edits, and not with those of others", () => {
    const history = new History();
    for (const number of [1, 2, 3]) history.record(editAt(number));
    answer(history, 1, [1, 2]);
    answer(history, 2, [2, 3]);
    // Somebody else made 4.
    answer(history, 3, [4, 5]);
    const made = () => history.top("undo")?.rows[0]?.made;
    expect(made()).toBe(5);
    history.turn("undo", editAt(4));
    answer(history, 4, [5, 6]);
    expect(made()).toBe(3);
  });

  it("stores a step of thousands of boxes twice, not with each answer", () => {
    const history = new History();
    const rows = Array.from({ length: 2_000 }, (_, index) => ({
      ...(editAt(1).rows[0] as EditRow),
      id: idOf(index),
    }));
    history.record({ ...editAt(1), rows });
    expect(history.takeChanges().put).toHaveLength(1);
    const puts = rows.map((row, index) => {
      history.note({ edit: keyOf(1), row, made: index === 7 ? null : 2 });
      return history.takeChanges().put.length;
    });
    expect(puts.filter((count) => count > 0)).toEqual([1, 1]);
    expect(puts.at(-1)).toBe(1);
    expect(history.top("undo")?.rows).toHaveLength(1_999);
  });

  it("drops what changed nothing", () => {
    const history = new History();
    history.record(editAt(1));
    answer(history, 1, [1, null]);
    expect(history.undoCount).toBe(0);
  });

  it("is the same after a reload, but for what nobody knows the end of", () => {
    const history = new History();
    for (const number of [1, 2, 3]) history.record(editAt(number));
    answer(history, 1, [1, 2]);
    history.turn("undo", editAt(4));
    const { put } = history.takeChanges();
    const again = new History();
    again.load(put.toReversed(), (edit) => edit === keyOf(4));
    expect([again.undoCount, again.redoCount]).toEqual([1, 1]);
    expect(again.top("undo")?.rows[0]?.made).toBe(2);
    expect(again.takeChanges().remove).toEqual([keyOf(2)]);
  });
});
