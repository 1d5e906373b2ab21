// The device's log on its disk: whatever is appended, dropped, cut off and acknowledged, each line
// is handed over, or counted as dropped, and the disk holds no more than it may.

import { appendFileSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, assert, expect, it } from "vitest";
import { LogRing } from "../../../gpu-node/agent/log-ring.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-ring-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;
const newFolder = () => join(root, String(folders++));

const line = (message: string) => ({ time: "2026-01-01T00:00:00.000Z", kind: "note", message });
const bytesOf = (dir: string) =>
  readdirSync(dir)
    .filter((name) => name.endsWith(".ndjson"))
    .reduce((sum, name) => sum + statSync(join(dir, name)).size, 0);

/** The service's side: what is stored and what it was told was dropped, by boot. */
class Receiver {
  readonly stored = new Map<string, Set<number>>();
  readonly dropped = new Map<string, Set<number>>();

  take(ring: LogRing, linesMax: number, answer = true): boolean {
    const part = ring.next(linesMax);
    if (!part) return false;
    const stored = this.stored.get(part.bootId) ?? new Set();
    const dropped = this.dropped.get(part.bootId) ?? new Set();
    this.stored.set(part.bootId, stored);
    this.dropped.set(part.bootId, dropped);
    for (const { seq } of part.lines) stored.add(seq);
    for (const { from, to } of part.dropped) for (let at = from; at <= to; at++) dropped.add(at);
    const isKnown = (seq: number) => stored.has(seq) || dropped.has(seq);
    let ackedSeq = 0;
    while (isKnown(ackedSeq + 1)) ackedSeq += 1;
    const gaps = [];
    for (let seq = ackedSeq + 1; seq <= Math.max(0, ...stored); seq++) {
      if (!isKnown(seq)) gaps.push({ from: seq, to: seq });
    }
    if (answer) ring.ack(part, { ackedSeq, gaps });
    return true;
  }
}

it("hands over each line once it is appended, or says that it was dropped", () => {
  const action = fc.oneof(
    { weight: 8, arbitrary: fc.record({ append: fc.integer({ min: 1, max: 40 }) }) },
    {
      weight: 3,
      arbitrary: fc.record({ take: fc.integer({ min: 1, max: 30 }), answer: fc.boolean() }),
    },
    { weight: 1, arbitrary: fc.record({ restart: fc.boolean(), torn: fc.boolean() }) },
  );
  const property = fc.property(fc.array(action, { maxLength: 40 }), (actions) => {
    const dir = newFolder();
    const bytesMax = 8_000;
    let ring = new LogRing(dir, bytesMax);
    const receiver = new Receiver();
    const appended = new Map<string, number>();
    for (const one of actions) {
      if ("append" in one) {
        for (let count = 0; count < one.append; count++) {
          appended.set(ring.bootId, ring.append(line("x".repeat(80))));
        }
        expect(bytesOf(dir)).toBeLessThanOrEqual(bytesMax);
      } else if ("take" in one) receiver.take(ring, one.take, one.answer);
      else {
        // Cut off, or ended in order; a cut may leave a part of a line.
        if (one.restart) ring.close();
        const last = readdirSync(dir)
          .filter((name) => name.endsWith(".ndjson"))
          .sort()
          .at(-1);
        if (one.torn && last && !one.restart) appendFileSync(join(dir, last), '{"seq":99999,"ti');
        ring = new LogRing(dir, bytesMax);
      }
    }
    while (receiver.take(ring, 100));
    let droppedTotal = 0;
    for (const [boot, count] of appended) {
      for (let seq = 1; seq <= count; seq++) {
        const isStored = receiver.stored.get(boot)?.has(seq) ?? false;
        const isDropped = receiver.dropped.get(boot)?.has(seq) ?? false;
        expect([boot, seq, isStored || isDropped]).toEqual([boot, seq, true]);
        if (isDropped) droppedTotal += 1;
      }
    }
    expect(ring.dropped).toBe(droppedTotal);
  });
  fc.assert(property, { numRuns: 60 });
});

