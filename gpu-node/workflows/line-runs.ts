// Runs that the direct line asks for: some at once, as each holds its images in memory.

import type { WorkflowAnswer, WorkflowAsk } from "../../shared/tasks/workflow-task.ts";
import { TaskFailure } from "../base/failure.ts";
import { Turns } from "../base/turns.ts";
import { answerRun, GivenFile, keyOf, type SessionServices } from "./session.ts";

/** Runs that a process works on at once; the others wait for their turn. */
const RUNS_AT_ONCE = 8;
const turns = new Turns(RUNS_AT_ONCE);

/** Answers a request of the line, whose image files are one after another. */
export function answerLine(
  files: Uint8Array,
  ask: WorkflowAsk,
  services: SessionServices,
  signal: AbortSignal,
): Promise<WorkflowAnswer> {
  return turns.take(async () => {
    signal.throwIfAborted();
    return answerRun(ask, await filesOf(files, ask), services, signal);
  });
}

async function filesOf(files: Uint8Array, { images }: WorkflowAsk): Promise<GivenFile[]> {
  const given: GivenFile[] = [];
  let offset = 0;
  for (const { name, bytes } of images) {
    if (offset + bytes > files.length) {
      throw new TaskFailure("invalid_request", `the file of ${name} is not whole`);
    }
    const file = Buffer.from(files.subarray(offset, offset + bytes));
    given.push(new GivenFile(name, file, await keyOf(file)));
    offset += bytes;
  }
  return given;
}
