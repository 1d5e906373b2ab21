// A bucket over S3 with the verbs of a Worker's binding, for commands that run on Node.

import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import {
  DeleteObjectsCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  type S3Client,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import type { R2Bucket } from "@cloudflare/workers-types";

/** An object of a listing; `size` in bytes. */
export interface ListedObject {
  key: string;
  size: number;
  etag: string;
  uploaded: Date;
}

/** A bucket, or the part of one under a prefix, which keys then do without. */
export class S3Bucket {
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #prefix: string;

  constructor(client: S3Client, bucket: string, prefix = "") {
    this.#client = client;
    this.#bucket = bucket;
    this.#prefix = prefix;
  }

  async list({ prefix = "", cursor }: { prefix?: string; cursor?: string } = {}) {
    const listed = await this.#client.send(
      new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: this.#prefix + prefix,
        ...(cursor ? { ContinuationToken: cursor } : {}),
      }),
    );
    const objects = (listed.Contents ?? []).map(
      ({ Key = "", Size = 0, ETag = "", LastModified = new Date(0) }): ListedObject => ({
        key: Key.slice(this.#prefix.length),
        size: Size,
        etag: ETag,
        uploaded: LastModified,
      }),
    );
    return { objects, truncated: listed.IsTruncated, cursor: listed.NextContinuationToken };
  }

  /** All objects whose keys begin with a prefix, page by page. */
  async *pages(prefix = ""): AsyncGenerator<ListedObject[]> {
    for (let cursor: string | undefined; ; ) {
      const page = await this.list({ prefix, ...(cursor ? { cursor } : {}) });
      yield page.objects;
      if (!page.truncated) return;
      cursor = page.cursor;
    }
  }

  /** The object's bytes as a stream, with its type; null where it is not there. */
  async read(key: string): Promise<{ body: Readable; type: string | undefined } | null> {
    try {
      const input = { Bucket: this.#bucket, Key: this.#prefix + key };
      const { Body, ContentType } = await this.#client.send(new GetObjectCommand(input));
      return { body: Body as Readable, type: ContentType };
    } catch (thrown) {
      if ((thrown as Error).name === "NoSuchKey") return null;
      throw thrown;
    }
  }

  async write(key: string, body: Readable | string, type?: string): Promise<void> {
    const upload = new Upload({
      client: this.#client,
      params: {
        Bucket: this.#bucket,
        Key: this.#prefix + key,
        Body: body,
        ...(type ? { ContentType: type } : {}),
      },
    });
    await upload.done();
  }

  async delete(keys: readonly string[]): Promise<void> {
    for (let from = 0; from < keys.length; from += 1_000) {
      const Objects = keys.slice(from, from + 1_000).map((key) => ({ Key: this.#prefix + key }));
      const Delete = { Objects, Quiet: true };
      const command = new DeleteObjectsCommand({ Bucket: this.#bucket, Delete });
      const { Errors: [refused] = [] } = await this.#client.send(command);
      if (refused) throw new Error(`${refused.Key} was not deleted: ${refused.Message}`);
    }
  }

  /** The same bucket as what the services work with takes it. */
  asBinding(): Pick<R2Bucket, "get" | "put" | "list" | "delete"> {
    const binding = {
      get: async (key: string) => {
        const found = await this.read(key);
        return found && { text: () => text(found.body) };
      },
      put: (key: string, value: string) => this.write(key, value, "application/json"),
      list: (options: { prefix?: string; cursor?: string }) => this.list(options),
      delete: (keys: string | string[]) => this.delete([keys].flat()),
    };
    // Who takes this reads nothing but the text of objects, and puts nothing but texts.
    return binding as unknown as Pick<R2Bucket, "get" | "put" | "list" | "delete">;
  }
}
