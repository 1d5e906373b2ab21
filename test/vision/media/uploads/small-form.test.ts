// Small forms whose file is found at once. Goal: what is found is what the parser of all forms
// finds as the form's only part, byte for byte; whatever is written in another way is left to that
// parser.

import busboy from "busboy";
import { describe, expect, it } from "vitest";
import { maybePlain, plainFile } from "../../../../edge/vision/media/uploads/small-form.ts";

const BOUNDARY = "----formdata-undici-012345678901";
const TYPE = `multipart/form-data; boundary=${BOUNDARY}`;
const DISPOSITION = 'Content-Disposition: form-data; name="file"; filename="a b.jpg"';
const HEAD = [DISPOSITION, "Content-Type: image/jpeg"];

interface FormText {
  head?: string[];
  content?: string;
  before?: string;
  after?: string;
}

const written = ({
  head = HEAD,
  content = "\xff\xd8\r\n--\r\npixels\r\n",
  before = `--${BOUNDARY}\r\n`,
  after = `\r\n--${BOUNDARY}--\r\n`,
}: FormText = {}): Uint8Array<ArrayBuffer> =>
  new Uint8Array(Buffer.from(`${before}${head.join("\r\n")}\r\n\r\n${content}${after}`, "latin1"));

/** The names and bytes of a form's parts, by the parser of all forms; null for a broken form. */
function partsOf(form: Uint8Array): Promise<[name: string, content: string][] | null> {
  return new Promise((resolve) => {
    const parts: [string, string][] = [];
    const parser = busboy({ headers: { "content-type": TYPE } });
    parser.on("field", (name, value) => parts.push([name, value]));
    parser.on("file", (name, stream) => {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", () => {});
      stream.on("end", () => parts.push([name, Buffer.concat(chunks).toString("latin1")]));
    });
    parser.on("error", () => resolve(null)).on("close", () => resolve(parts));
    parser.end(form);
  });
}

const fileOf = (form: Uint8Array<ArrayBuffer>): string | null => {
  const file = plainFile(form, TYPE);
  return file && Buffer.from(file).toString("latin1");
};

const LINES = "a\r\n--b\r\n\r\n----formdata-undici-01234567890x";

describe("finds the file", () => {
  it.each<[string, FormText]>([
    ["as most clients write it", {}],
    ["without a type", { head: [DISPOSITION] }],
    ["without the last line's end", { after: `\r\n--${BOUNDARY}--` }],
    [
      "in names of headers of any case",
      { head: HEAD.map((line) => line.replace("Content", "content")) },
    ],
    ["that has lines and boundaries of others", { content: LINES }],
    ["that begins and ends with lines", { content: "\r\n\r\nx\r\n" }],
  ])("%s", async (_, form) => {
    const bytes = written(form);
    const file = fileOf(bytes);
    expect(file).not.toBeNull();
    expect(await partsOf(bytes)).toEqual([["file", file]]);
  });
});

describe("leaves to the parser of all forms", () => {
  it.each<[string, FormText]>([
    ["an empty file", { content: "" }],
    ["a file that begins like a boundary", { content: `--${BOUNDARY}` }],
    ["a field of that name", { head: ['Content-Disposition: form-data; name="file"'] }],
    ["a file without a name", { head: [DISPOSITION.replace("a b.jpg", "")] }],
    ["a name that is quoted", { head: [DISPOSITION.replace("a b", 'a\\"b')] }],
    ["a name in another alphabet", { head: [DISPOSITION.replace("a b", "\xc3\xa4")] }],
    ["another file", { head: [DISPOSITION.replace('"file"', '"image"')] }],
    ["a file in capitals", { head: [DISPOSITION.replace('"file"', '"FILE"')] }],
    ["another header", { head: [...HEAD, "Content-Transfer-Encoding: base64"] }],
    ["words before the form", { before: `hello\r\n--${BOUNDARY}\r\n` }],
    ["a second part", { after: `\r\n--${BOUNDARY}\r\n${DISPOSITION}\r\n\r\nx\r\n--${BOUNDARY}--` }],
    ["a form that is cut off", { after: `\r\n--${BOUNDARY}` }],
    ["a form without an end", { after: "" }],
    ["words after the form", { after: `\r\n--${BOUNDARY}--\r\nbye` }],
  ])("%s", (_, form) => {
    expect(fileOf(written(form))).toBeNull();
  });
});

it("knows the types of plain forms", () => {
  expect(maybePlain(TYPE)).toBe(true);
  const others = [null, "", "application/json", `${TYPE}; charset=utf-8`];
  const rest = ['multipart/form-data; boundary="a b"', "multipart/form-data"];
  expect([...others, ...rest].filter(maybePlain)).toEqual([]);
});
