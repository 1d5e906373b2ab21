// Batch norm by the batch's statistics with SiLU after it, as one operation of autograd: on a GPU
// by our kernel, on a CPU by its twin, which only tests use.
#pragma once
#include <ATen/ATen.h>

#include "group-norm.h"

namespace vantage {

/** Whether the operation takes maps of that device and type; on a GPU our kernels do it. */
bool canFuseNorm(const at::Tensor& map);

/**
 * As `silu(batch_norm(map))`, in the map's type. `tensors.mean` and `tensors.variance` move towards
 * the batch's where they are defined.
 */
at::Tensor fusedNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates);

}  // namespace vantage
