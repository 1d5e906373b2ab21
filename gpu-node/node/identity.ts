// The node's folder: who it is to the service, and the lock that keeps two supervisors apart.

import * as fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { Secret } from "../../shared/secret.ts";
import { lives, ownName } from "../base/processes.ts";

const Identity = z.object({ url: z.string(), node_id: z.string(), token: z.string() });

export interface Identity {
  nodeId: string;
  token: Secret;
}

const fileOf = (dir: string) => join(dir, "identity.json");

/** The identity that this folder has at a service, or null. */
export function readIdentity(dir: string, url: string): Identity | null {
  try {
    const kept = Identity.parse(JSON.parse(fs.readFileSync(fileOf(dir), "utf8")));
    return kept.url === url ? { nodeId: kept.node_id, token: new Secret(kept.token) } : null;
  } catch (thrown) {
    if ((thrown as { code?: string }).code === "ENOENT") return null;
    throw new Error(`${fileOf(dir)} is not whole: delete it and register with a new code`);
  }
}

/** Keeps the identity, readable by this user alone, whole or not at all. */
export function writeIdentity(dir: string, url: string, { nodeId, token }: Identity) {
  const path = fileOf(dir);
  const text = JSON.stringify({ url, node_id: nodeId, token: token.reveal() });
  fs.writeFileSync(`${path}.new`, text, { mode: 0o600 });
  fs.renameSync(`${path}.new`, path);
}

/** Creates the folder and takes its lock; returns the way to give it back. */
export function lockFolder(dir: string): () => void {
  fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  const file = join(dir, "lock");
  for (;;) {
    try {
      fs.writeFileSync(file, ownName(), { flag: "wx", mode: 0o600 });
      return () => fs.rmSync(file, { force: true });
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== "EEXIST") throw thrown;
    }
    const holder = fs.readFileSync(file, "utf8");
    if (lives(holder)) {
      const pid = holder.split("-")[0];
      throw new Error(
        `a node (pid ${pid}) already runs on ${dir}; another one needs its own VANTAGE_NODE_DIR`,
      );
    }
    fs.rmSync(file, { force: true });
  }
}
