// Ends a child process whose supervisor is gone, also while its main thread is busy.

import { workerData } from "node:worker_threads";

const POLL_MS = 250;
const parent: unknown = workerData;

setInterval(() => {
  if (process.ppid === parent) return;
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}, POLL_MS);
