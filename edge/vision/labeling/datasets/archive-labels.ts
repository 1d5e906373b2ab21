// What an archive's texts are labels of: COCO, Pascal VOC, CVAT or YOLO, told by what they hold.

import { parse } from "yaml";
import { maskBudget } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { ExportFormat } from "../../../../shared/tasks/tasks.ts";
import { ClassName } from "../classes.ts";
import type { ArchiveContent, ArchiveText } from "./archive.ts";
import { Coco, cocoLabels } from "./coco-labels.ts";
import { CLASSES_MAX, counted, type Labels, together } from "./labels.ts";
import { cvatLabels, openXml, type VocFile, vocFile, vocLabels } from "./xml-labels.ts";
import { yoloLabels } from "./yolo-labels.ts";

/** The formats of archives: those that are exported, where YOLO's with masks are YOLO's too. */
export type ArchiveFormat = Exclude<ExportFormat, "yolo-seg">;
/** What an archive of each format holds. */
export const ARCHIVE_CONTENTS: Readonly<Record<ArchiveFormat, string>> = {
  coco: "COCO JSON",
  voc: "Pascal VOC XML",
  cvat: "XML of CVAT for images 1.1",
  yolo: "YOLO texts with data.yaml or classes.txt",
};
export const ARCHIVE_FORMATS = Object.keys(ARCHIVE_CONTENTS) as ArchiveFormat[];

const NAMED_MAX = 10;
/** Lists of files and of classes beside YOLO's labels, and what people write. */
const NO_LABELS =
  /(^|\/)((train|val|valid|test|trainval|classes|labelmap|label_map|labels)\.txt|readme[^/]*|.*ImageSets\/.*)$/i;

const refusal = (problem: string) => new Failure("invalid_request", problem);

interface LabelFiles extends Record<ArchiveFormat, unknown[]> {
  coco: { name: string; document: unknown }[];
  voc: VocFile[];
  cvat: Labels[];
  /** Label texts. */
  yolo: ArchiveText[];
  others: string[];
}

/**
 * The labels of an archive, in the format that it holds or, where it holds several, the one that is
 * named. `isKnown` says whether the project has an image. Fails with `invalid_request`.
 */
export function archiveLabels(
  { texts, images, others }: ArchiveContent,
  { format, isKnown }: { format: ArchiveFormat | undefined; isKnown: (file: string) => boolean },
): Labels {
  const sorted = sort(texts, format);
  const present = ARCHIVE_FORMATS.filter((one) => sorted[one].length > 0);
  const [only] = present;
  if (present.length > 1) {
    throw refusal(`format: name one: the archive holds ${present.join(" and ")}`);
  }
  if (!only) {
    const wanted = format ? `${format} labels` : `labels: ${ARCHIVE_FORMATS.join(", ")}`;
    throw refusal(`the archive holds no ${wanted}`);
  }
  const budget = maskBudget();
  const read: Record<ArchiveFormat, () => Labels> = {
    coco: () =>
      together(
        sorted.coco.map(({ name: file, document }) =>
          cocoLabels(cocoOf(file, document), file, budget),
        ),
      ),
    voc: () => vocLabels(sorted.voc, isKnown),
    cvat: () => together(sorted.cvat),
    yolo: () =>
      yoloLabels(
        classNames(texts),
        sorted.yolo.map((one) => [one.name, one.text] as const),
        "labels",
      ),
  };
  const labels = read[only]();
  checkClasses(labels.classes);
  const ignored = [...others, ...sorted.others];
  const more = ignored.length > NAMED_MAX ? ", …" : "";
  return {
    ...labels,
    notes: [
      ...labels.notes,
      ...(images > 0 ? [`${counted(images, "image")} of the archive not taken: upload them`] : []),
      ...(ignored.length > 0
        ? [
            `${counted(ignored.length, "file")} not read: ${ignored.slice(0, NAMED_MAX).join(", ")}${more}`,
          ]
        : []),
    ],
  };
}

