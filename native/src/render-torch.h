// Rendering plans by torch's operations, on any device: for a GPU where our kernel is not built.
#pragma once
#include <vector>

#include <ATen/ATen.h>

#include "sample.h"

namespace vantage {

/** What plans read, on one device. */
struct PlanBytes {
  /** Bytes of the images. */
  at::Tensor file;
  /** Stencils, [plans, stencilBytes]; undefined where no plan pastes. */
  at::Tensor stencils;
};

/**
 * The images of plans, [plans, 3, size, size] of RGB in 0 to 1, on the device of the bytes that
 * they read. Coordinates are rounded as `sample.h` rounds them, colours to a few units in
 * the last place.
 */
at::Tensor renderTorch(const PlanBytes& from, const std::vector<Plan>& plans, int size);

}  // namespace vantage
