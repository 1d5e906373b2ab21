// Steps over the packed state. `taken_` is 1 or, where a gradient is not finite, 0: every update is
// written so that 0 leaves all as it is, which spares a GPU the wait for that answer.
#include "optimizer.h"

#include <algorithm>
#include <cmath>

namespace vantage {
namespace {

constexpr double kBeta2 = 0.999, kAdamEps = 1e-8, kNormEps = 1e-6;
constexpr double kMuonShare = 0.2, kClassRate = 3, kFrobeniusEps = 1e-7;
constexpr double kSchulz[3] = {3.4445, -4.7750, 2.0315};
constexpr int kSchulzSteps = 5;
/** Values that a CPU steps at once: what it reads and writes stays in its caches. */
constexpr int64_t kStretchCpu = 1 << 16;

}  // namespace

at::Tensor orthogonal(const at::Tensor& matrices) {
  const bool tall = matrices.size(1) > matrices.size(2);
  auto x = tall ? matrices.transpose(1, 2) : matrices;
  x = x / (x.square().sum({1, 2}, true).sqrt() + kFrobeniusEps);
  if (x.is_cuda()) x = x.to(at::kBFloat16);
  for (int step = 0; step < kSchulzSteps; ++step) {
    const auto square = x.bmm(x.transpose(1, 2));
    const auto both = at::baddbmm(square, square, square, kSchulz[1], kSchulz[2]);
    x = at::baddbmm(x, both, x, kSchulz[0], 1);
  }
  x = x.to(at::kFloat);
  return tall ? x.transpose(1, 2) : x;
}

Optimizer::Optimizer(const Packed& packed, const TrainingSettings& settings)
    : packed_(packed), settings_(settings), decay_(scaledDecay(settings)) {
  const at::Tensor& values = packed.values();
  gradients_ = at::zeros_like(values);
  first_ = at::zeros_like(values);
  using Kind = TrainingSettings::Optimizer;
  if (settings.optimizer == Kind::adamw) second_ = at::zeros_like(values);
  if (settings.optimizer == Kind::musgd) muon_ = at::zeros_like(values);
  made_ = at::zeros({}, values.options().dtype(at::kDouble));
  skipped_ = at::zeros_like(made_);
  taken_ = at::ones({}, values.options());
}

void Optimizer::gather() { packed_.takeGradients(gradients_); }

void Optimizer::forget() { gradients_.zero_(); }

int64_t Optimizer::skipped() const { return static_cast<int64_t>(skipped_.item<double>()); }

void Optimizer::step(const Rates& rates) {
  at::NoGradGuard none;
  const bool musgd = settings_.optimizer == TrainingSettings::Optimizer::musgd;
  const bool adamw = settings_.optimizer == TrainingSettings::Optimizer::adamw;
  // `norm` adds up in one number on the CPU, and is then wrong in the fourth place.
  const auto norm = gradients_.square().sum().sqrt_();
  const auto finite = norm.isfinite();
  taken_ = finite.to(at::kFloat);
  made_.add_(taken_);
  skipped_.add_(1 - taken_);
  // Before any step was made there is nothing to correct.
  const auto steps = made_.clamp_min(1);
  correction_ = (taken_ / (1 - at::pow(settings_.momentum, steps))).to(at::kFloat);
  root_ = (1 - at::pow(kBeta2, steps)).sqrt_().to(at::kFloat);
  auto factor = at::ones_like(norm);
  if (settings_.clipNorm > 0) factor = (settings_.clipNorm / (norm + kNormEps)).clamp_max_(1);
  // Not finite times 0 is not 0.
  const auto clipped = at::where(finite, gradients_ * factor, at::zeros_like(norm));
  for (const SlotGroup& group : packed_.groups()) {
    const double scale = musgd && group.cls ? kClassRate : 1;
    const double rate = scale * (group.bias ? rates.bias : rates.lr);
    at::Tensor turned;
    if (musgd && group.matrix) turned = muon(group, clipped, rates.momentum);
    const int64_t most = clipped.is_cuda() ? group.length : kStretchCpu;
    for (int64_t from = 0; from < group.length; from += most) {
      const int64_t length = std::min(most, group.length - from);
      const Stretch stretch{group, group.start + from, length, rate, rates.momentum};
      const auto gradient = clipped.narrow(0, stretch.from, length);
      const auto more = turned.defined() ? turned.narrow(0, from, length) : turned;
      if (adamw) this->adamw(stretch, gradient);
      else sgd(stretch, gradient, more);
    }
  }
  forget();
}

/** The factor of what is kept of a value: all of it where no step is made. */
at::Tensor Optimizer::keeping(double factor) const { return taken_ * factor + (1 - taken_); }

void Optimizer::adamw(const Stretch& stretch, const at::Tensor& gradient) {
  const auto part = [&](const at::Tensor& all) {
    return all.narrow(0, stretch.from, stretch.length);
  };
  auto values = part(packed_.values()), first = part(first_), second = part(second_);
  first.mul_(keeping(settings_.momentum)).add_(gradient, 1 - settings_.momentum);
  second.mul_(keeping(kBeta2)).addcmul_(gradient, gradient, 1 - kBeta2);
  if (stretch.group.matrix) values.mul_(keeping(1 - stretch.rate * decay_));
  const auto spread = second.sqrt().div_(root_).add_(kAdamEps);
  values.sub_(first.div(spread).mul_(correction_ * stretch.rate));
}

void Optimizer::sgd(const Stretch& stretch, const at::Tensor& gradient, const at::Tensor& more) {
  const auto part = [&](const at::Tensor& all) {
    return all.narrow(0, stretch.from, stretch.length);
  };
  auto values = part(packed_.values()), momentum = part(first_);
  const auto slope = stretch.group.matrix ? gradient.add(values * taken_, decay_) : gradient;
  momentum.mul_(keeping(stretch.momentum)).add_(slope);
  auto way = slope.add(momentum, stretch.momentum);
  if (more.defined()) way.add_(more, kMuonShare);
  values.sub_(way.mul_(taken_ * stretch.rate));
}

/** The group's update by Muon, unscaled; its momentum moves. */
at::Tensor Optimizer::muon(const SlotGroup& group, const at::Tensor& gradient, double momentum) {
  auto average = muon_.narrow(0, group.start, group.length);
  const auto slope = gradient.narrow(0, group.start, group.length);
  average.mul_(keeping(momentum)).add_(slope, 1 - momentum);
  const auto blend = slope * (1 - momentum) + average * momentum;
  auto turned = at::zeros_like(blend);
  for (const SlotGroup::Shape& shape : group.shapes) {
    const auto batch = [&](const at::Tensor& all) {
      return all.as_strided({shape.count, shape.rows, shape.columns},
                            {shape.step, shape.columns, 1},
                            all.storage_offset() + shape.start - group.start);
    };
    batch(turned).copy_(orthogonal(batch(blend)) * shape.factor);
  }
  return turned;
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all;
  const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    for (const NamedTensor& view : packed_.learnedOf(tensor))
      all.push_back({kind + "." + view.name, view.tensor, false});
  };
  add("first", first_);
  add("second", second_);
  add("muon", muon_);
  all.push_back({"made", made_, false});
  all.push_back({"skipped", skipped_, false});
  return all;
}

Ema::Ema(const Packed& packed, const TrainingSettings& settings)
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
