// The program that runs a TensorFlow Lite file under LiteRT's WebAssembly build: in a process of
// its own, since the package is made for browsers and wants globals that nothing else here should
// see. Its argument is the file; then each message is an image, and its answer what the file gives.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { runInThisContext } from "node:vm";
import type { LitertAnswer, LitertImage } from "./litert-messages.ts";

const PACKAGE = "@litertjs/core";

const say = (answer: LitertAnswer) => process.send?.(answer);
const messageOf = (thrown: unknown) => (thrown instanceof Error ? thrown.message : String(thrown));

/** What the package expects around it: a worker's globals, and a fetch that reads its own files. */
function pretendBrowser(folder: string): void {
  const scriptOf = (url: string) => readFileSync(url.replace("file://", ""), "utf8");
  Object.assign(globalThis, {
    self: globalThis,
    require: createRequire(import.meta.url),
    __dirname: folder,
    __filename: join(folder, "litert.js"),
    importScripts: (url: string) => runInThisContext(scriptOf(url), { filename: url }),
    fetch: async (url: unknown) =>
      new Response(readFileSync(String(url).replace("file://", "")), {
        headers: { "content-type": "application/wasm" },
      }),
  });
}

/** The runtime, or null where it is not installed or does not start here; why is said. */
async function openRuntime() {
  try {
    const folder = join(dirname(fileURLToPath(import.meta.resolve(PACKAGE))), "../wasm");
    pretendBrowser(folder);
    const runtime = await import("@litertjs/core");
    await runtime.loadLiteRt(`${folder}/`);
    const about = JSON.parse(readFileSync(join(folder, "../package.json"), "utf8"));
    return { runtime, name: `${PACKAGE} ${about.version}` };
  } catch (thrown) {
    say({ type: "missing", reason: messageOf(thrown) });
    return null;
  }
}

async function serve(path: string): Promise<void> {
  const opened = await openRuntime();
  if (!opened) return process.disconnect();
  const { runtime, name } = opened;
  try {
    const model = await runtime.loadAndCompile(readFileSync(path), { accelerator: "wasm" });
    process.on("message", async ({ input, pixels, shape }: LitertImage) => {
      try {
        const tensor = new runtime.Tensor(pixels, shape);
        const outputs = await model.run({ [input]: tensor });
        const values = Object.entries(outputs).map(([key, output]) => {
          const floats = Float32Array.from(output.toTypedArray());
          // What is not deleted stays in the module's memory for good.
          output.delete();
          return [key, floats] as const;
        });
        tensor.delete();
        say({ type: "outputs", outputs: Object.fromEntries(values) });
      } catch (thrown) {
        say({ type: "problem", reason: messageOf(thrown) });
      }
    });
    say({ type: "ready", runtime: name });
  } catch (thrown) {
    say({ type: "problem", reason: messageOf(thrown) });
    process.disconnect();
  }
}

// Without who asks there is nothing left to do.
process.on("disconnect", () => process.exit(0));
await serve(process.argv[2] ?? "");
