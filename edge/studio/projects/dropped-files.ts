// Files that were dropped, out of folders too, each with its path below what was dropped.

import type { ChosenFile } from "./uploads.ts";

/** Names of files that systems put beside others. */
const isHidden = (name: string) => name.startsWith(".") || name === "Thumbs.db";

/** The files of a drop, in the order of their paths. */
export async function droppedFiles(transfer: DataTransfer): Promise<ChosenFile[]> {
  // Entries are there during the event alone, so they are taken before anything is waited for.
  const entries = [...transfer.items].flatMap((item) => item.webkitGetAsEntry() ?? []);
  const found = (await Promise.all(entries.map((entry) => filesOf(entry)))).flat();
  return found.toSorted((one, other) =>
    one.name.localeCompare(other.name, "en", { numeric: true }),
  );
}

async function filesOf(entry: FileSystemEntry): Promise<ChosenFile[]> {
  if (isHidden(entry.name)) return [];
  const name = entry.fullPath.replace(/^\//, "");
  if (entry instanceof FileSystemFileEntry) {
    const file = await new Promise<File>((resolve, reject) => entry.file(resolve, reject));
    return [{ file, name }];
  }
  if (!(entry instanceof FileSystemDirectoryEntry)) return [];
  const reader = entry.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    // A reader gives a hundred at a time.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0) break;
    all.push(...some);
  }
  return (await Promise.all(all.map((one) => filesOf(one)))).flat();
}

/** The files of a file input; those of a chosen folder with their paths. */
export const chosenFiles = (list: FileList): ChosenFile[] =>
  [...list]
    .filter(({ name }) => !isHidden(name))
    .map((file) => ({ file, name: file.webkitRelativePath || file.name }));
