// AdamW, SGD and MuSGD as facts 1.6, and the moving average of weights. They work on the packed
// state and never wait for the device: what a gradient decides is decided there.
//
// Where the facts leave a choice, this one was made:
// - Only matrices (two dimensions and more) decay; "bias" is every bias, of convolutions and norms.
// - AdamW's first beta is the momentum of the settings, not warmed up: its correction needs one
// beta.
// - MuSGD makes both updates from the weights before the step; class branches learn at three times
//   the rate under MuSGD alone. Newton-Schulz runs in bf16 on a GPU and in fp32 on a CPU, where
//   bf16 is slow.
#pragma once
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "network.h"
#include "packed.h"
#include "schedule.h"
#include "settings.h"

namespace vantage {

class Optimizer {
 public:
  Optimizer(const Packed& packed, const TrainingSettings& settings);

  /** Adds what a backward pass left to the gradients of the next step. */
  void gather();
  /**
   * Clips the gathered gradients' norm, makes a step and forgets them. Where one is not finite,
   * weights, momenta and their count stay as they are.
   */
  void step(const Rates& rates);
  void forget();

  /** Gradients gathered so far; long as the packed values. */
  const at::Tensor& gradients() const { return gradients_; }
  /** Steps left out so far; waits for the device. */
  int64_t skipped() const;

  /** Momenta and counters by name, to be stored or to be written over. */
  std::vector<NamedTensor> state() const;

 private:
  /** Of a stretch of one group, `from` counted in all values. */
  struct Stretch {
    const SlotGroup& group;
    int64_t from, length;
    double rate, momentum;
  };
  at::Tensor keeping(double factor) const;
  void adamw(const Stretch& stretch, const at::Tensor& gradient);
  void sgd(const Stretch& stretch, const at::Tensor& gradient, const at::Tensor& more);
  at::Tensor muon(const SlotGroup& group, const at::Tensor& gradient, double momentum);

  const Packed& packed_;
  TrainingSettings settings_;
  double decay_;
  at::Tensor gradients_, first_, second_, muon_;
  /** Scalars on the device: steps made, steps left out, and 1 where the step under way is made. */
  at::Tensor made_, skipped_, taken_;
  /** AdamW's corrections of that step: of the first momentum's rate, and of the second's root. */
  at::Tensor correction_, root_;
};

/** Matrices [n, rows, columns] made nearly orthogonal by five steps of Newton and Schulz. */
at::Tensor orthogonal(const at::Tensor& matrices);

/** Exponential moving average of a state: learned tensors and statistics alike; counters as is. */
class Ema {
 public:
  Ema(const Packed& packed, const TrainingSettings& settings);
  void update();
  /** In the network's order; the tensors are the average's own, to be read or written over. */
  const std::vector<NamedTensor>& state() const { return average_.state; }
  int64_t updates() const { return updates_; }
  void setUpdates(int64_t updates) { updates_ = updates; }
  /** The average becomes what the network is. */
  void reset();

 private:
  const Packed& packed_;
  Packed::Copy average_;
  double decay_, tau_;
  int64_t updates_ = 0;
};

}  // namespace vantage
