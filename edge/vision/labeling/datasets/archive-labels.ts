// The format of an archive's texts, told by what they hold: COCO, Pascal VOC, CVAT, YOLO, LabelMe
// or Label Studio.

import { parse } from "yaml";
import { type MaskBudget, maskBudget } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { ExportFormat } from "../../../../shared/tasks/tasks.ts";
import { ClassName } from "../classes.ts";
import type { ArchiveContent, ArchiveText } from "./archive.ts";
import { archiveSides, sideOfDocument } from "./archive-sides.ts";
import { Coco, cocoLabels, isPosed } from "./coco-labels.ts";
import { cvatVideoLabels, hasTracks } from "./cvat-video-labels.ts";
import { FRAME_LIST, FrameLists } from "./frame-lists.ts";
import { isLabelStudio, labelStudioLabels } from "./label-studio-labels.ts";
import { isLabelme, type LabelmeFile, labelmeFile, labelmeLabels } from "./labelme-labels.ts";
import {
  CLASSES_MAX,
  counted,
  folderOf,
  imageBeside,
  type Labels,
  oneIdEach,
  together,
} from "./labels.ts";
import { isMot, isOfSequence, type MotFile, motFile, motLabels } from "./mot-labels.ts";
import { emptyTally, type SequenceContext, sequenceLabels } from "./sequences.ts";
import { cvatLabels, openXml, type VocFile, vocFile, vocLabels } from "./xml-labels.ts";
import { type YoloClasses, yoloLabels } from "./yolo-labels.ts";

/**
 * The formats of archives: those that are exported, where YOLO's with masks are YOLO's too, and
 * those of tools that annotate.
 */
export type ArchiveFormat = Exclude<ExportFormat, "yolo-seg"> | "labelme" | "label-studio";
/** What an archive of each format holds. */
export const ARCHIVE_CONTENTS: Readonly<Record<ArchiveFormat, string>> = {
  coco: "COCO JSON",
  voc: "Pascal VOC XML",
  cvat: "XML of CVAT for images 1.1",
  "cvat-video": "XML of CVAT for video 1.1",
  mot: "MOT's gt.txt",
  yolo: "YOLO texts with data.yaml or classes.txt",
  labelme: "LabelMe's JSON",
  "label-studio": "Label Studio's JSON or JSON-MIN",
};
export const ARCHIVE_FORMATS = Object.keys(ARCHIVE_CONTENTS) as ArchiveFormat[];

/** Formats whose labels name images without an extension. */
const WITHOUT_EXTENSION: readonly ArchiveFormat[] = ["yolo", "cvat-video", "mot"];
const JSON_FORMATS: readonly ArchiveFormat[] = ["coco", "labelme", "label-studio"];
const XML_FORMATS: readonly ArchiveFormat[] = ["voc", "cvat", "cvat-video"];
const NAMED_MAX = 10;
/** Lists of files and of classes beside YOLO's labels, and what people write. */
const NO_LABELS =
  /(^|\/)((train|val|valid|test|trainval|classes|labelmap|label_map|labels)\.txt|readme[^/]*|.*ImageSets\/.*)$/i;

const refusal = (problem: string) => new Failure("invalid_request", problem);

interface LabelFiles extends Record<ArchiveFormat, unknown[]> {
  coco: { name: string; document: unknown }[];
  voc: VocFile[];
  cvat: Labels[];
  "cvat-video": Labels[];
  mot: MotFile[];
  /** Label texts. */
  yolo: ArchiveText[];
  labelme: LabelmeFile[];
  "label-studio": Labels[];
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
  const lists = new FrameLists(texts);
  const context = { lists, isKnown, budget: maskBudget(), tally: emptyTally() };
  const sorted = sort(texts, format, context);
  const present = ARCHIVE_FORMATS.filter((one) => sorted[one].length > 0);
  const [only] = present;
  if (present.length > 1) {
    throw refusal(`format: name one: the archive holds ${present.join(" and ")}`);
  }
  if (!only) {
    const wanted = format ? `${format} labels` : `labels: ${ARCHIVE_FORMATS.join(", ")}`;
    throw refusal(`the archive holds no ${wanted}`);
  }
  const read: Record<ArchiveFormat, () => Labels> = {
    coco: () => cocoDocuments(sorted.coco, context.budget),
    voc: () => vocLabels(sorted.voc, isKnown),
    cvat: () => together(sorted.cvat),
    "cvat-video": () => sequenceLabels(sorted["cvat-video"], context),
    mot: () =>
      sequenceLabels(
        sorted.mot.map((one) => motLabels(one, context)),
        context,
      ),
    yolo: () => {
      const classesOf = classFinder(texts);
      const read = sorted.yolo.map(({ name: file, text }) => ({
        file,
        text,
        classes: classesOf(file),
      }));
      return yoloLabels(read, "labels");
    },
    labelme: () => labelmeLabels(sorted.labelme, isKnown),
    "label-studio": () => together(sorted["label-studio"]),
  };
  const labels = read[only]();
  checkClasses(labels.classes);
  const told = archiveSides(texts, labels);
  const ignored = [...others, ...sorted.others];
  const more = ignored.length > NAMED_MAX ? ", …" : "";
  return {
    ...labels,
    sides: told.sides,
    frameIds: oneIdEach([
      ...lists.named(labels.images, { hasExtension: !WITHOUT_EXTENSION.includes(only) }),
      ...labels.frameIds,
    ]),
    notes: [
      ...labels.notes,
      ...told.notes,
      ...(images > 0
        ? [`${counted(images, "image")} of the archive not taken: send images=true`]
        : []),
      ...(ignored.length > 0
        ? [
            `${counted(ignored.length, "file")} not read: ${ignored.slice(0, NAMED_MAX).join(", ")}${more}`,
          ]
        : []),
    ],
  };
}

