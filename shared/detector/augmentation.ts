// How far images are changed in training: the knobs of an augmentation, on the wire and as the
// engine takes them, and the named sets of their values.

import { z } from "zod";

export const AUGMENTATIONS = ["minimal", "standard", "aggressive"] as const;

/** How far images are changed; the engine takes these values as they are. */
interface AugmentationPreset {
  mosaic: number;
  mixup: number;
  flipLeftRight: number;
  flipUpDown: number;
  scale: number;
  translate: number;
  rotate: number;
  shear: number;
  hsv: [number, number, number];
  copyPaste: number;
  closeMosaic: number;
}

export const AUGMENTATION_PRESETS = {
  minimal: {
    mosaic: 0,
    mixup: 0,
    flipLeftRight: 0.5,
    flipUpDown: 0,
    scale: 0.25,
    translate: 0.05,
    rotate: 0,
    shear: 0,
    hsv: [0.01, 0.3, 0.2],
    copyPaste: 0,
    closeMosaic: 0,
  },
  standard: {
    mosaic: 1,
    mixup: 0,
    flipLeftRight: 0.5,
    flipUpDown: 0,
    scale: 0.5,
    translate: 0.1,
    rotate: 0,
    shear: 0,
    hsv: [0.015, 0.7, 0.4],
    copyPaste: 0,
    closeMosaic: 10,
  },
  aggressive: {
    mosaic: 1,
    mixup: 0.15,
    flipLeftRight: 0.5,
    flipUpDown: 0,
    scale: 0.9,
    translate: 0.2,
    rotate: 10,
    shear: 2,
    hsv: [0.02, 0.8, 0.5],
    copyPaste: 0,
    closeMosaic: 15,
  },
} satisfies Record<(typeof AUGMENTATIONS)[number], AugmentationPreset>;

/** As many epochs as a run may have. */
const CLOSING_MAX = 10_000;

const share = (description: string) => z.number().min(0).max(1).meta({ description });
const degrees = (description: string, max: number) =>
  z.number().min(0).max(max).meta({ description });

/** How far images are changed, as the wire has it: the knobs of an augmentation. */
export const AugmentationKnobs = z.object({
  mosaic: share("probability that four images are laid together"),
  mixup: share("probability that another image shines through"),
  flip_left_right: share("probability of being mirrored"),
  flip_up_down: share("probability of being turned upside down"),
  scale: z.number().min(0).max(0.95).meta({ description: "factor 1 ±" }),
  translate: share("shift ± of the side"),
  rotate: degrees("degrees ±", 180),
  shear: degrees("degrees ±", 89),
  hsv: z
    .array(z.number().min(0).max(1))
    .min(3)
    .max(3)
    .meta({ description: "hue: turns ±; saturation, value: factors 1 ±" }),
  copy_paste: share(
    "probability that objects with outlines of another image are pasted over the image's own: " +
      "those that they hide are cut, or left out where a tenth or less is still seen",
  ),
  close_mosaic: z
    .number()
    .int()
    .min(0)
    .max(CLOSING_MAX)
    .meta({ description: "last epochs without mosaic, mixup and copy_paste" }),
});
export type AugmentationKnobs = z.infer<typeof AugmentationKnobs>;
