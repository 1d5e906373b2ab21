// A written file that suppresses, seen through: the same file was also written without suppression,
// and every answer has to be what suppression makes of that one's. What is then held against the
// predictor are the rows before it, since a last digit of theirs may decide which of two boxes
// stays.

import type { DetectionRows, MaskedRows } from "../../shared/detector/letterbox.ts";
import { suppress } from "../../shared/detector/suppression.ts";
import type { TaskPayload } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { openWrittenFile, type WrittenFile } from "./export-runtimes.ts";
import type { RunnerContext } from "./runner-context.ts";

/** What a file suppresses by, and the same file without. */
export interface SuppressingFile {
  nmsIou: number;
  plainPath: string;
}

/**
 * Opens both. Gives the rows before suppression; fails with `export_differs` where the file makes
 * other ones of them.
 */
export async function openSuppressingFile(
  path: string,
  { nmsIou, plainPath }: SuppressingFile,
  payload: TaskPayload<"device_export">,
  context: RunnerContext,
): Promise<WrittenFile> {
  const file = await openWrittenFile(path, payload, context);
  const close = () => file.close();
  const plain = await openWrittenFile(plainPath, payload, context).catch(async (thrown) => {
    await close();
    throw thrown;
  });
  return {
    runtime: file.runtime,
    async look(images) {
      const answers = await file.look(images);
      const before = await plain.look(images);
      for (const [at, rows] of before.entries()) {
        if (isSame(answers[at], suppress(rows, nmsIou))) continue;
        const detail = `the file suppresses other boxes than those that overlap by over ${nmsIou}`;
        throw new TaskFailure("export_differs", detail);
      }
      return before;
    },
    close: async () => {
      await Promise.all([close(), plain.close()]);
    },
  };
}

/** Whether all rows that have a score are the same; both files are run by the same kernels. */
function isSame(file: MaskedRows | undefined, wanted: DetectionRows): boolean {
  if (file?.width !== wanted.width || file.values.length !== wanted.values.length) return false;
  const { width } = wanted;
  for (let row = 0; row < wanted.values.length; row += width) {
    const score = wanted.values[row + 4] as number;
    if (score === 0 && file.values[row + 4] === 0) continue;
    for (let at = row; at < row + width; at++) {
      if (file.values[at] !== wanted.values[at]) return false;
    }
  }
  return true;
}
