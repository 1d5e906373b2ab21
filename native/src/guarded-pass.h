// What a step's pass changes in the network, guarded for every kind of step.
#pragma once
#include <ATen/ATen.h>

#include "core.h"

namespace vantage {

inline void clearGradients(const Network& network) {
  for (const NamedTensor& named : network.state())
    if (named.isLearned()) named.tensor.mutable_grad().reset();
}

/**
 * Guards what a step's pass changes in the network: statistics of batch norm, and gradients. A pass
 * that ends halfway, interrupted or out of memory, changes neither; one that is not finite changes
 * no statistics.
 */
class GuardedPass {
 public:
  explicit GuardedPass(EngineCore& core)
      : core_(core),
        before_(core.training->packed.statistics().clone()),
        counted_(core.training->packed.counters().clone()) {
    clearGradients(core.network);
  }
  ~GuardedPass() {
    if (done_) return;
    try {
      const at::NoGradGuard none;
      clearGradients(core_.network);
      packed().counters().copy_(counted_);
      packed().statistics().copy_(before_);
    } catch (...) {
      // The device does not even copy any more: no step follows.
    }
  }
  GuardedPass(const GuardedPass&) = delete;

  /** The pass was completed: what it changed stays. */
  void keep() {
    const at::NoGradGuard none;
    at::Tensor now = packed().statistics();
    now.copy_(at::where(now.isfinite(), now, before_));
    done_ = true;
  }

 private:
  const PackedState& packed() const { return core_.training->packed; }

  EngineCore& core_;
  at::Tensor before_, counted_;
  bool done_ = false;
};

}  // namespace vantage
