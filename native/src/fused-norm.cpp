// What backward keeps is the map and two numbers a channel. Sums of slopes are made in blocks,
// which torch adds up: no atomic addition, so that they are the same every time.
#include "fused-norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "device.h"
#include "error.h"
#include "norm-silu.h"

namespace vantage {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/** Channels side by side. */
at::Tensor laid(const at::Tensor& map) { return map.contiguous(at::MemoryFormat::ChannelsLast); }

[[maybe_unused]] void check(int failed) {
  if (failed)
    throw EngineError("internal", "batch norm failed: CUDA error " + std::to_string(failed));
}

NormMap viewOf(const at::Tensor& map, const at::Tensor& weight, const at::Tensor& bias,
               const at::Tensor& mean, const at::Tensor& factor) {
  NormMap view;
  view.element = map.scalar_type() == at::kBFloat16 ? NormElement::bf16 : NormElement::fp32;
  view.channels = static_cast<int>(map.size(1));
  view.cells = map.numel() / std::max<int64_t>(map.size(1), 1);
  view.values = map.data_ptr();
  view.weight = weight.data_ptr<float>();
  view.bias = bias.data_ptr<float>();
  view.mean = mean.data_ptr<float>();
  view.factor = factor.data_ptr<float>();
  return view;
}

at::Tensor forwardOf(const NormMap& map, const at::Tensor& like) {
  const auto result = at::empty_like(like);
#ifdef VANTAGE_CUDA
  if (like.is_cuda()) {
    check(normSiluCuda(map, result.data_ptr(), currentStream(like.device())));
    return result;
  }
#endif
  normSiluCpu(map, result.data_ptr());
  return result;
}

/** Sums over all cells, [2, channels]. */
at::Tensor sumsOf(const NormMap& map, const at::Tensor& slopes) {
  const auto sums =
      at::empty({normBlocks(map.cells), 2, map.channels}, slopes.options().dtype(at::kFloat));
#ifdef VANTAGE_CUDA
  if (slopes.is_cuda()) {
    check(normSumsCuda(map, slopes.data_ptr(), sums.data_ptr<float>(),
                       currentStream(slopes.device())));
    return sums.sum(0);
  }
#endif
  normSumsCpu(map, slopes.data_ptr(), sums.data_ptr<float>());
  return sums.sum(0);
}

at::Tensor slopesOf(const NormMap& map, const at::Tensor& slopes, const at::Tensor& means) {
  const auto result = at::empty_like(slopes);
#ifdef VANTAGE_CUDA
  if (slopes.is_cuda()) {
    check(normSlopesCuda(map, slopes.data_ptr(), means.data_ptr<float>(), result.data_ptr(),
                         currentStream(slopes.device())));
    return result;
  }
#endif
  normSlopesCpu(map, slopes.data_ptr(), means.data_ptr<float>(), result.data_ptr());
  return result;
}

class FusedNorm : public torch::autograd::Function<FusedNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const NormTensors& tensors, const NormRates& rates) {
    const auto map = laid(given);
    // Statistics as torch's batch norm makes and keeps them.
    const auto [mean, variance] =
        at::batch_norm_update_stats(map, tensors.mean, tensors.variance, rates.momentum);
    const auto factor = (variance.to(at::kFloat) + rates.epsilon).rsqrt();
    const auto middle = mean.to(at::kFloat);
    context->save_for_backward({map, weight, bias, middle, factor});
    return forwardOf(viewOf(map, weight, bias, middle, factor), map);
  }

  static variable_list backward(AutogradContext* context, variable_list slopes) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& map = saved[0];
    const NormMap view = viewOf(map, saved[1], saved[2], saved[3], saved[4]);
    const auto slope = laid(slopes[0].to(map.scalar_type()));
    const auto sums = sumsOf(view, slope);
    const auto ofMap = slopesOf(view, slope, sums / static_cast<double>(view.cells));
    return {ofMap, sums[1], sums[0], {}, {}};
  }
};

}  // namespace

bool canFuseNorm(const at::Tensor& map) {
#ifndef VANTAGE_CUDA
  if (map.is_cuda()) return false;
#endif
  const auto type = map.scalar_type();
  return type == at::kFloat || type == at::kBFloat16;
}

at::Tensor fusedNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates) {
  return FusedNorm::apply(map, tensors.weight, tensors.bias, tensors, rates);
}

}  // namespace vantage
