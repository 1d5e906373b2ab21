// The loss of pre-training: how far maps are from another network's features of the same images.
//
// Each cell's features count by their direction alone: 1 - cosine, a mean over the cells of a level
// that have a target, and over levels. A cell whose target is all 0 has none: it is outside of the
// image.
#pragma once
#include <vector>

#include <ATen/ATen.h>

namespace vantage {

/** `maps` and `targets` by level: [B, channels, H, W]. A scalar. */
at::Tensor featureLoss(const std::vector<at::Tensor>& maps, const std::vector<at::Tensor>& targets);

}  // namespace vantage