it("says of lines that a fault took from the disk that they are dropped", () => {
  const dir = newFolder();
  let ring = new LogRing(dir, 100_000);
  for (let count = 0; count < 10; count++) ring.append(line("kept"));
  ring.close();
  const [name = ""] = readdirSync(dir).filter((one) => one.endsWith(".ndjson"));
  const path = join(dir, name);
  const boot = ring.bootId;
  // The middle of the file is unreadable after a cut of power.
  const { readFileSync, writeFileSync } = process.getBuiltinModule("node:fs");
  const lines = readFileSync(path, "utf8").split("\n");
  writeFileSync(
    path,
    lines.map((text, at) => (at === 4 ? "\0".repeat(text.length) : text)).join("\n"),
  );
  ring = new LogRing(dir, 100_000);
  const receiver = new Receiver();
  for (let turn = 0; turn < 5 && receiver.take(ring, 100); turn++);
  expect(ring.next(100)).toBeNull();
  expect([...(receiver.stored.get(boot) ?? [])].length).toBe(9);
  expect([...(receiver.dropped.get(boot) ?? [])]).toEqual([5]);
});

it("counts nothing as lost that was acknowledged before the service forgot the boot", () => {
  const dir = newFolder();
  const ring = new LogRing(dir, 100_000);
  for (let count = 0; count < 10; count++) ring.append(line("known"));
  const first = ring.next(100);
  assert(first);
  expect(ring.ack(first, { ackedSeq: 10, gaps: [] })).toBe(10);
  for (let count = 0; count < 4; count++) ring.append(line("later"));
  // It has forgotten all of them, and misses one of those that come now.
  const second = ring.next(2);
  assert(second);
  expect(ring.ack(second, { ackedSeq: 0, gaps: [{ from: 1, to: 10 }] })).toBe(12);
  const third = ring.next(2);
  assert(third);
  expect(third.lines.map(({ seq }) => seq)).toEqual([13, 14]);
  expect(ring.ack(third, { ackedSeq: 0, gaps: [{ from: 1, to: 13 }] })).toBe(12);
  expect(ring.dropped).toBe(0);
  const last = ring.next(2);
  assert(last);
  expect(ring.ack(last, { ackedSeq: 0, gaps: [{ from: 1, to: 10 }] })).toBe(14);
  expect([ring.next(2), ring.dropped]).toEqual([null, 0]);
  ring.close();
});

it("tells of what it dropped, of however many boots", () => {
  const dir = newFolder();
  const receiver = new Receiver();
  const boots: string[] = [];
  for (let boot = 0; boot < 150; boot++) {
    const ring = new LogRing(dir, 8_000);
    boots.push(ring.bootId);
    for (let count = 0; count < 3; count++) ring.append(line("x".repeat(200)));
    ring.close();
  }
  const ring = new LogRing(dir, 8_000);
  while (receiver.take(ring, 100));
  const known = boots.map((boot) => {
    const [stored, dropped] = [receiver.stored.get(boot), receiver.dropped.get(boot)];
    return [1, 2, 3].filter((seq) => stored?.has(seq) || dropped?.has(seq)).length;
  });
  expect(known).toEqual(boots.map(() => 3));
  expect(ring.next(1)).toBeNull();
});

it("steps over lines that are refused, which count as dropped and are told", () => {
  const dir = newFolder();
  const ring = new LogRing(dir, 100_000);
  for (let count = 0; count < 5; count++) ring.append(line("kept"));
  const [part, receiver] = [ring.next(2), new Receiver()];
  expect(part?.lines.map(({ seq }) => seq)).toEqual([1, 2]);
  if (part) ring.refuse(part);
  while (receiver.take(ring, 100));
  expect([...(receiver.stored.get(ring.bootId) ?? [])]).toEqual([3, 4, 5]);
  expect([...(receiver.dropped.get(ring.bootId) ?? [])]).toEqual([1, 2]);
  expect([ring.next(1), ring.dropped]).toEqual([null, 2]);
});
