// Batch norm by the batch's statistics with what comes after it, as one operation of autograd: on a
// GPU by our kernel, on a CPU by its twin.
#pragma once
#include <ATen/ATen.h>

#include "group-norm.h"
#include "norm-silu.h"

namespace vantage {

/** Whether the operation takes maps of that device and type; a GPU's kernels have SiLU alone. */
bool canFuseNorm(const at::Tensor& map, Activation activation);

/**
 * As `activation(batch_norm(map))`, in the map's type, the channels of a pixel side by side.
 * `tensors.mean` and `tensors.variance` move towards the batch's where they are defined.
 */
at::Tensor fusedNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates,
                     Activation activation);

}  // namespace vantage
