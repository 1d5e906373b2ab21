// The program that finds out what the engine can do here: in a process of its own, since loading it
// brings libraries that must not meet the supervisor's, and may crash. It prints one line of JSON.

import { loadEngine } from "../../native/load.ts";

const loaded = loadEngine();
const said =
  "native" in loaded ? { engine: loaded.native.describe() } : { missing: loaded.missing };
process.stdout.write(`${JSON.stringify(said)}\n`);
