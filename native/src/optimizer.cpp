// Steps over the packed state. `isMade_` is 1 or, where a gradient is not finite, 0: every update
// is written so that 0 changes nothing. The host need not wait for a GPU to know.
#include "optimizer.h"

#include <algorithm>
#include <cmath>

#include "flags.h"

namespace vantage {
namespace {

constexpr double kBeta2 = 0.999, kAdamEps = 1e-8, kNormEps = 1e-6;
constexpr double kMuonShare = 0.2, kClassRate = 3, kFrobeniusEps = 1e-7;
constexpr double kSchulz[3] = {3.4445, -4.7750, 2.0315};
constexpr int kSchulzSteps = 5;
/** Steps after which the loss's factor doubles, and the largest that it then has. */
constexpr double kScaleSteps = 2000, kScaleMax = 1 << 24;
/** Values that a CPU steps at once: what it reads and writes then stays in its caches. */
constexpr int64_t kChunkCpu = 1 << 16;

}  // namespace

at::Tensor orthogonal(const at::Tensor& matrices, at::ScalarType type) {
  const bool tall = matrices.size(1) > matrices.size(2);
  auto x = tall ? matrices.transpose(1, 2) : matrices;
  x = x / (x.square().sum({1, 2}, kKeepDim).sqrt() + kFrobeniusEps);
  x = x.to(type);
  for (int step = 0; step < kSchulzSteps; ++step) {
    const auto square = x.bmm(x.transpose(1, 2));
    const auto both = at::baddbmm(square, square, square, kSchulz[1], kSchulz[2]);
    x = at::baddbmm(x, both, x, kSchulz[0], 1);
  }
  x = x.to(at::kFloat);
  return tall ? x.transpose(1, 2) : x;
}

Optimizer::Optimizer(const PackedState& packed, const TrainingSettings& settings,
                     Precision precision)
    : packed_(packed), settings_(settings), decay_(scaledDecay(settings)) {
  const at::Tensor& values = packed.values();
  if (values.is_cuda() && precision != Precision::fp32) schulzType_ = at::kBFloat16;
  gradients_ = at::zeros_like(values);
  first_ = at::zeros_like(values);
  using Kind = TrainingSettings::Optimizer;
  if (settings.optimizer == Kind::adamw) second_ = at::zeros_like(values);
  if (settings.optimizer == Kind::musgd) muon_ = at::zeros_like(values);
  made_ = at::zeros({}, values.options().dtype(at::kDouble));
  skipped_ = at::zeros_like(made_);
  isMade_ = at::ones({}, values.options());
  if (settings.lossScale > 0) scale_ = LossScale(settings.lossScale, values.options());
}

LossScale::LossScale(double first, const at::TensorOptions& options)
    : factor_(at::full({}, first, options)), steady_(at::zeros({}, options)) {}

void LossScale::update(const at::Tensor& isMade) {
  if (!factor_.defined()) return;
  steady_.add_(1).mul_(isMade);
  const auto doubles = steady_.ge(kScaleSteps);
  const auto grown =
      at::where(doubles, at::maximum((factor_ * 2).clamp_max_(kScaleMax), factor_), factor_);
  factor_.copy_(at::where(isMade.gt(0), grown, factor_ / 2));
  steady_.masked_fill_(doubles, 0);
}

std::vector<NamedTensor> LossScale::state() const {
  if (!factor_.defined()) return {};
  return {{"scale", factor_, TensorKind::buffer}, {"steady", steady_, TensorKind::buffer}};
}

// A copy: an update of the factor is none of what was scaled before.
at::Tensor Optimizer::lossScale() const {
  return scale_.factor().defined() ? scale_.factor().clone() : at::Tensor();
}

void Optimizer::gather() { packed_.takeGradients(gradients_); }

void Optimizer::forget() { gradients_.zero_(); }

int64_t Optimizer::skipped() const { return static_cast<int64_t>(skipped_.item<double>()); }

void Optimizer::step(const Rates& rates) {
  at::NoGradGuard none;
  const bool musgd = settings_.optimizer == TrainingSettings::Optimizer::musgd;
  const bool adamw = settings_.optimizer == TrainingSettings::Optimizer::adamw;
  if (scale_.factor().defined()) gradients_.div_(scale_.factor());
  // torch's `norm` sums sequentially on the CPU and is wrong in the fourth digit.
  const auto norm = gradients_.square().sum().sqrt_();
  const auto finite = norm.isfinite();
  isMade_ = finite.to(at::kFloat);
  made_.add_(isMade_);
  skipped_.add_(1 - isMade_);
  // At least 1: before the first step there is nothing to correct.
  const auto steps = made_.clamp_min(1);
  correction_ = (isMade_ / (1 - at::pow(settings_.momentum, steps))).to(at::kFloat);
  root_ = (1 - at::pow(kBeta2, steps)).sqrt_().to(at::kFloat);
  auto factor = at::ones_like(norm);
  if (settings_.clipNorm > 0) factor = (settings_.clipNorm / (norm + kNormEps)).clamp_max_(1);
  // Infinity times 0 would not be 0.
  const auto clipped = at::where(finite, gradients_ * factor, at::zeros_like(norm));
  for (const SlotGroup& group : packed_.groups()) {
    const double scale = musgd && group.cls ? kClassRate : 1;
    const double rate = scale * (group.bias ? rates.bias : rates.lr);
    at::Tensor muonUpdate;
    if (musgd && group.matrix) muonUpdate = muon(group, clipped, rates.momentum);
    const int64_t lengthMax = clipped.is_cuda() ? group.length : kChunkCpu;
    for (int64_t from = 0; from < group.length; from += lengthMax) {
      const int64_t length = std::min(lengthMax, group.length - from);
      const Chunk chunk{group, group.start + from, length, rate, rates.momentum};
      if (adamw) this->adamw(chunk, chunk.of(clipped));
      else if (!muonUpdate.defined()) sgd(chunk, chunk.of(clipped), {});
      else sgd(chunk, chunk.of(clipped), muonUpdate.narrow(0, from, length));
    }
  }
  scale_.update(isMade_);
  forget();
}

/** `factor` where the step is made, 1 where it is not. */
at::Tensor Optimizer::decayed(double factor) const { return isMade_ * factor + (1 - isMade_); }

void Optimizer::adamw(const Chunk& chunk, const at::Tensor& gradient) {
  auto values = chunk.of(packed_.values()), first = chunk.of(first_), second = chunk.of(second_);
  first.mul_(decayed(settings_.momentum)).add_(gradient, 1 - settings_.momentum);
  second.mul_(decayed(kBeta2)).addcmul_(gradient, gradient, 1 - kBeta2);
  if (chunk.group.matrix) values.mul_(decayed(1 - chunk.rate * decay_));
  const auto spread = second.sqrt().div_(root_).add_(kAdamEps);
  values.sub_(first.div(spread).mul_(correction_ * chunk.rate));
}

void Optimizer::sgd(const Chunk& chunk, const at::Tensor& gradient, const at::Tensor& muonUpdate) {
  auto values = chunk.of(packed_.values()), momentum = chunk.of(first_);
  const auto decaying = chunk.group.matrix ? gradient.add(values * isMade_, decay_) : gradient;
  momentum.mul_(decayed(chunk.momentum)).add_(decaying);
  auto update = decaying.add(momentum, chunk.momentum);
  if (muonUpdate.defined()) update.add_(muonUpdate, kMuonShare);
  values.sub_(update.mul_(isMade_ * chunk.rate));
}

/** The group's update by Muon, before the rate; moves its average of gradients. */
at::Tensor Optimizer::muon(const SlotGroup& group, const at::Tensor& gradient, double momentum) {
  auto average = muon_.narrow(0, group.start, group.length);
  const auto own = gradient.narrow(0, group.start, group.length);
  average.mul_(decayed(momentum)).add_(own, 1 - momentum);
  const auto blend = own * (1 - momentum) + average * momentum;
  auto update = at::zeros_like(blend);
  for (const SlotGroup::Shape& shape : group.shapes) {
    const auto batch = [&](const at::Tensor& all) {
      return all.as_strided({shape.count, shape.rows, shape.columns},
                            {shape.step, shape.columns, 1},
                            all.storage_offset() + shape.start - group.start);
    };
    batch(update).copy_(orthogonal(batch(blend), schulzType_) * shape.factor);
  }
  return update;
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    for (const NamedTensor& view : packed_.learnedOf(tensor))
      all.push_back({kind + "." + view.name, view.tensor, TensorKind::buffer});
  };
  add("first", first_);
  add("second", second_);
  add("muon", muon_);
  all.push_back({"made", made_, TensorKind::buffer});
  all.push_back({"skipped", skipped_, TensorKind::buffer});
  for (const NamedTensor& named : scale_.state()) all.push_back(named);
  return all;
}

Ema::Ema(const PackedState& packed, const TrainingSettings& settings)
    : packed_(packed),
      average_(packed.copy()),
      decay_(settings.emaDecay),
      tau_(settings.emaUpdates) {}

void Ema::update() {
  at::NoGradGuard none;
  ++updates_;
  const double decay = decay_ * (1 - std::exp(-static_cast<double>(updates_) / tau_));
  average_.values.lerp_(packed_.values(), 1 - decay);
  average_.statistics.lerp_(packed_.statistics(), 1 - decay);
  average_.counters.copy_(packed_.counters());
}

void Ema::reset() {
  at::NoGradGuard none;
  average_.values.copy_(packed_.values());
  average_.statistics.copy_(packed_.statistics());
  average_.counters.copy_(packed_.counters());
  updates_ = 0;
}

}  // namespace vantage
