// The group `formats`: every format of the read API through the readers that quants have, and our
// datasets and average precision through those of the vision field.

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { writeAddress, writeAnswers } from "./formats-answers.ts";
import { writeDatasets } from "./formats-datasets.ts";
import { writeScenes } from "./formats-scenes.ts";
import { writeSequential } from "./formats-sequential.ts";
import { type Group, runScript, type Script } from "./group.ts";
import { importOutcome } from "./imported-labels.ts";
import type { Outcome } from "./known.ts";
import { startServices } from "./services.ts";

const README = resolve(import.meta.dirname, "../../edge/markets/README.md");
const READERS = ["pandas", "polars", "pyarrow", "duckdb"] as const;

/** Archives that supervision writes, and how many objects of each an import leaves out. */
const SUPERVISION_ARCHIVES = {
  yolo: 0,
  coco: 0,
  voc: 0,
  labelme: 0,
  "yolo-masks": 0,
  "voc-masks": 0,
  "labelme-masks": 0,
  "coco-masks": 0,
  // It marks an object with a hole or in pieces as a crowd.
  "coco-crowds": 2,
} as const;

const readerOf = (tool: string, input: string): Script => ({
  script: `formats/read_${tool}.py`,
  case: `formats/${tool}`,
  args: [input],
});

export const formats: Group = {
  async run(context) {
    // Open: not every library that reads an address can be given a header for it.
    const services = await startServices({ SERVICE_READ_API_KEY: "" });
    try {
      const write = (name: string, content: unknown) => {
        const path = join(services.folder, name);
        writeFileSync(path, JSON.stringify(content));
        return path;
      };
      const answers = write("answers.json", await writeAnswers(services));
      const { admin, projectId, datasets: told } = await writeDatasets(services);
      const datasets = write("datasets.json", told);
      const address = await writeAddress(services);
      const scripts: Script[] = [
        ...READERS.map((reader) => readerOf(reader, answers)),
        {
          script: "formats/read_addresses.py",
          case: "formats/address",
          args: address,
        },
        {
          script: "formats/read_readme.py",
          case: "formats/readme",
          args: [...address.slice(0, 2), README],
        },
        readerOf("pycocotools", datasets),
        readerOf("supervision", datasets),
        {
          script: "formats/write_supervision.py",
          case: "formats/supervision/write",
          args: [datasets, services.folder],
        },
        readerOf("globox", datasets),
        {
          script: "formats/sequential.py",
          case: "formats/sequential",
          args: [writeSequential(services.folder)],
        },
      ];
      const outcomes: Outcome[] = [];
      // One after the other: the tools have threads of their own.
      for (const script of scripts) outcomes.push(...(await runScript(context, script)));
      const { folder } = services;
      for (const [name, leftOut] of Object.entries(SUPERVISION_ARCHIVES)) {
        const label = `formats/supervision/import/${name}`;
        const archive = { folder, projectId, name: `supervision-${name}`, case: label, leftOut };
        outcomes.push(await importOutcome(admin, archive));
      }
      const scenes = await writeScenes(services.folder);
      const name = "formats/average_precision";
      if ("missing" in scenes)
        return [...outcomes, { case: name, outcome: "skipped", detail: scenes.missing }];
      for (const [file, args] of [
        ["average_precision", [scenes.path]],
        ["mask_average_precision", [scenes.masksPath]],
        ["supervision_average_precision", [scenes.path, scenes.masksPath]],
      ] as const) {
        const script: Script = { script: `formats/${file}.py`, case: `formats/${file}`, args };
        outcomes.push(...(await runScript(context, script)));
      }
      return outcomes;
    } finally {
      await services.stop();
    }
  },
};
