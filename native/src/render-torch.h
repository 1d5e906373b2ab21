// Rendering plans by torch's operations, on any device: for a GPU where our kernel is not built.
#pragma once
#include <vector>

#include <ATen/ATen.h>

#include "sample.h"

namespace vantage {

/**
 * The images of plans, [plans, 3, size, size] of RGB in 0 to 1, on the device of `file`: the bytes
 * that the plans read. Coordinates are rounded as `sample.h` rounds them, colours to a few units in
 * the last place.
 */
at::Tensor renderTorch(const at::Tensor& file, const std::vector<Plan>& plans, int size);

}  // namespace vantage