/** The texts by format; with a format named, the others' are beside it. */
function sort(
  texts: readonly ArchiveText[],
  format: ArchiveFormat | undefined,
  context: SequenceContext,
): LabelFiles {
  const { budget } = context;
  const sorted: LabelFiles = {
    coco: [],
    voc: [],
    cvat: [],
    "cvat-video": [],
    mot: [],
    yolo: [],
    labelme: [],
    "label-studio": [],
    others: [],
  };
  const textsByPath = new Map(texts.map((one) => [one.name, one.text]));
  const inLabels = texts.some(({ name: file }) => /(^|\/)labels\/.*\.txt$/i.test(file));
  const wants = (one: ArchiveFormat) => format === undefined || format === one;
  for (const { name: file, text } of texts) {
    const [extension = ""] = /[^.]*$/.exec(file.toLowerCase()) ?? [];
    if (extension === "json" && JSON_FORMATS.some(wants)) {
      const document = jsonOf(file, text);
      if (wants("coco") && isCoco(document)) sorted.coco.push({ name: file, document });
      else if (wants("labelme") && isLabelme(document))
        sorted.labelme.push(labelmeFile(file, document, budget));
      else if (wants("label-studio") && isLabelStudio(document))
        sorted["label-studio"].push(labelStudioLabels(file, document, budget));
      else sorted.others.push(file);
    } else if (extension === "xml" && XML_FORMATS.some(wants)) {
      const xml = openXml(file, text);
      if (xml.root.name === "annotation" && wants("voc")) sorted.voc.push(vocFile(xml));
      else if (wants("cvat-video") && hasTracks(xml))
        sorted["cvat-video"].push(cvatVideoLabels(xml, context));
      else if (xml.root.name === "annotations" && wants("cvat")) sorted.cvat.push(cvatLabels(xml));
      else sorted.others.push(file);
    } else if (wants("mot") && isMot(file, text)) {
      sorted.mot.push(motFile(file, text, textsByPath));
    } else if (extension === "txt" && wants("yolo") && isLabel(file, text, inLabels)) {
      sorted.yolo.push({ name: file, text });
    } else if (
      !/^(ya?ml|names|ini)$/.test(extension) &&
      !NO_LABELS.test(file) &&
      !FRAME_LIST.test(file)
    )
      sorted.others.push(file);
  }
  return sorted;
}

const isLabel = (file: string, text: string, inLabels: boolean) =>
  !NO_LABELS.test(file) && !isOfSequence(file, text) && (!inLabels || /(^|\/)labels\//i.test(file));

function jsonOf(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    const [why = ""] = (thrown as Error).message.split("\n");
    throw refusal(`${file}: is no JSON: ${why.slice(0, 200)}`);
  }
}

/** Instances: neither captions of images alone, nor segments without a box each (panoptic). */
function isCoco(document: unknown): boolean {
  if (typeof document !== "object" || document === null) return false;
  if (!("images" in document && "annotations" in document)) return false;
  const { annotations } = document;
  const isOther = (one: unknown) =>
    typeof one === "object" &&
    one !== null &&
    ("segments_info" in one || ("caption" in one && !("bbox" in one)));
  return !(Array.isArray(annotations) && annotations.some(isOther));
}

/**
 * The labels of several documents. Persons with key points stand in the instances, too: each is
 * taken once.
 */
function cocoDocuments(documents: LabelFiles["coco"], budget: MaskBudget): Labels {
  const parsed = documents.map(({ name: file, document }) => ({
    file,
    coco: cocoOf(file, document),
  }));
  const isOfPoses = ({ coco: { annotations } }: (typeof parsed)[number]) =>
    annotations.length > 0 && annotations.every(isPosed);
  const known = new Set(parsed.filter((one) => !isOfPoses(one)).flatMap(objectsOf));
  let repeated = 0;
  const labels = parsed.map((one) => {
    if (!isOfPoses(one)) return ofDocument(one.file, cocoLabels(one.coco, one.file, budget));
    const keys = objectsOf(one);
    const annotations = one.coco.annotations.filter((_, index) => !known.has(keys[index] ?? ""));
    repeated += one.coco.annotations.length - annotations.length;
    return ofDocument(one.file, cocoLabels({ ...one.coco, annotations }, one.file, budget));
  });
  const all = together(labels);
  const why = "with key points taken once, as the instances beside have them too";
  return {
    ...all,
    notes: [...all.notes, ...(repeated > 0 ? [`${counted(repeated, "object")} ${why}`] : [])],
  };
}

