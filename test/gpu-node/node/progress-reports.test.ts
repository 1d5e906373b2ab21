// Progress on its way to the service: one report at a time, the newest when its turn comes.

import { expect, it } from "vitest";
import { ProgressReports } from "../../../gpu-node/node/progress-reports.ts";
import type { TaskProgress } from "../../../shared/tasks/node-protocol.ts";

const at = (done: number): TaskProgress => ({ done, total: 9, detail: {} });

/** Reports whose sending the test answers. */
function reportsHeld() {
  const sent: number[] = [];
  const failures: unknown[] = [];
  let answer: PromiseWithResolvers<void> = Promise.withResolvers();
  const reports = new ProgressReports({
    send: ({ done }) => {
      sent.push(done);
      answer = Promise.withResolvers();
      return answer.promise;
    },
    onFailed: (thrown) => failures.push(thrown),
  });
  return { reports, sent, failures, answer: () => answer };
}

it("leaves out what is older than the newest", async () => {
  const { reports, sent, answer } = reportsHeld();
  for (const done of [1, 2, 3]) reports.report(at(done));
  expect(sent).toEqual([1]);
  answer().resolve();
  await answer().promise;
  await Promise.resolve();
  expect(sent).toEqual([1, 3]);
  answer().resolve();
  await reports.sent();
  expect(sent).toEqual([1, 3]);
});

it("leaves out none that carries a part of the result", async () => {
  const { reports, sent, answer } = reportsHeld();
  reports.report(at(1));
  reports.report({ ...at(2), partial: {} });
  for (const done of [3, 4]) reports.report(at(done));
  for (let answered = 0; answered < 3; answered++) {
    answer().resolve();
    await answer().promise;
    await Promise.resolve();
  }
  await reports.sent();
  expect(sent).toEqual([1, 2, 4]);
});

it("goes on with newer progress after one that failed", async () => {
  const { reports, sent, failures, answer } = reportsHeld();
  reports.report(at(1));
  const failure = new Error("away");
  answer().reject(failure);
  await reports.sent();
  expect(failures).toEqual([failure]);
  reports.report(at(2));
  expect(sent).toEqual([1, 2]);
  answer().resolve();
  await reports.sent();
});

it("sends nothing once it is closed", async () => {
  const { reports, sent, answer } = reportsHeld();
  reports.report(at(1));
  reports.report(at(2));
  reports.close();
  answer().resolve();
  await reports.sent();
  reports.report(at(3));
  await reports.sent();
  expect(sent).toEqual([1]);
});
