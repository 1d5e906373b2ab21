// Gradients of all processes, summed in buckets while the backward pass still makes others.
#pragma once
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "group.h"
#include "network.h"

namespace vantage {

class GradientBuckets {
 public:
  /** Both have to outlive it. */
  GradientBuckets(const std::vector<NamedTensor>& state, const Group& group);
  /** Takes its hooks from the tensors. */
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;

  /** A backward pass follows, all of whose gradients count. */
  void begin();
  /** The pass is over: waits for the sums and leaves them with the tensors as their gradients. */
  void finish();
  /** The pass was given up. */
  void drop() { isActive_ = false; }

 private:
  struct Parameter {
    at::Tensor tensor;
    unsigned hook = 0;
    size_t bucket = 0;
    int64_t offset = 0;
    bool isMade = false;
  };
  struct Bucket {
    at::Tensor values;
    /** Parameters of it, and those whose gradient the pass has still to make. */
    int64_t parameters = 0, missing = 0;
    std::unique_ptr<PendingSum> pending;
  };
  at::Tensor viewOf(const Parameter& parameter) const;
  void take(Parameter& parameter, const at::Tensor& gradient);
  /** Starts the sums of complete buckets, in their order: it is every process's order. */
  void startComplete();

  const Group& group_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  size_t started_ = 0;
  bool isActive_ = false;
};

}  // namespace vantage
