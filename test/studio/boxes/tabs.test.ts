// The outbox in a real browser: storage, lock and channel among tabs. Goal: what a closed tab left
// is sent by the next one, once, and two open tabs act as one.

import { dirname, join } from "node:path";
import { build } from "esbuild";
import type { BrowserContext, Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { hasChromium, openWindow } from "../../support/browser.ts";
import { dice } from "../../support/dice.ts";
import { EditServer, JOB, VIDEO } from "../../support/edit-server.ts";

const PORTS = join(import.meta.dirname, "../../../edge/studio/boxes/browser-ports.ts");
const ORIGIN = "http://localhost:1";

/** Opens an empty job over the real ports; its page has it as `job`. */
const SCRIPT = `
import { browserPorts } from "./browser-ports.ts";
import { JobBoxes } from "./job.ts";
const numbers = new Uint8Array();
const columns = { id: numbers, video: numbers, frame: numbers, class: numbers, state: numbers,
  source: numbers, flags: numbers, confidence: numbers, box: numbers, revision: numbers,
  track: numbers };
const header = { edits_seq: 0, after_seq: null, classes: [], videos: [] };
const empty = { header, rows: 0, columns, deleted: numbers };
const send = (job, edits, signal) =>
  fetch("/jobs/" + job + "/edits", { method: "POST", body: JSON.stringify({ edits }), signal });
const ports = { ...browserPorts("ann", "${JOB}"), send, columns: async () => empty };
globalThis.job = new JobBoxes("${JOB}", ports);
globalThis.opened = globalThis.job.open();
`;

let script = "";
beforeAll(async () => {
  const { outputFiles, metafile } = await build({
    stdin: { contents: SCRIPT, resolveDir: dirname(PORTS), loader: "ts" },
    bundle: true,
    format: "iife",
    minify: true,
    write: false,
    metafile: true,
  });
  script = outputFiles[0]?.text ?? "";
  expect(Object.keys(metafile.inputs).filter((file) => file.includes("node_modules"))).toEqual([]);
});

interface World {
  context: BrowserContext;
  server: EditServer;
  /** Whether requests arrive. */
  isOnline: boolean;
  /** Pages that sent, one entry a request. */
  senders: (Page | undefined)[];
}

async function world(): Promise<World> {
  const { context, page } = await openWindow();
  await page.close();
  const all: World = { context, server: new EditServer(dice(1)), isOnline: true, senders: [] };
  await context.route(`${ORIGIN}/`, (route) =>
    route.fulfill({ contentType: "text/html", body: `<script>${script}</script>` }),
  );
  await context.route(`${ORIGIN}/jobs/*/edits`, async (route) => {
    if (!all.isOnline) return route.abort();
    all.senders.push(route.request().frame().page());
    const { edits } = route.request().postDataJSON();
    return route.fulfill({ json: all.server.edit("ann", edits) });
  });
  return all;
}

async function open({ context }: World): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${ORIGIN}/`);
  await page.evaluate("opened");
  return page;
}

const draw = (page: Page, className: string) =>
  page.evaluate<string>(`job.draw({ frame_id: "${VIDEO}.0", class: "${className}",
    bbox: [1, 2, 3, 4], polygon: null, accepted: true, track_id: null }, "draw")`);
const waiting = (page: Page) => page.evaluate<number>("job.outbox.status.waiting");
const classesOf = ({ server }: World) => [...server.rows.values()].map((row) => row.class).sort();

describe.skipIf(!hasChromium)("tabs", () => {
  it("leave to the next one what they could not send, with what can be undone", async () => {
    const all = await world();
    all.isOnline = false;
    const first = await open(all);
    const id = await draw(first, "bag");
    await draw(first, "dog");
    await first.evaluate(`job.commit([{ id: "${id}", after: { class: "cat" } }], "relabel")`);
    await first.evaluate("job.outbox.written()");
    expect(await first.evaluate("job.outbox.status")).toMatchObject({ waiting: 3, stored: true });
    await first.close();
    all.isOnline = true;
    const second = await open(all);
    await expect.poll(() => waiting(second), { timeout: 20_000 }).toBe(0);
    expect(classesOf(all)).toEqual(["cat", "dog"]);
    expect(all.server.rows.get(id)?.revision).toBe(2);
    expect(await second.evaluate("job.undo()")).toBe("relabel");
    await expect.poll(() => classesOf(all), { timeout: 20_000 }).toEqual(["bag", "dog"]);
    await second.evaluate("job.outbox.written()");
    await second.close();
    const third = await open(all);
    expect(await third.evaluate("[job.history.undoCount, job.history.redoCount]")).toEqual([2, 1]);
  });

  it("send from one and show the same", async () => {
    const all = await world();
    const [first, second] = [await open(all), await open(all)];
    const id = await draw(second, "bag");
    await expect.poll(() => waiting(second), { timeout: 20_000 }).toBe(0);
    expect(new Set(all.senders)).toEqual(new Set([first]));
    const shown = `job.table.get("${id}")?.revision`;
    await expect.poll(() => first.evaluate(shown), { timeout: 20_000 }).toBe(1);
    expect(await second.evaluate(shown)).toBe(1);
    await first.close();
    await draw(second, "dog");
    await expect.poll(() => waiting(second), { timeout: 20_000 }).toBe(0);
    expect(classesOf(all)).toEqual(["bag", "dog"]);
    expect(all.senders.at(-1)).toBe(second);
  });
});
