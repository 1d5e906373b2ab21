// Schedules of a training run: rates of an iteration, and how many batches make a step. Pure.
//
// An iteration's number in the run is epoch · batches + iteration. The rate falls once an epoch,
// from lr0 in the first to lr0 · lrf in the last. Warm-up is over so many iterations as its epochs
// have, at least 100, and reaches the epoch's values at its end.
#pragma once
#include <cstdint>

#include "settings.h"

namespace vantage {

/** Rates of one iteration. `bias` is the rate of biases, which warms up from above. */
struct Rates {
  double lr = 0, bias = 0, momentum = 0;
};

/** The rates at `iteration` of `epoch`; both count from 0, `batches` is an epoch's. */
Rates ratesAt(const TrainingSettings& settings, int epoch, int64_t iteration, int64_t batches);

/** Batches whose gradients make a step at that iteration: rising from 1 in warm-up. */
int64_t accumulatedAt(const TrainingSettings& settings, int epoch, int64_t iteration,
                      int64_t batches);

/**
 * Side of the images of an epoch's batch in pixels: the settings' own, or one of those that their
 * range has, each as likely, decided by seed, epoch and batch alone.
 */
int imageSizeAt(const TrainingSettings& settings, uint64_t seed, int epoch, int batch);
/** The largest of them. */
int imageSizeMax(const TrainingSettings& settings);

/** Weight decay for the images that a step is made of. */
double scaledDecay(const TrainingSettings& settings);

}  // namespace vantage
