// Linear and cosine decay, and warm-up.
#include "schedule.h"

#include <algorithm>
#include <cmath>

#include "random.h"

namespace vantage {
namespace {

constexpr double kWarmupIterationsMin = 100;
/** Sides of images are multiples of it: cells of the coarsest level. */
constexpr int kSideStep = 32;
/** So far a share of a side may miss the multiple that it is meant to be. */
constexpr double kRounding = 1e-6;
/** Part of a random sequence's key; those of images are in image.cpp. */
constexpr uint64_t kSizes = 101;

/** Multiples of the step: the smallest and the largest side. */
struct SideRange {
  int min = 0, max = 0;
};

SideRange sidesOf(const TrainingSettings& settings) {
  const double steps = static_cast<double>(settings.imageSize) / kSideStep;
  const auto min = static_cast<int>(std::ceil(steps * (1 - settings.multiScale) - kRounding));
  return {std::max(min, 1),
          static_cast<int>(std::floor(steps * (1 + settings.multiScale) + kRounding))};
}

/** The rate of an epoch as a share of `lr0`. */
double factorOf(const TrainingSettings& settings, int epoch) {
  const double last = std::max(settings.epochs - 1, 1);
  const double done = std::clamp(epoch / last, 0.0, 1.0);
  if (settings.cosine) return settings.lrf + (1 - settings.lrf) * (1 + std::cos(M_PI * done)) / 2;
  return 1 + (settings.lrf - 1) * done;
}

/** Share of warm-up that is done, 0 to 1. */
double warmupShare(const TrainingSettings& settings, int epoch, int64_t iteration,
                   int64_t batches) {
  if (settings.warmupEpochs <= 0) return 1;
  const double all = std::max(std::round(settings.warmupEpochs * static_cast<double>(batches)),
                              kWarmupIterationsMin);
  return std::min(static_cast<double>(epoch * batches + iteration) / all, 1.0);
}

double between(double from, double to, double share) { return from + (to - from) * share; }

double batchesOfStep(const TrainingSettings& settings) {
  return static_cast<double>(settings.nominalBatch) / settings.batch;
}

}  // namespace

Rates ratesAt(const TrainingSettings& settings, int epoch, int64_t iteration, int64_t batches) {
  const double lr = settings.lr0 * factorOf(settings, epoch);
  const double warm = warmupShare(settings, epoch, iteration, batches);
  if (warm >= 1) return {lr, lr, settings.momentum};
  return {lr * warm, between(settings.warmupBiasLr, lr, warm),
          between(settings.warmupMomentum, settings.momentum, warm)};
}

int64_t accumulatedAt(const TrainingSettings& settings, int epoch, int64_t iteration,
                      int64_t batches) {
  const double warm = warmupShare(settings, epoch, iteration, batches);
  return std::max<int64_t>(std::lround(between(1, batchesOfStep(settings), warm)), 1);
}

int imageSizeAt(const TrainingSettings& settings, uint64_t seed, int epoch, int batch) {
  const auto [min, max] = sidesOf(settings);
  RandomSequence random{seed, static_cast<uint64_t>(epoch), kSizes, static_cast<uint64_t>(batch)};
  return kSideStep * (min + random.below(max - min + 1));
}

int imageSizeMax(const TrainingSettings& settings) { return kSideStep * sidesOf(settings).max; }

double scaledDecay(const TrainingSettings& settings) {
  const double accumulated = std::max<double>(std::round(batchesOfStep(settings)), 1);
  return settings.weightDecay * settings.batch * accumulated / settings.nominalBatch;
}

}  // namespace vantage
