// Batch norm by the statistics of a whole batch that several processes have.
#pragma once
#include <ATen/ATen.h>

#include "group.h"

namespace vantage {

/** Tensors of a batch norm: what it learns, and the statistics that it keeps. */
struct NormTensors {
  at::Tensor weight, bias, mean, variance;
};

struct NormRates {
  double momentum, epsilon;
};

/** `map` normalised; the kept statistics move towards the batch's, as torch's batch norm has it. */
at::Tensor groupNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates,
                     const Group& group);

}  // namespace vantage
