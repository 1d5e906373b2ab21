// Where backups lie: a folder, or a bucket over S3. Files have names with slashes in them.

import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { S3Client } from "@aws-sdk/client-s3";
import { UsageError } from "../command-line.ts";
import { S3Bucket } from "./s3-bucket.ts";

/** A place that keeps files. One that is written appears whole or not at all. */
export interface Place {
  /** The names of all files under a folder, which ends with a slash. */
  list(folder: string): Promise<string[]>;
  /** Fails where there is no such file. */
  read(name: string): Promise<Readable>;
  write(name: string, body: Readable | string): Promise<void>;
  delete(names: readonly string[]): Promise<void>;
}

/**
 * The place that an address names: `s3://bucket/prefix`, whose endpoint and credentials the AWS SDK
 * finds as it always does (`AWS_ENDPOINT_URL_S3`, `AWS_ACCESS_KEY_ID` and so on), or a folder.
 */
export function placeAt(address: string): Place {
  const [, bucket, prefix = ""] = /^s3:\/\/([^/]+)\/?(.*)$/.exec(address) ?? [];
  if (bucket === undefined) {
    if (/^\w+:\/\//.test(address)) throw new UsageError(`${address} is no folder and no s3://…`);
    return folderAt(resolve(address));
  }
  const client = new S3Client({ forcePathStyle: true });
  return placeIn(new S3Bucket(client, bucket, prefix && `${prefix.replace(/\/+$/, "")}/`));
}

const placeIn = (bucket: S3Bucket): Place => ({
  list: async (folder) => {
    const names: string[] = [];
    for await (const page of bucket.pages(folder)) names.push(...page.map(({ key }) => key));
    return names;
  },
  read: async (name) => {
    const found = await bucket.read(name);
    if (!found) throw new Error(`the backup lacks ${name}`);
    return found.body;
  },
  write: (name, body) => bucket.write(name, body),
  delete: (names) => bucket.delete(names),
});

function folderAt(root: string): Place {
  const at = (name: string) => join(root, name);
  return {
    list: async (folder) => {
      const found = await readdir(at(folder), { recursive: true, withFileTypes: true }).catch(
        (thrown: { code?: string }) => {
          if (thrown.code === "ENOENT") return [];
          throw thrown;
        },
      );
      return found
        .filter((entry) => entry.isFile() && !entry.name.endsWith(".part"))
        .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1));
    },
    read: async (name) => {
      const known = await stat(at(name)).catch(() => null);
      if (!known) throw new Error(`the backup lacks ${name}`);
      return createReadStream(at(name));
    },
    write: async (name, body) => {
      await mkdir(dirname(at(name)), { recursive: true, mode: 0o700 });
      const source = typeof body === "string" ? Readable.from([body]) : body;
      await pipeline(source, createWriteStream(`${at(name)}.part`, { mode: 0o600, flush: true }));
      await rename(`${at(name)}.part`, at(name));
    },
    delete: async (names) => {
      for (const name of names) await rm(at(name), { force: true });
    },
  };
}
