// The object store's S3 endpoint: the same objects as the Workers' binding, for who holds the key.

import {
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { beforeAll, describe, expect, it } from "vitest";
import { IDENTITY_KEY } from "../../edge/http/bucket-identity.ts";
import { createWorld, type World } from "../support/world.ts";

const Bucket = "vantage-markets";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

const client = (secretAccessKey: string) =>
  new S3Client({
    endpoint: world.s3Url,
    region: "auto",
    forcePathStyle: true,
    credentials: { accessKeyId: "test", secretAccessKey },
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  });

describe("the S3 endpoint", () => {
  it("shares its objects with the binding, both ways", async () => {
    const s3 = client("test");
    await s3.send(new PutObjectCommand({ Bucket, Key: "by-s3", Body: "over HTTP" }));
    expect(await (await world.bucket.get("by-s3"))?.text()).toBe("over HTTP");
    await world.bucket.put("by-binding", "inside");
    const read = await s3.send(new GetObjectCommand({ Bucket, Key: "by-binding" }));
    expect(await read.Body?.transformToString()).toBe("inside");
    const { Contents } = await s3.send(new ListObjectsV2Command({ Bucket }));
    expect(Contents?.map((object) => object.Key)).toEqual(["by-binding", "by-s3", IDENTITY_KEY]);
  });

  it("refuses a wrong secret", async () => {
    const forged = client("wrong").send(new GetObjectCommand({ Bucket, Key: "by-s3" }));
    await expect(forged).rejects.toMatchObject({ $metadata: { httpStatusCode: 403 } });
  });
});
