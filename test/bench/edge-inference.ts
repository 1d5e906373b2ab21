// What an image costs at the edge, JPEG in, boxes out, in single precision and by the int8 file:
// processor time of the whole workerd an image (the service in front and the local object store
// included), and memory over the idle service.
// Run: npm run bench -- edge-inference [--variant det26n --sizes 320,416,640 --count 60]

import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { int8FileOf, offerEdgeFile } from "../support/edge-file.ts";
import { workerdBytes, workerdPid } from "../support/memory.ts";
import { beginServing, photograph } from "./serving-world.ts";
import { startVision } from "./vision-world.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    variant: { type: "string", default: "det26n" },
    sizes: { type: "string", default: "320,416,640" },
    count: { type: "string", default: "60" },
  },
});
const COUNT = Number(values.count);
/** Of the kernel's clock, in which a process's time is told. */
const TICKS_PER_SECOND = 100;
const MIB = 1024 ** 2;
const print = (line: string) => process.stdout.write(`${line}\n`);

/** Milliseconds that the processors worked for a process so far. */
function cpuMs(pid: string): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  // The 14th and 15th field of the file: in user mode and in the kernel.
  return ((Number(fields[11]) + Number(fields[12])) * 1_000) / TICKS_PER_SECOND;
}

const PROGRESSIVE = { quality: 90, progressive: true };
const images = [
  ["1280 × 720", await photograph(1_280, 720, { quality: 90 })],
  ["1920 × 1080", await photograph(1_920, 1_080, { quality: 90 })],
  ["1920 × 1080, progressive", await photograph(1_920, 1_080, PROGRESSIVE)],
] as const;

print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
print(
  `| ${values.variant} at | image | precision | CPU ms an image | wall p50 | cold | workerd over idle, MiB |`,
);
print("|---|---|---|---|---|---|---|");
for (const imageSize of values.sizes.split(",").map(Number)) {
  let runtimeBytes = 0;
  const onLog = (line: string) => {
    const [, bytes] = /"runtime_bytes":(\d+)/.exec(line) ?? [];
    if (bytes) runtimeBytes = Number(bytes);
  };
  const { workers, database, stop } = await startVision({ imageSize, onLog });
  try {
    const asked = { variant: values.variant, imageSize: 640 };
    const serving = await beginServing({ workers, database }, asked);
    const { base, token, model, media, workspaceId } = serving;
    const ask = async (image: Buffer, precision: string) => {
      const body = new FormData();
      body.append("file", new Blob([new Uint8Array(image)]), "a.jpg");
      const headers = { Authorization: `Bearer ${token}` };
      const began = performance.now();
      const answer = await fetch(`${base}/predict/image`, { method: "POST", headers, body });
      const text = await answer.text();
      const by = answer.headers.get("X-Served-By");
      const used = answer.headers.get("X-Model-Precision");
      if (by !== "edge" || used !== precision) throw new Error(`by ${by} in ${used}: ${text}`);
      return performance.now() - began;
    };
    const pid = workerdPid();
    const idle = workerdBytes(pid);
    for (const precision of ["fp32", "int8"]) {
      if (precision === "int8") {
        const file = await int8FileOf(media, model, imageSize);
        await offerEdgeFile({ database, media }, { workspaceId, model, file, side: imageSize });
      }
      for (const [name, image] of images) {
        const cold = await ask(image, precision);
        for (let warm = 0; warm < 5; warm++) await ask(image, precision);
        const before = cpuMs(pid);
        const times: number[] = [];
        let peak = 0;
        for (let index = 0; index < COUNT; index++) {
          times.push(await ask(image, precision));
          peak = Math.max(peak, workerdBytes(pid));
        }
        const each = ((cpuMs(pid) - before) / COUNT).toFixed(0);
        const p50 = times.toSorted((a, b) => a - b)[Math.floor(COUNT / 2)] ?? 0;
        const over = ((peak - idle) / MIB).toFixed(0);
        const shown = [precision, each, `${p50.toFixed(0)} ms`, `${cold.toFixed(0)} ms`, over];
        print(`| ${imageSize} | ${name} | ${shown.join(" | ")} |`);
      }
    }
    print(`the runtime's own memory: ${(runtimeBytes / MIB).toFixed(0)} MiB`);
  } finally {
    await stop();
  }
}
process.exit(0);
