// AdamW, SGD and MuSGD, and the moving average of weights. They work on the packed state and never
// wait for the device: whether a step is made is decided there.
//
// Conventions, where the literature leaves a choice:
// - Only matrices (two dimensions and more) decay; "bias" is every bias, of convolutions and norms.
// - AdamW's first beta is the momentum of the settings, not warmed up: its correction needs one
// beta.
// - MuSGD makes both updates from the weights before the step; class branches learn at three times
//   the rate under MuSGD alone. Newton-Schulz runs in bf16 on a GPU whose passes are in bf16 or
//   fp16, else in fp32: on a CPU bf16 is slow there.
#pragma once
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "network.h"
#include "schedule.h"
#include "settings.h"
#include "state.h"

namespace vantage {

/**
 * Factor of the loss, so that small gradients do not vanish in fp16. It halves where they overflow,
 * and doubles after 2,000 steps without that. It stays on the device.
 */
class LossScale {
 public:
  LossScale() = default;
  LossScale(double first, const at::TensorOptions& options);
  /** Undefined where the loss has none. */
  at::Tensor factor() const { return factor_; }
  /** After a step: `isMade` is 1 or, where a gradient was not finite, 0. */
  void update(const at::Tensor& isMade);
  std::vector<NamedTensor> state() const;

 private:
  /** The factor; steps since it changed. */
  at::Tensor factor_, steady_;
};

class Optimizer {
 public:
  /** `precision` is that of the passes. */
  Optimizer(const PackedState& packed, const TrainingSettings& settings, Precision precision);

  /** Adds what a backward pass left to the gradients of the next step. */
  void gather();
  /**
   * Clips the gathered gradients' norm, makes a step and forgets them. Where one is not finite,
   * weights, momenta and their count stay as they are.
   */
  void step(const Rates& rates);
  void forget();

  /** What the loss of every backward pass has to be multiplied by; undefined for nothing. */
  at::Tensor lossScale() const;
  /** Gradients gathered so far, of the scaled loss; long as the packed values. */
  const at::Tensor& gradients() const { return gradients_; }
  /** Steps skipped so far, as gradients were not finite; waits for the device. */
  int64_t skipped() const;

  /** Momenta and counters by name, to be stored or to be written over. */
  std::vector<NamedTensor> state() const;

 private:
  /** Values of one group that are stepped at once; `from` is an index of all values. */
  struct Chunk {
    const SlotGroup& group;
    int64_t from, length;
    double rate, momentum;
    at::Tensor of(const at::Tensor& all) const { return all.narrow(0, from, length); }
  };
  at::Tensor decayed(double factor) const;
  void adamw(const Chunk& chunk, const at::Tensor& gradient);
  /** With Muon's update of the same values, where it is defined. */
  void sgd(const Chunk& chunk, const at::Tensor& gradient, const at::Tensor& muonUpdate);
  at::Tensor muon(const SlotGroup& group, const at::Tensor& gradient, double momentum);

  const PackedState& packed_;
  at::ScalarType schulzType_ = at::kFloat;
  TrainingSettings settings_;
  double decay_;
  LossScale scale_;
  at::Tensor gradients_, first_, second_, muon_;
  /** Scalars on the device: steps made, steps skipped, and 1 or 0 as the present one is made. */
  at::Tensor made_, skipped_, isMade_;
  /** AdamW's bias corrections of the present step: of the first moment, and of the second's root.
   */
  at::Tensor correction_, root_;
};

/**
 * Matrices [n, rows, columns] made nearly orthogonal by five steps of Newton and Schulz, computed
 * in the given type; returned in fp32.
 */
at::Tensor orthogonal(const at::Tensor& matrices, at::ScalarType type);

/** Exponential moving average of a state's parameters and statistics; counters are copied. */
class Ema {
 public:
  Ema(const PackedState& packed, const TrainingSettings& settings);
  void update();
  /** In the network's order; the tensors are the average's own, to be read or written over. */
  const std::vector<NamedTensor>& state() const { return average_.state; }
  int64_t updates() const { return updates_; }
  void setUpdates(int64_t updates) { updates_ = updates; }
  /** Sets the average to the network's state. */
  void reset();

 private:
  const PackedState& packed_;
  at::ScalarType schulzType_ = at::kFloat;
  PackedState::Copy average_;
  double decay_, tau_;
  int64_t updates_ = 0;
};

}  // namespace vantage
