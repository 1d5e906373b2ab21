// Losses of masks. Conventions, where the literature leaves a choice:
//
// - A mask is bits at a cell of kMaskStride pixels, of the whole image; an object none of whose
// bits
//   is set has no mask, and teaches no mask.
// - A cell counts where its centre lies in the object's box, the right and bottom side exclusive.
// An
//   object's loss is divided by its box's area in cells, at least 1, and the mean is over
//   positives.
// - A positive is an anchor whose target score is above 1e-6: below it single precision decides.
// - A cell of the semantic map is of a class where any of its four cells is in a mask of the class.
//   An image of which an object has no mask says nothing of it.
// - The semantic loss is half cross entropy and half Dice, whose eps is 1, means over classes.
#pragma once
#include <vector>

#include <ATen/ATen.h>

#include "loss.h"

namespace vantage {

/** Masks that a branch predicts at its positives, as what they learn. */
struct MaskTask {
  /** Weights of the prototypes by level, [B, 32, H, W]. */
  const std::vector<at::Tensor>& weights;
  /** [B, 32, h, w]. */
  const at::Tensor& prototypes;
  const Targets& targets;
  /** No image has more positives for each of its objects. */
  int positivesMax;
};

/** A scalar with autograd's graph, as of every positive; 0 where no object has a mask. */
at::Tensor maskLoss(const MaskTask& task, const Labels& labels);

/** A scalar with autograd's graph. `logits`: [B, classes, h / 2, w / 2]. */
at::Tensor semanticLoss(const at::Tensor& logits, const Labels& labels);

}  // namespace vantage
