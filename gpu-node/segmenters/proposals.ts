// Finds what the embedded detector sees as it sees given examples: every box that it proposes, of
// whatever class, is compared with an example's by all of its class scores together. So a fox is
// found by a fox although no class is called that. What it does not know is not learnt here.

import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import {
  bestBoxes,
  type Proposal,
  readProposals,
  type ScoredBox,
  type Scores,
} from "./centernet.ts";

/** A box that overlaps an example less is of something else. */
const COVERS_IOU = 0.5;
/**
 * The detector knows an object when one class has most of its scores there and the box fits. At
 * this much it knows nine of ten animals of COCO's kinds and one of forty blood cells, which it
 * takes for cakes; such cells must be left to the search by likeness (see the README).
 */
const KNOWN_MIN = 0.15;
/** Keeps a box with nothing but faint scores from having a favourite. */
const FAINT = 0.1;

/** Square roots of the classes' shares in what the detector sees in a box. */
export type Profile = Float32Array;

/**
 * What the detector sees in the examples that it knows; null where it does not know them well
 * enough together, so that no box that is taken for something else decides for the others.
 */
export function profilesOf(
  examples: readonly { scores: Scores; bbox: Bbox }[],
): readonly Profile[] | null {
  const seen = examples.map(({ scores, bbox }) => bestSeen(scores, bbox));
  const mean = seen.reduce((total, { known }) => total + known, 0) / seen.length;
  if (mean < KNOWN_MIN) return null;
  return seen.flatMap(({ proposal, known }) =>
    proposal && known >= KNOWN_MIN ? [profile(proposal)] : [],
  );
}

/** The box that is best known of those on an example, and how well: 0 to 1. */
function bestSeen(scores: Scores, bbox: Bbox): { proposal: Proposal | null; known: number } {
  let best: { proposal: Proposal | null; known: number } = { proposal: null, known: 0 };
  for (const proposal of readProposals(scores)) {
    const overlap = iou(proposal.bbox, bbox);
    if (overlap < COVERS_IOU) continue;
    const share = strongest(proposal) / (sum(proposal.classes) + FAINT);
    const known = share * overlap ** 2;
    if (known > best.known) best = { proposal, known };
  }
  return best;
}

/**
 * Boxes that the detector sees as it sees one of the examples, most confident first. The confidence
 * is the square root of a box's strongest score, so that the detector's balanced cut of 0.25
 * becomes 0.5, times the third power of its profile's likeness (Bhattacharyya's coefficient).
 */
export function findSimilar(
  scores: Scores,
  examples: readonly Profile[],
  confidenceMin: number,
): ScoredBox[] {
  const found: ScoredBox[] = [];
  for (const proposal of readProposals(scores)) {
    const seen = profile(proposal);
    const likeness = Math.max(...examples.map((example) => product(example, seen)));
    const confidence = Math.min(1, likeness) ** 3 * Math.sqrt(strongest(proposal));
    if (confidence >= confidenceMin) found.push({ bbox: proposal.bbox, confidence });
  }
  return bestBoxes(found);
}

function profile({ classes }: Proposal): Profile {
  const total = sum(classes);
  return classes.map((score) => Math.sqrt(score / total));
}

const sum = (values: Float32Array): number => values.reduce((total, value) => total + value, 0);
const strongest = ({ classes }: Proposal): number => Math.max(...classes);
const product = (a: Profile, b: Profile): number =>
  a.reduce((total, value, index) => total + value * (b[index] as number), 0);
