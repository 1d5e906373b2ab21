// Archives that another tool wrote, imported, beside what that tool means by them: a script of the
// group has left `NAME.zip` and `NAME.expected.json` in the run's folder.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Annotation, AnnotationPage, ImportRecord } from "../../shared/wire/labeling.ts";
import type { Person } from "../support/vision.ts";
import type { Outcome } from "./known.ts";

/** Pixels that the corner of a box may be off, where its row says nothing else. */
const PIXELS_APART_MAX = 0.01;

interface ExpectedShape {
  class: string;
  bbox: number[];
  /** Of its mask, to a pixel. */
  area?: number;
  /** Pixels that a corner may be off. */
  apart?: number;
}

interface WrittenArchive {
  folder: string;
  projectId: string;
  name: string;
  case: string;
  /** Objects that the import has to leave out, and to count. */
  leftOut?: number;
}

/** Whether an archive of another library comes in as that library means it. */
export async function importOutcome(
  admin: Person,
  { folder, projectId, name, case: label, leftOut = 0 }: WrittenArchive,
): Promise<Outcome> {
  const form = new FormData();
  form.append("project_id", projectId);
  const zip = new Uint8Array(readFileSync(join(folder, `${name}.zip`)));
  form.append("file", new Blob([zip]), `${name}.zip`);
  const reply = await admin.ask("POST", "/import/archive", form);
  if (reply.status >= 300)
    return { case: label, outcome: "failed", detail: JSON.stringify(reply.body) };
  const record = ImportRecord.parse(reply.body);
  const { job, left_out: leftOutHere, unmatched, notes } = record;
  const listed = await admin.ask("GET", `/jobs/${job.job_id}/annotations?limit=1000`);
  const found = AnnotationPage.parse(listed.body).items;
  const text = readFileSync(join(folder, `${name}.expected.json`), "utf8");
  // Written by the script that wrote the archive.
  const expected = JSON.parse(text) as ExpectedShape[];
  const left = [...found];
  const missing = expected.filter((one) => {
    const index = left.findIndex((other) => isSame(one, other));
    // Each stands for one alone.
    if (index >= 0) left.splice(index, 1);
    return index < 0;
  });
  const isWhole = missing.length + left.length + unmatched.length === 0;
  const isGood = isWhole && leftOutHere === leftOut;
  const boxes = left.map((one) => ({ class: one.class, bbox: one.bbox, polygon: one.polygon }));
  const detail = isGood
    ? ""
    : JSON.stringify({ missing, unexpected: boxes, left_out: leftOutHere, unmatched, notes });
  return { case: label, outcome: isGood ? "passed" : "failed", detail };
}

function isSame(
  { class: name, bbox, area, apart = PIXELS_APART_MAX }: ExpectedShape,
  found: Pick<Annotation, "class" | "bbox" | "polygon">,
): boolean {
  return (
    found.class === name &&
    found.bbox.every((value, at) => Math.abs(value - (bbox[at] ?? 0)) <= apart) &&
    (area === undefined || Math.abs(areaOf(found.polygon ?? []) - area) <= 1)
  );
}

/** The area within a ring, whichever way it runs. */
function areaOf(ring: readonly number[]): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const next = (at + 2) % ring.length;
    twice += (ring[at] ?? 0) * (ring[next + 1] ?? 0) - (ring[next] ?? 0) * (ring[at + 1] ?? 0);
  }
  return Math.abs(twice) / 2;
}
