// Mean and variance are merged from each process's own, not from sums of squares: these would lose
// the digits of what varies little around a large mean. One sum forward, one backward.
#include "group-norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "flags.h"

namespace vantage {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const std::vector<int64_t> kOverCells{0, 2, 3};

at::Tensor byChannel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

struct Statistics {
  at::Tensor mean, variance;
  double count = 0;
};

/** Statistics of the whole batch, over all processes. */
Statistics statisticsOf(const at::Tensor& map, const Group& group) {
  const int64_t channels = map.size(1), size = group.size();
  const double count = group.part.weight * static_cast<double>(map.numel() / channels);
  const auto mean = map.mean(kOverCells);
  const auto variance = (map - byChannel(mean)).square_().mean(kOverCells);
  // A row a process; the sum of zeros and one row is that row.
  const auto rows = at::zeros({size, 2 * channels + 1}, map.options().dtype(at::kDouble));
  rows[group.rank()].copy_(at::cat({mean.to(at::kDouble), variance.to(at::kDouble),
                                    at::full({1}, count, rows.options())}));
  const auto all = group.sum(rows);
  const auto means = all.narrow(1, 0, channels), variances = all.narrow(1, channels, channels);
  const auto counts = all.narrow(1, 2 * channels, 1);
  Statistics merged;
  const auto shares = counts / counts.sum();
  merged.count = counts.sum().item<double>();
  merged.mean = (means * shares).sum(0);
  merged.variance = ((variances + (means - merged.mean).square()) * shares).sum(0);
  return merged;
}

class GroupNorm : public torch::autograd::Function<GroupNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& map,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const NormTensors& tensors, const NormRates& rates,
                            const Group& group) {
    const auto values = map.to(at::kFloat);
    const Statistics batch = statisticsOf(values, group);
    const double unbiased = batch.count / std::max(batch.count - 1, 1.0);
    at::Tensor keptMean = tensors.mean, keptVariance = tensors.variance;
    keptMean.lerp_(batch.mean.to(at::kFloat), rates.momentum);
    keptVariance.lerp_((batch.variance * unbiased).to(at::kFloat), rates.momentum);
    const auto mean = batch.mean.to(at::kFloat), variance = batch.variance.to(at::kFloat);
    const auto factor = (batch.variance + rates.epsilon).rsqrt().to(at::kFloat);
    context->save_for_backward({map, weight, mean, factor});
    context->saved_data["count"] = batch.count;
    // There is no kind of saved data for a pointer; the group outlives every pass.
    context->saved_data["group"] = reinterpret_cast<int64_t>(&group);
    return at::batch_norm(values, weight, bias, mean, variance, kDisabled, rates.momentum,
                          rates.epsilon, kCudnn)
        .to(map.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list slopes) {
    const auto saved = context->get_saved_variables();
    const at::Tensor map = saved[0].to(at::kFloat), &weight = saved[1], &factor = saved[3];
    const auto& group = *reinterpret_cast<const Group*>(context->saved_data["group"].toInt());
    const double count = context->saved_data["count"].toDouble();
    const auto slope = slopes[0].to(at::kFloat);
    const auto normal = (map - byChannel(saved[2])).mul_(byChannel(factor));
    const auto ofBias = slope.sum(kOverCells), ofWeight = (slope * normal).sum(kOverCells);
    const auto sums = group.sum(at::stack({ofBias, ofWeight})) / count;
    auto ofMap = (slope - byChannel(sums[0])).sub_(normal.mul_(byChannel(sums[1])));
    // The statistics are not of a stand-in's cells.
    ofMap.mul_(byChannel(factor * weight * group.part.weight));
    return {ofMap.to(saved[0].scalar_type()), ofWeight, ofBias, {}, {}, {}};
  }
};

}  // namespace

at::Tensor groupNorm(const at::Tensor& map, const NormTensors& tensors, const NormRates& rates,
                     const Group& group) {
  return GroupNorm::apply(map, tensors.weight, tensors.bias, tensors, rates, group);
}

}  // namespace vantage