/** Labels of a document whose name tells the side of all its images. */
function ofDocument(file: string, labels: Labels): Labels {
  const side = sideOfDocument(file);
  return side ? { ...labels, sides: new Map(labels.images.map((one) => [one, side])) } : labels;
}

/** What tells a document's objects: the image, the class and the box of each. */
function objectsOf({ file, coco }: { file: string; coco: ReturnType<typeof cocoOf> }): string[] {
  const images = new Map(
    coco.images.map(({ id, file_name }) => [id, imageBeside(file, file_name)]),
  );
  const names = new Map(coco.categories.map(({ id, name }) => [id, name]));
  return coco.annotations.map(({ image_id, category_id, bbox }) =>
    JSON.stringify([images.get(image_id), names.get(category_id), bbox]),
  );
}

function cocoOf(file: string, document: unknown) {
  const parsed = Coco.safeParse(document);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw refusal(`${file}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""}`);
}

/**
 * What the numbers of label texts mean, by the text's file: as the lists in its folder and those
 * around it say, which must agree; where there is none of them, as all lists of the archive do.
 */
function classFinder(texts: readonly ArchiveText[]): (file: string) => YoloClasses {
  const lists = classLists(texts);
  if (lists.length === 0) {
    throw refusal("the archive holds YOLO labels and no names: add data.yaml, or classes.txt");
  }
  const byFolder = new Map<string, YoloClasses>();
  return (file) => {
    const folder = folderOf(file);
    const known = byFolder.get(folder) ?? agreed(file, lists, folder);
    byFolder.set(folder, known);
    return known;
  };
}

function agreed(file: string, lists: readonly ClassList[], folder: string): YoloClasses {
  const around = lists.filter((one) => folder.startsWith(folderOf(one.file)));
  const asked = around.length > 0 ? around : lists;
  const [first] = asked;
  const same = asked.filter(
    (one) => one.classes.names.join("\n") === first?.classes.names.join("\n"),
  );
  if (!first || same.length < asked.length) {
    const files = asked.slice(0, NAMED_MAX).map((one) => one.file);
    const more = asked.length > NAMED_MAX ? ", …" : "";
    throw refusal(`${file}: which of these names its classes: ${files.join(", ")}${more}?`);
  }
  // Only data.yaml tells of key points.
  const keyPointNumbers = Math.max(...asked.map((one) => one.classes.keyPointNumbers));
  return { names: first.classes.names, keyPointNumbers };
}

/** A file that lists classes. */
interface ClassList {
  file: string;
  classes: YoloClasses;
}

function classLists(texts: readonly ArchiveText[]): ClassList[] {
  const named = (pattern: RegExp) => texts.filter(({ name: file }) => pattern.test(file));
  const yamls = named(/\.ya?ml$/i).filter(({ text }) => /^names\s*:/m.test(text));
  const lists = named(/(\.names|(^|\/)classes\.txt)$/i).flatMap(({ name: file, text }) => {
    const names = text.split("\n").map((line) => line.trim());
    while (names.at(-1) === "") names.pop();
    return names.length > 0 ? [{ file, classes: { names, keyPointNumbers: 0 } }] : [];
  });
  return [...lists, ...yamls.map((one) => ({ file: one.name, classes: yamlClasses(one) }))];
}

function yamlClasses({ name: file, text }: ArchiveText): YoloClasses {
  let document: { names?: unknown; kpt_shape?: unknown } | null;
  try {
    // The library would print its warnings, which quote the text, among the log's lines.
    document = parse(text, { logLevel: "error" }) as typeof document;
  } catch (thrown) {
    throw refusal(`${file}: ${(thrown as Error).message.split("\n")[0]?.slice(0, 200)}`);
  }
  const names = document?.names;
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
  return { names: listed, keyPointNumbers: keyPointNumbers(file, document?.kpt_shape) };
}

/** Numbers that follow each box of a pose dataset: key points times what is told of each. */
function keyPointNumbers(file: string, shape: unknown): number {
  if (shape === undefined || shape === null) return 0;
  const [points, numbers, more] = Array.isArray(shape) ? (shape as unknown[]) : [];
  const isShape =
    Number.isInteger(points) && Number(points) > 0 && (numbers === 2 || numbers === 3) && !more;
  if (!isShape) throw refusal(`${file}: kpt_shape must be [key points, 2 or 3]`);
  return Number(points) * Number(numbers);
}

function checkClasses(classes: readonly string[]) {
  if (classes.length > CLASSES_MAX) throw refusal(`over ${CLASSES_MAX} classes`);
  const wrong = classes.find((one) => !ClassName.safeParse(one).success);
  if (wrong !== undefined) {
    throw refusal(`a class is called ${JSON.stringify(wrong.slice(0, 50))}, which is no name`);
  }
}
