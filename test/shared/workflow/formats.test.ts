// Texts that others read: templates filled without surprises, and CSV that any reader takes apart
// into the same cells again, none of which is a formula.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FORMAT_BLOCKS } from "../../../shared/workflow/blocks/formats.ts";
import { runnerOf } from "../../support/block-runner.ts";

const run = runnerOf(FORMAT_BLOCKS);

describe("a template", () => {
  it("takes values whole where they stand alone, as text among other characters", async () => {
    const template = ["{{ a }}", "a is {{a}}, b is {{b}}", { n: "{{n}}" }, 7, null, true];
    const values = { a: { x: [1] }, b: "t", n: 3 };
    const { json, text } = await run("json_formatter@1", values, {
      inputs: ["a", "b", "n"],
      template,
    });
    expect(json).toEqual([{ x: [1] }, 'a is {"x":[1]}, b is t', { n: 3 }, 7, null, true]);
    expect(JSON.parse(String(text))).toEqual(json);
  });

  it("is not filled again by what a value says", async () => {
    const values = { a: "{{b}} $& $1", b: "secret" };
    const { json } = await run("json_formatter@1", values, {
      inputs: ["a", "b"],
      template: "<{{a}}>",
    });
    expect(json).toBe("<{{b}} $& $1>");
  });

  it("keeps members that are called as those of prototypes as plain data", async () => {
    const template = JSON.parse('{"__proto__": {"polluted": "{{a}}"}}');
    const { text } = await run("json_formatter@1", { a: 1 }, { inputs: ["a"], template });
    expect(Object.hasOwn({}, "polluted") || "polluted" in {}).toBe(false);
    expect(["{}", '{"__proto__":{"polluted":1}}']).toContain(text);
  });

  it("is refused before the run for an unknown name, or too deep", async () => {
    const unknown = run("json_formatter@1", {}, { inputs: ["a"], template: ["{{b}}"] });
    await expect(unknown).rejects.toThrow("template: no input is called b");
    const deep = Array.from({ length: 30 }).reduce<unknown>((inner) => [inner], 1);
    await expect(run("json_formatter@1", {}, { template: deep })).rejects.toThrow("more than 20");
    const name = run("json_formatter@1", {}, { inputs: ["template"], template: 1 });
    await expect(name).rejects.toThrow("is a parameter");
  });

  it("is bounded before it is written", async () => {
    const a = "x".repeat(300_000);
    for (const template of ["{{a}}{{a}}{{a}}{{a}}", ["{{a}}", "{{a}}", "{{a}}", "{{a}}"]]) {
      const made = run("json_formatter@1", { a }, { inputs: ["a"], template });
      await expect(made).rejects.toThrow("more than 1000000 characters");
    }
  });
});

/** Rows and cells of a text after RFC 4180. */
function cellsOf(text: string): string[][] {
  const rows: string[][] = [[]];
  const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/y;
  while (cell.lastIndex < text.length) {
    const [, quoted, plain, end] = cell.exec(text) ?? expect.fail("no CSV");
    rows.at(-1)?.push(quoted === undefined ? (plain ?? "") : quoted.replaceAll('""', '"'));
    if (end === "\r\n") rows.push([]);
  }
  return rows.slice(0, -1);
}

describe("CSV", () => {
  const word = fc.oneof(
    fc.string({ maxLength: 6 }),
    fc.array(fc.constantFrom(...'",\r\n=+-@\tab'), { maxLength: 5 }).map((all) => all.join("")),
  );

  it("reads back into the cells that went in; none begins as a formula does", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(word, word), { maxLength: 6 }), async (names) => {
        const objects = names.map(([name, code]) => ({
          class: name,
          confidence: 0.5,
          bbox: [-1.5, 0, 2, 2],
          data: { code },
        }));
        const detections = { frame: { width: 9, height: 9 }, objects };
        const columns = ["class", "data.code", "x1", "track_id"];
        const { text, rows } = await run("csv_formatter@1", { detections }, { columns });
        const [header, ...cells] = cellsOf(String(text));
        expect(header).toEqual(columns);
        expect(rows).toBe(names.length);
        expect(cells.map(([name, code]) => [name, code])).toEqual(
          names.map((pair) =>
            pair.map((each) => (/^[=+\-@\t\r\n]/.test(each) ? `'${each}` : each)),
          ),
        );
        for (const [, , x1, track] of cells) expect([x1, track]).toEqual(["-1.5", ""]);
      }),
    );
  });

  it("has no header where none is wanted, and no rows without objects", async () => {
    const detections = { frame: { width: 9, height: 9 }, objects: [] };
    expect(await run("csv_formatter@1", { detections }, { header: false })).toEqual({
      text: "",
      rows: 0,
    });
  });
});
