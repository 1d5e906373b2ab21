// What a device looks at: a folder as files come, a video's frames, a camera's over the network.

import {
  appendFileSync,
  copyFileSync,
  createReadStream,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import sharp from "sharp";
import { afterAll, describe, expect, it } from "vitest";
import {
  imagesOf,
  ppmImages,
  type SourceImage,
  type SourceOptions,
  shownAddress,
} from "../../../gpu-node/agent/image-source.ts";
import { SeenFiles } from "../../../gpu-node/agent/seen-files.ts";
import { createLog } from "../../../gpu-node/base/log.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";

const tools = toolsOrSay();
const dir = mkdtempSync(join(tmpdir(), "vantage-source-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const lines: string[] = [];
let positions = 0;
async function taken(
  count: number,
  options: Partial<SourceOptions> & { source: string },
  meanwhile: (index: number) => Promise<void> | void = () => {},
): Promise<SourceImage[]> {
  const end = new AbortController();
  const images: SourceImage[] = [];
  const seen = new SeenFiles(join(dir, `seen-${positions++}`), options.source);
  const all = imagesOf({
    seen,
    fps: 100,
    repeat: false,
    tools,
    log: createLog((line) => lines.push(line)),
    signal: end.signal,
    ...options,
  });
  for await (const image of all) {
    images.push(image);
    image.done();
    await meanwhile(images.length);
    if (images.length < count) continue;
    end.abort(new Error("enough"));
    break;
  }
  return images;
}

it("takes images of a folder by when they came, and those that come later; passes over others", async () => {
  const create = { width: 40, height: 30, channels: 3, background: "#a02010" } as const;
  const image = await sharp({ create }).png().toBuffer();
  writeFileSync(join(dir, "a.png"), image);
  writeFileSync(join(dir, "broken.jpg"), "no image");
  writeFileSync(join(dir, "notes.txt"), "no image either");
  const images = await taken(2, { source: dir }, (count) => {
    if (count === 1) writeFileSync(join(dir, "b.png"), image);
  });
  expect(images.map(({ source }) => source)).toEqual(["a.png", "b.png"]);
  expect(images[0]?.image).toMatchObject({ width: 40, height: 30 });
  expect([...(images[0]?.image.data.subarray(0, 3) ?? [])]).toEqual([0xa0, 0x20, 0x10]);
  expect(lines.join()).toContain("broken.jpg");
});

it("waits for a folder that is not there yet or for a while, and shortens long names", async () => {
  const create = { width: 40, height: 30, channels: 3, background: "#a02010" } as const;
  const image = await sharp({ create }).png().toBuffer();
  const source = join(dir, "mounted");
  const name = (first: string) => `${first.repeat(199)}\u{1f600}.png`;
  setTimeout(() => {
    mkdirSync(source);
    writeFileSync(join(source, name("a")), image);
    writeFileSync(join(source, name("b")), image);
  }, 300);
  const images = await taken(3, { source }, (count) => {
    if (count !== 1) return;
    renameSync(source, `${source}.away`);
    setTimeout(() => {
      renameSync(`${source}.away`, source);
      writeFileSync(join(source, "c.png"), image);
    }, 300);
  });
  const shown = [`${"a".repeat(199)}\ufffd`, `${"b".repeat(199)}\ufffd`, "c.png"];
  expect(images.map((one) => one.source)).toEqual(shown);
});

it.skipIf(!tools)("takes frames of a video at the rate that is asked for, to its end", async () => {
  const images = await taken(1_000, { source: rectangles(2), fps: 5 });
  expect(images.length).toBeGreaterThanOrEqual(9);
  expect(images.length).toBeLessThanOrEqual(11);
  expect(images.map(({ frame }) => frame)).toEqual(images.map((_, index) => index));
  expect(images[0]?.image).toMatchObject({ width: 160, height: 120 });
  // A red rectangle moves right by 20 pixels a second.
  const redAt = ({ image: { data, width } }: SourceImage) => {
    const row = 30 * width;
    for (let x = 0; x < width; x++) if ((data[3 * (row + x)] ?? 0) > 150) return x;
    return -1;
  };
  const first = redAt(images[0] as SourceImage);
  const fifth = redAt(images[5] as SourceImage);
  expect(fifth - first).toBeGreaterThan(10);
});

it.skipIf(!tools)(
  "takes a camera over the network, again and again, and hides its password",
  async () => {
    const path = join(dir, "clip.mp4");
    copyFileSync(rectangles(2), path);
    let visits = 0;
    const server = createServer((_, response) => {
      visits += 1;
      createReadStream(path).pipe(response.writeHead(200, { "content-type": "video/mp4" }));
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const { port } = server.address() as AddressInfo;
    const source = `http://user:secret@127.0.0.1:${port}/live.mp4?token=hidden`;
    const images = await taken(15, { source, fps: 5 });
    server.closeAllConnections();
    server.close();
    expect(images.length).toBe(15);
    expect(visits).toBeGreaterThan(1);
    const shown = `http://127.0.0.1:${port}/live.mp4`;
    expect(new Set(images.map((one) => one.source))).toEqual(new Set([shown]));
    expect(shownAddress(source)).toBe(shown);
    expect(lines.join()).not.toMatch(/secret|hidden/);
  },
);

it("cuts images out of a stream, however it is cut", async () => {
  const image = (value: number) =>
    Buffer.concat([Buffer.from("P6\n3 2\n255\n"), Buffer.alloc(18, value)]);
  const whole = Buffer.concat([image(1), image(2), image(3)]);
  for (const size of [1, 5, 29, 30, 1_000]) {
    const chunks = [];
    for (let at = 0; at < whole.length; at += size) chunks.push(whole.subarray(at, at + size));
    const values = [];
    for await (const { data, width, height } of ppmImages(Readable.from(chunks))) {
      values.push([data[0], data[17], width, height]);
    }
    expect([size, values]).toEqual([size, [1, 2, 3].map((value) => [value, value, 3, 2])]);
  }
  const page = Readable.from([Buffer.from("<html>no camera</html>".repeat(5))]);
  await expect(ppmImages(page).next()).rejects.toThrow(/no image/);
});

describe("a folder's files", () => {
  const file = (name: string, at: number) => ({ name, at });
  const newPath = () => join(dir, `known-${positions++}`);

  it("are known over restarts, by name and time; another folder's are not", () => {
    const path = newPath();
    const seen = new SeenFiles(path, "/one");
    seen.add(file("a.png", 5));
    appendFileSync(path, '["torn.png",');
    const again = new SeenFiles(path, "/one");
    expect(again.has(file("a.png", 5))).toBe(true);
    // Written anew, or older than what was looked at: it is new.
    for (const other of [file("a.png", 6), file("b.png", 1), file("torn.png", 5)]) {
      expect(again.has(other)).toBe(false);
    }
    again.add(file("torn.png", 5));
    expect(new SeenFiles(path, "/one").has(file("torn.png", 5))).toBe(true);
    expect(new SeenFiles(path, "/other").has(file("a.png", 5))).toBe(false);
  });

  it("are remembered up to a bound, of which the oldest go and stay known", () => {
    const path = newPath();
    const seen = new SeenFiles(path, "/one", 10);
    for (let at = 1; at <= 100; at++) seen.add(file(`${at}.png`, at));
    const again = new SeenFiles(path, "/one", 10);
    for (let at = 1; at <= 100; at++) expect(again.has(file(`${at}.png`, at))).toBe(true);
    expect(again.has(file("new.png", 99))).toBe(false);
    expect(readFileSync(path, "utf8").split("\n").length).toBeLessThan(15);
  });

  it("that come late are looked at, however old they are", async () => {
    const source = join(dir, "late");
    mkdirSync(source);
    const create = { width: 40, height: 30, channels: 3, background: "#a02010" } as const;
    const image = await sharp({ create }).png().toBuffer();
    writeFileSync(join(source, "new.png"), image);
    const images = await taken(2, { source }, (count) => {
      if (count !== 1) return;
      writeFileSync(join(source, "old.png"), image);
      utimesSync(join(source, "old.png"), 1_000, 1_000);
    });
    expect(images.map((one) => one.source)).toEqual(["new.png", "old.png"]);
  });
});
