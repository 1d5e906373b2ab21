// What backward keeps is the map and two numbers a channel. Sums are made in blocks, which are
// added up in their order: whatever the threads, and without atomic additions, they are the same.
#include "fused-norm.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "device.h"
#include "error.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(_OPENMP)
#error "without -fopenmp at::parallel_for is a loop of one thread"
#endif

namespace vantage {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/** Channels side by side. */
at::Tensor laid(const at::Tensor& map) { return map.contiguous(at::MemoryFormat::ChannelsLast); }

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/** Values of a thread at least: fewer are made sooner than handed over. */
constexpr int64_t kThreadValues = 32768;

/** Calls with some blocks of a map on each thread. */
template <typename Body>
void eachBlocks(const NormMap& map, Body body) {
  const int64_t least = kThreadValues / (kNormCells * map.channels) + 1;
  at::parallel_for(0, normBlocks(map.cells), least,
                   [&](int64_t from, int64_t to) { body(NormBlocks{from, to}); });
}

[[maybe_unused]] void check(int failed) {
  if (failed)
    throw EngineError("internal", "batch norm failed: CUDA error " + std::to_string(failed));
}

/** A map without the numbers of its channels. */
NormMap viewOf(const at::Tensor& map, Activation activation) {
  NormMap view;
  view.element = map.scalar_type() == at::kBFloat16 ? NormElement::bf16 : NormElement::fp32;
  view.activation = activation;
  view.channels = static_cast<int>(map.size(1));
  view.cells = map.numel() / std::max<int64_t>(map.size(1), 1);
  view.values = map.data_ptr();
  return view;
}

NormMap viewOf(const at::Tensor& map, Activation activation, const at::Tensor& weight,
               const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& factor) {
  NormMap view = viewOf(map, activation);
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
  eachBlocks(map, [&](NormBlocks blocks) { normSiluCpu(map, blocks, result.data_ptr()); });
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
  eachBlocks(map, [&](NormBlocks blocks) {
    normSumsCpu(map, blocks, slopes.data_ptr(), sums.data_ptr<float>());
  });
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
  eachBlocks(map, [&](NormBlocks blocks) {
    normSlopesCpu(map, blocks, slopes.data_ptr(), means.data_ptr<float>(), result.data_ptr());
  });
  return result;
}

struct Statistics {
  /** [channels], fp32; `factor` is that of `NormChannel`. */
  at::Tensor mean, factor;
};

/** The batch's statistics, towards which the kept ones are moved. */
Statistics statisticsOf(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates) {
  if (map.is_cuda()) {
    const auto [mean, variance] =
        at::batch_norm_update_stats(map, tensors.mean, tensors.variance, rates.momentum);
    return {mean.to(at::kFloat), (variance.to(at::kFloat) + rates.epsilon).rsqrt()};
  }
  // Torch adds a channel's cells up one after another in fp32, where channels lie side by side.
  const NormMap view = viewOf(map, Activation::none);
  std::vector<NormMoments> moments(normBlocks(view.cells) * view.channels), all(view.channels);
  eachBlocks(view, [&](NormBlocks blocks) { normMomentsCpu(view, blocks, moments.data()); });
  mergeNormMoments(view, moments.data(), all.data());
  const auto cells = static_cast<double>(view.cells);
  const at::Tensor values = at::empty({3, view.channels}, at::kDouble);
  auto of = values.accessor<double, 2>();
  for (int i = 0; i < view.channels; ++i) {
    of[0][i] = all[i].mean;
    const double variance = all[i].squares / cells;
    // By what is beyond fp32 a map would become one of zeros, and its step would count.
    of[1][i] = std::isfinite(variance) ? 1 / std::sqrt(variance + rates.epsilon) : kNoNumber;
    of[2][i] = all[i].squares / (cells - 1);
  }
  const at::Tensor rounded = values.to(at::kFloat);
  at::Tensor mean = tensors.mean, variance = tensors.variance;
  if (mean.defined()) mean.lerp_(rounded[0], rates.momentum);
  // One cell has none.
  if (variance.defined() && view.cells > 1) variance.lerp_(rounded[2], rates.momentum);
  return {rounded[0], rounded[1]};
}

class FusedNorm : public torch::autograd::Function<FusedNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const NormTensors& tensors, const NormRates& rates,
                            Activation activation) {
    const auto map = laid(given);
    const auto [mean, factor] = statisticsOf(map, tensors, rates);
    context->save_for_backward({map, weight, bias, mean, factor});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    return forwardOf(viewOf(map, activation, weight, bias, mean, factor), map);
  }

  static variable_list backward(AutogradContext* context, variable_list slopes) {
    const auto saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const at::Tensor& map = saved[0];
    const NormMap view = viewOf(map, activation, saved[1], saved[2], saved[3], saved[4]);
    const auto slope = laid(slopes[0].to(map.scalar_type()));
    const auto sums = sumsOf(view, slope);
    const auto ofMap = slopesOf(view, slope, sums / static_cast<double>(view.cells));
    return {ofMap, sums[1], sums[0], {}, {}, {}};
  }
};

}  // namespace

bool canFuseNorm(const at::Tensor& map, Activation activation) {
  const auto type = map.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return false;
#ifndef VANTAGE_CUDA
  if (map.is_cuda()) return false;
#endif
  return !map.is_cuda() || activation == Activation::silu;
}

at::Tensor fusedNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates,
                     Activation activation) {
  return FusedNorm::apply(map, tensors.weight, tensors.bias, tensors, rates, activation);
}

}  // namespace vantage
