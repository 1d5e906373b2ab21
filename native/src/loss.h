// Targets and losses of facts 1.5. Everything in fp32, whatever the network runs in.
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
  /** Anchors an object in the first choice, and after conflicts are resolved. */
  int first = 10, last = 10;
};
constexpr AssignerSettings kManyAnchors{10, 10}, kOneAnchor{7, 1};

/**
 * Loss of a branch. `truths`: [B, M, 5] = class, x1, y1, x2, y2 in pixels on the maps' device;
 * class −1 is padding. `imageSize`: width and height of the input in pixels.
 */
BranchLoss branchLoss(const BranchMaps& maps, const at::Tensor& truths, AssignerSettings assigner,
                      const TrainingSettings& settings);

/** ProgLoss: `share` of the one-to-many branch, the rest of the one-to-one. */
struct TotalLoss {
  at::Tensor total;
  BranchLoss o2m, o2o;
};
TotalLoss totalLoss(const NetworkMaps& maps, const at::Tensor& truths, double o2mShare,
                    const TrainingSettings& settings);

/** The one-to-many branch's share in an epoch: linear from 0.8 to 0.1. */
double o2mShareAt(int epoch, int epochs);

}  // namespace vantage
