// A process that ends with engines alive, in the way that its argument names: lifecycle.test.ts.

import { loadEngine } from "../../native/load.ts";
import { deployed } from "../../shared/detector/deployed-detector.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { PLAIN } from "./plain-training.ts";

const loaded = loadEngine();
if ("missing" in loaded) throw new Error(loaded.missing);
const { Engine, alive } = loaded.native;
const make = () =>
  new Engine({ graph: detectorGraph("det26n", 3), device: "cpu", seed: 1, threads: 1 });
const batch = { images: new Float32Array(3 * 640 * 640), count: 1, height: 640, width: 640 };

const ways: Record<string, () => Promise<void>> = {
  open: async () => {
    await make().ready;
  },
  /** At once, while the engine computes. */
  busy: async () => {
    const engine = make();
    await engine.ready;
    for (let call = 0; call < 20; call++) void engine.forward(batch, { training: true });
    process.exit(7);
  },
  /** Nobody looks at the promise that fails. */
  unawaited: async () => {
    const engine = new Engine({
      // It lacks what trains.
      graph: deployed(detectorGraph("det26n", 3)),
      device: "cpu",
      seed: 1,
      threads: 1,
      training: PLAIN,
    });
    await engine.forward(batch, { training: true }).catch(() => {});
  },
  collected: async () => {
    // In a function of its own: this one's frame would hold the last.
    const used = async () => void (await make().forward(batch, { training: false }));
    for (let engines = 0; engines < 5; engines++) await used();
    const collect = (globalThis as { gc?: () => void }).gc ?? (() => {});
    while (alive().engines > 0) {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
    }
  },
};
await ways[process.argv[2] as string]?.();
process.stdout.write("done\n");
