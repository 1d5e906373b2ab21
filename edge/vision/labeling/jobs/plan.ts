// How a job becomes tasks: which frames of which video one node labels at a time. Pure.

/** Frames of one task: half a minute of a slow segmenter, so a lost node costs little. */
const CHUNK_FRAMES = 32;

export interface Chunk {
  videoId: string;
  frames: number[];
}

/** Cuts the frames of each video into chunks, in order. */
export function cutIntoChunks(
  videos: readonly { videoId: string; frames: readonly number[] }[],
  size = CHUNK_FRAMES,
): Chunk[] {
  return videos.flatMap(({ videoId, frames }) => {
    const chunks: Chunk[] = [];
    for (let from = 0; from < frames.length; from += size) {
      chunks.push({ videoId, frames: frames.slice(from, from + size) });
    }
    return chunks;
  });
}

/** Seconds left at the rate so far; null while nothing is known of it. */
export function etaSeconds(
  { framesDone, framesTotal }: { framesDone: number; framesTotal: number },
  elapsedMs: number,
): number | null {
  if (framesDone <= 0 || elapsedMs <= 0) return null;
  return Math.round(((framesTotal - framesDone) * elapsedMs) / framesDone / 1_000);
}

/**
 * A name that follows from what it stands for, in the form of a UUID (version 8: by SHA-256), so
 * that work done twice is stored once.
 */
export async function derivedId(...parts: readonly (string | number)[]): Promise<string> {
  const text = new TextEncoder().encode(parts.join("\n"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  digest[6] = ((digest[6] as number) & 0x0f) | 0x80;
  digest[8] = ((digest[8] as number) & 0x3f) | 0x80;
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
