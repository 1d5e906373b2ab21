// AdamW, SGD and MuSGD as facts 1.6, with their schedules. Written out over lists of tensors, so
// that one code runs on both torch generations and both devices.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "network.h"
#include "settings.h"

namespace vantage {

/** Rates of one iteration. `bias` is of biases alone: it warms up from another side. */
struct Rates {
  double lr = 0, bias = 0, momentum = 0;
};

/** The rates at `iteration` of `epoch`; both count from 0, `batches` is an epoch's. */
Rates ratesAt(const TrainingSettings& settings, int epoch, int64_t iteration, int64_t batches);

class Optimizer {
 public:
  /** Over the learned tensors of `state`; the tensors are the network's own. */
  Optimizer(const std::vector<NamedTensor>& state, const TrainingSettings& settings);

  void clearGradients();
  /**
   * Clips the gradients' norm and makes a step. Without any change returns false where a gradient
   * is not finite.
   */
  bool step(const Rates& rates);

  /** Momenta and counters by name, for checkpoints; `restore` takes them back. */
  std::vector<NamedTensor> state() const;
  void restore(const std::vector<NamedTensor>& state);

 private:
  struct Group;
  std::vector<std::shared_ptr<Group>> groups_;
};

/** Exponential moving average of a state: learned tensors and statistics alike. */
class Ema {
 public:
  Ema(const std::vector<NamedTensor>& state, const TrainingSettings& settings);
  void update();
  const std::vector<NamedTensor>& state() const { return average_; }
  int64_t updates() const { return updates_; }
  void restore(const std::vector<NamedTensor>& state, int64_t updates);

 private:
  std::vector<NamedTensor> source_, average_;
  double decay_, tau_;
  int64_t updates_ = 0;
};

}  // namespace vantage