/** The texts by format; with a format named, the others' are beside it. */
function sort(texts: readonly ArchiveText[], format: ArchiveFormat | undefined): LabelFiles {
  const sorted: LabelFiles = { coco: [], voc: [], cvat: [], yolo: [], others: [] };
  const inLabels = texts.some(({ name: file }) => /(^|\/)labels\/.*\.txt$/i.test(file));
  const wants = (one: ArchiveFormat) => format === undefined || format === one;
  for (const { name: file, text } of texts) {
    const [extension = ""] = /[^.]*$/.exec(file.toLowerCase()) ?? [];
    if (extension === "json" && wants("coco")) {
      const document = jsonOf(file, text);
      if (isCoco(document)) sorted.coco.push({ name: file, document });
      else sorted.others.push(file);
    } else if (extension === "xml" && (wants("voc") || wants("cvat"))) {
      const xml = openXml(file, text);
      if (xml.root.name === "annotation" && wants("voc")) sorted.voc.push(vocFile(xml));
      else if (xml.root.name === "annotations" && wants("cvat")) sorted.cvat.push(cvatLabels(xml));
      else sorted.others.push(file);
    } else if (extension === "txt" && wants("yolo") && isLabel(file, inLabels)) {
      sorted.yolo.push({ name: file, text });
    } else if (!/^(ya?ml|names)$/.test(extension) && !NO_LABELS.test(file))
      sorted.others.push(file);
  }
  return sorted;
}

const isLabel = (file: string, inLabels: boolean) =>
  !NO_LABELS.test(file) && (!inLabels || /(^|\/)labels\//i.test(file));

function jsonOf(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw refusal(`${file}: is no JSON`);
  }
}

const isCoco = (document: unknown): boolean =>
  typeof document === "object" &&
  document !== null &&
  "images" in document &&
  "annotations" in document;

function cocoOf(file: string, document: unknown) {
  const parsed = Coco.safeParse(document);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw refusal(`${file}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`);
}

/** The names that YOLO's labels number: of data.yaml, else of a list of them, one a line. */
function classNames(texts: readonly ArchiveText[]): (string | undefined)[] {
  const yaml = texts.find(
    ({ name: file, text }) => /\.ya?ml$/i.test(file) && /^names\s*:/m.test(text),
  );
  if (yaml) return namesOf(yaml);
  const list = texts.find(({ name: file }) =>
    /(^|\/)(classes\.txt|obj\.names|[^/]+\.names)$/i.test(file),
  );
  const names = (list?.text ?? "").split("\n").map((line) => line.trim());
  while (names.at(-1) === "") names.pop();
  if (names.length > 0) return names;
  throw refusal("the archive holds YOLO labels and no names: add data.yaml, or classes.txt");
}

function namesOf({ name: file, text }: ArchiveText): (string | undefined)[] {
  let names: unknown;
  try {
    // The library would print its warnings, which quote the text, among the log's lines.
    names = (parse(text, { logLevel: "error" }) as { names?: unknown } | null)?.names;
  } catch (thrown) {
    throw refusal(`${file}: ${(thrown as Error).message.split("\n")[0]?.slice(0, 200)}`);
  }
  const entries = Object.entries(typeof names === "object" && names !== null ? names : {});
  const numbers = entries.map(([key]) => Number(key));
  if (
    entries.length === 0 ||
    !numbers.every((key) => Number.isInteger(key) && key >= 0 && key < CLASSES_MAX)
  ) {
    throw refusal(`${file}: names must be a list, or texts by number`);
  }
  const listed: string[] = [];
  for (const [key, value] of entries) listed[Number(key)] = String(value);
  return listed;
}

function checkClasses(classes: readonly string[]) {
  if (classes.length > CLASSES_MAX) throw refusal(`over ${CLASSES_MAX} classes`);
  const wrong = classes.find((one) => !ClassName.safeParse(one).success);
  if (wrong !== undefined) {
    throw refusal(`a class is called ${JSON.stringify(wrong.slice(0, 50))}, which is no name`);
  }
}
