// Parameters are put into buckets from the network's end to its beginning, about as a backward pass
// makes their gradients: a bucket is summed as soon as it is complete and those before it are under
// way. What no path leads to counts as 0.
#include "gradient-buckets.h"

#include "flags.h"

namespace vantage {
namespace {

/** Values of a bucket, unless one tensor is longer: few sums, and overlap in small networks too. */
constexpr int64_t kBucketValues = 1 << 19;

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<NamedTensor>& state, const Group& group)
    : group_(group) {
  for (const NamedTensor& named : state)
    if (named.isLearned()) parameters_.push_back({named.tensor});
  std::vector<int64_t> lengths;
  for (auto at = parameters_.rbegin(); at != parameters_.rend(); ++at) {
    const int64_t count = at->tensor.numel();
    if (lengths.empty() || lengths.back() + count > kBucketValues) {
      lengths.push_back(0);
      buckets_.emplace_back();
    }
    at->bucket = lengths.size() - 1;
    at->offset = lengths.back();
    lengths.back() += count;
    ++buckets_.back().parameters;
  }
  for (size_t i = 0; i < buckets_.size(); ++i)
    buckets_[i].values =
        at::zeros({lengths[i]}, state.at(0).tensor.options().requires_grad(kNoGradient));
  for (Parameter& parameter : parameters_)
    parameter.hook = parameter.tensor.register_hook(
        [this, &parameter](const at::TensorBase& made) { take(parameter, at::Tensor(made)); });
}

GradientBuckets::~GradientBuckets() {
  for (const Parameter& parameter : parameters_) parameter.tensor.remove_hook(parameter.hook);
}

void GradientBuckets::begin() {
  for (Parameter& parameter : parameters_) parameter.isMade = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  started_ = 0;
  isActive_ = true;
}

at::Tensor GradientBuckets::viewOf(const Parameter& parameter) const {
  const at::Tensor& tensor = parameter.tensor;
  return buckets_[parameter.bucket].values.as_strided(tensor.sizes(), tensor.strides(),
                                                      parameter.offset);
}

void GradientBuckets::take(Parameter& parameter, const at::Tensor& gradient) {
  if (!isActive_ || parameter.isMade) return;
  const at::NoGradGuard none;
  viewOf(parameter).copy_(gradient);
  parameter.isMade = true;
  --buckets_[parameter.bucket].missing;
  startComplete();
}

void GradientBuckets::startComplete() {
  for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_)
    buckets_[started_].pending = group_.startSum(buckets_[started_].values);
}

void GradientBuckets::finish() {
  const at::NoGradGuard none;
  isActive_ = false;
  for (Parameter& parameter : parameters_) {
    if (parameter.isMade) continue;
    viewOf(parameter).zero_();
    --buckets_[parameter.bucket].missing;
  }
  startComplete();
  for (Bucket& bucket : buckets_) bucket.pending->wait();
  for (Bucket& bucket : buckets_) bucket.pending.reset();
  for (Parameter& parameter : parameters_) parameter.tensor.mutable_grad() = viewOf(parameter);
}

}  // namespace vantage
