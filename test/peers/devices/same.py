"""Rows of a file beside those of our predictor: x1, y1, x2, y2, score, class, by falling score."""

import numpy as np
from outcomes import expect

#: Pixels, and a score in 0 to 1: of a file in single precision.
BOX, SCORE = 1e-3, 1e-5
#: An object is the same at this IoU; what lies at the cut may fall to either side of it.
IOU, CUT, NEAR = 0.9, 0.25, 0.02


def same_rows(found, wanted):
    """Every row that is clear of the last has its equal, whatever the order of near-ties."""
    found, wanted = found[:, :6], wanted[:, :6]
    expect(found.shape == wanted.shape, f"{found.shape} instead of {wanted.shape}")
    worst, compared = 0.0, 0
    for row in wanted[wanted[:, 4] > wanted[-1, 4] + 2 * SCORE]:
        same = found[(found[:, 5] == row[5]) & (np.abs(found[:, 4] - row[4]) <= 2 * SCORE)]
        expect(len(same), f"none like {row}")
        worst = max(worst, float(np.abs(same[:, :4] - row[:4]).max(1).min()))
        compared += 1
    expect(worst <= BOX, f"boxes differ by {worst} pixels")
    expect(compared > 0, "nothing to compare")
    return f"{compared} rows, boxes within {worst:.1e} pixels"


def iou(rows, row):
    """Of one box with many."""
    near, far = np.maximum(rows[:, :2], row[:2]), np.minimum(rows[:, 2:4], row[2:4])
    shared = np.prod(np.clip(far - near, 0, None), 1)
    area = np.prod(row[2:4] - row[:2]) + np.prod(rows[:, 2:4] - rows[:, :2], 1)
    return shared / (area - shared)


def objects_again(found, wanted, share=1.0):
    """So large a share of the objects has one of its class over the same area."""
    sure = wanted[wanted[:, 4] >= CUT + NEAR]
    again = sum(
        bool((iou(found[(found[:, 5] == row[5]) & (found[:, 4] >= 0.8 * CUT)], row) >= IOU).any())
        for row in sure
    )
    expect(len(sure) > 0, "nothing to compare")
    expect(again >= share * len(sure), f"{again} of {len(sure)} objects")
    return f"{again} of {len(sure)} objects"
