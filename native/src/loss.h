// Targets and losses. Everything in fp32, whatever the network runs in, and without a wait for the
// device: shapes depend on the batch's shapes alone.
//
// Conventions, where the literature leaves a choice:
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
#include <vector>

#include <ATen/ATen.h>

#include "group.h"
#include "network.h"
#include "settings.h"

namespace vantage {

/** What a batch's images show, on the maps' device. */
struct Labels {
  /** [B, M, 5] = class, x1, y1, x2, y2 in pixels; class −1 is padding; M is at least 1. */
  at::Tensor truths;
  /**
   * Masks (mask-loss.h) of all objects, image after image, [N, H / 4, W / 32] bytes; undefined for
   * detection.
   */
  at::Tensor masks;
  /**
   * Objects of each image, known to the host: of one with a thousand the others cost no more. Their
   * boxes alone are padded.
   */
  std::vector<int64_t> counts;
  /** Processes that have the batch's other images; null where these are all. */
  const Group* group = nullptr;

  /** Images of the whole batch. */
  int64_t images() const { return group ? group->part.images : truths.size(0); }
  /** Sum over the whole batch, of which `own` is this process's part; no gradient passes. */
  at::Tensor sum(const at::Tensor& own) const {
    return group ? group->sum(own * group->part.weight) : own;
  }
};

/**
 * Scalars with autograd's graph. `total` is minimised: the weighted sum times the batch size.
 * `mask` is undefined for detection.
 */
struct BranchLoss {
  at::Tensor total, box, cls, dfl, mask;
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

/** Targets of anchors: each anchor learns at most one object. */
struct Targets {
  /** [B, A]: target score, 0 of an anchor without an object; and index of the object in `truths`.
   */
  at::Tensor score, object;
};

/** What a branch predicts at every anchor, anchors level by level. */
struct AnchorPredictions {
  /** [B, 4, A]: corners in pixels. */
  at::Tensor boxes;
  /** [B, classes, A]. */
  at::Tensor logits;
  /** [2, A]: centres of the anchors in pixels. */
  at::Tensor centres;
};

/** Targets of a branch by the truths and counts of `labels`. */
Targets assign(const AnchorPredictions& predictions, const Labels& labels,
               AssignerSettings settings);

/** Centres of an input's anchors in pixels, level by level: [2, A]. */
at::Tensor anchorCentres(int64_t height, int64_t width, const at::Device& device);

/** A branch, and how its targets are chosen. */
struct BranchTask {
  const BranchMaps& maps;
  /** What its masks are sums of; undefined for detection. */
  at::Tensor prototypes;
  AssignerSettings assigner;
};

BranchLoss branchLoss(const BranchTask& task, const Labels& labels,
                      const TrainingSettings& settings);

/**
 * ProgLoss: `o2mShare` of the one-to-many branch's loss plus the rest of the one-to-one branch's,
 * which trains itself alone: prototypes and the semantic map learn from the one-to-many side. A
 * graph without the one-to-many branch learns from the other alone.
 */
struct TotalLoss {
  at::Tensor total;
  BranchLoss o2m, o2o;
  /** Undefined for detection. */
  at::Tensor semantic;
};
TotalLoss totalLoss(const NetworkMaps& maps, const Labels& labels, double o2mShare,
                    const TrainingSettings& settings);

/** The one-to-many branch's share in an epoch: linear from 0.8 to 0.1. */
double o2mShareAt(int epoch, int epochs);

}  // namespace vantage
