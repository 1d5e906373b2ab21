// What the engine's methods of training share, and what training keeps from call to call.
#pragma once
#include <array>
#include <cstdint>

#include "loss.h"
#include "optimizer.h"
#include "packed.h"

namespace vantage {

/** Names of a checkpoint that no model has begin with it. */
constexpr const char* kTrainerPrefix = "trainer.";

/** Only of an engine that trains. Everything that the next step depends on is here. */
struct Training {
  Training(const std::vector<NamedTensor>& state, const TrainingSettings& settings)
      : packed(state),
        optimizer(packed, settings),
        ema(packed, settings),
        sums(at::zeros({5}, packed.values().options().dtype(at::kDouble))) {}
  Training(const Training&) = delete;

  Packed packed;
  Optimizer optimizer;
  Ema ema;
  /** Batches whose gradients wait for the next step. */
  int64_t gathered = 0;
  /** Of the epoch under way: total, box, cls and dfl, times images; and images. */
  at::Tensor sums;
};

}  // namespace vantage
