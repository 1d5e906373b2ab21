// The state of training: what it keeps from call to call.
#pragma once
#include <array>
#include <cstdint>

#include "loss.h"
#include "optimizer.h"
#include "state.h"

namespace vantage {

/** Prefix of a checkpoint's tensors that no model has. */
constexpr const char* kTrainerPrefix = "trainer.";

/** Everything that the next step depends on, beside the network. */
struct Training {
  /** `items`: the numbers that a step's losses are. */
  /** `precision` is that of the passes, `items` the number of losses. */
  Training(const std::vector<NamedTensor>& state, const TrainingSettings& settings,
           Precision precision, int64_t items)
      : packed(state),
        optimizer(packed, settings, precision),
        ema(packed, settings),
        sums(at::zeros({items + 1}, packed.values().options().dtype(at::kDouble))) {}
  Training(const Training&) = delete;

  PackedState packed;
  Optimizer optimizer;
  Ema ema;
  /** Batches whose gradients were gathered for the next step. */
  int64_t gathered = 0;
  /** Sums of the epoch under way: each item of the losses times images; and images. */
  at::Tensor sums;
};

}  // namespace vantage
