// Targets and losses of facts 1.5. Everything in fp32, whatever the network runs in, and without a
// wait for the device: shapes depend on the batch's shapes alone.
//
// Where the facts leave a choice, this one was made:
// - Boxes are pixels of the input; predicted distances are not clamped. In CIoU sides below 0 count
//   as 0, eps is 1e-7, and the weight of the aspect term passes no gradient.
// - An anchor is inside where its centre is more than 1e-9 from every side of the box. For this
//   test a side below 8 px counts as 16 px around the same centre.
// - The IoU of assignment is CIoU, 0 where negative or outside. An object claims its first anchors
//   by metric, never one of metric 0; of equal ones the lower anchor. So an object may have none.
// - An anchor goes to the claiming object of the largest IoU; of equal ones the lower object.
// - Both maxima of a target are over the object's anchors that are left after conflicts; the
//   division's eps is 1e-9.
#pragma once
#include <ATen/ATen.h>

#include "network.h"
#include "settings.h"

namespace vantage {

/** Scalars with a graph behind them. `total` is what is minimised: it is times the batch. */
struct BranchLoss {
  at::Tensor total, box, cls, dfl;
};

struct AssignerSettings {
  /** Anchors an object claims, and how many of them it keeps after conflicts are resolved. */
  int first = 10, last = 10;
};
constexpr AssignerSettings kManyAnchors{10, 10}, kOneAnchor{7, 1};

/** Corners as planes that broadcast, in pixels. */
struct Corners {
  at::Tensor x1, y1, x2, y2;
};

/** Complete IoU of predicted and true boxes; below 0 where they are far from each other. */
at::Tensor completeIou(const Corners& predicted, const Corners& truth);

/** What anchors learn: each of at most one object. */
struct Targets {
  /** [B, A]: target score, 0 of an anchor without an object; and place of the object in `truths`.
   */
  at::Tensor score, object;
};

/**
 * Targets of a branch. `boxes`: [B, 4, A] corners in pixels; `logits`: [B, classes, A]; `centres`:
 * [2, A]. `truths`: [B, M, 5] = class, x1, y1, x2, y2 in pixels; class −1 is padding.
 */
Targets assign(const at::Tensor& boxes, const at::Tensor& logits, const at::Tensor& centres,
               const at::Tensor& truths, AssignerSettings settings);

/** Centres of an input's anchors in pixels, level by level: [2, A]. */
at::Tensor anchorCentres(int64_t height, int64_t width, const at::Device& device);

/** Loss of a branch; `truths` as for `assign`, on the maps' device. */
BranchLoss branchLoss(const BranchMaps& maps, const at::Tensor& truths, AssignerSettings assigner,
                      const TrainingSettings& settings);

/**
 * ProgLoss: `share` of the one-to-many branch, the rest of the one-to-one. A graph without the
 * former learns from the latter alone.
 */
struct TotalLoss {
  at::Tensor total;
  BranchLoss o2m, o2o;
};
TotalLoss totalLoss(const NetworkMaps& maps, const at::Tensor& truths, double o2mShare,
                    const TrainingSettings& settings);

/** The one-to-many branch's share in an epoch: linear from 0.8 to 0.1. */
double o2mShareAt(int epoch, int epochs);

}  // namespace vantage
