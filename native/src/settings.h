// Settings and boxes as plain values: the C++ side of native/index.d.ts, with the same names and
// meanings. No torch here.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace vantage {

/** What convolutions and products of training are computed in. */
enum class Precision { fp32, bf16, fp16 };

struct Augmentation {
  double mosaic = 0, mixup = 0, flipLeftRight = 0, flipUpDown = 0;
  double scale = 0, translate = 0, rotate = 0, shear = 0;
  std::array<double, 3> hsv{};
  double copyPaste = 0;
  int closeMosaic = 0;
};

struct TrainingSettings {
  enum class Optimizer { adamw, sgd, musgd } optimizer = Optimizer::adamw;
  int epochs = 1, batch = 16, imageSize = 640, nominalBatch = 64;
  double lr0 = 0.01, lrf = 0.01, momentum = 0.937, weightDecay = 5e-4;
  bool cosine = false;
  double warmupEpochs = 3, warmupMomentum = 0.8, warmupBiasLr = 0.1, clipNorm = 10;
  double emaDecay = 0.9999, emaUpdates = 2000;
  int freeze = 0;
  double multiScale = 0;
  /** First factor of the loss; 0: it has none. */
  double lossScale = 0;
  double boxGain = 7.5, clsGain = 0.5, dflGain = 1.5, maskGain = 7.5, semanticGain = 7.5;
  Augmentation augmentation;
};

struct LossItems {
  double total = 0, box = 0, cls = 0, dfl = 0;
  /** The last two are of segmentation only. */
  bool hasMasks = false;
  double mask = 0, semantic = 0;
};

/** Box of a class in pixels of its image. */
struct Truth {
  float cls = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

struct Point {
  double x = 0, y = 0;
};
/** Corners of an object's outline in turn, in pixels of its image; none: it has no outline. */
using Ring = std::vector<Point>;

/** Right and bottom are exclusive; in pixels. */
struct Rectangle {
  float left = 0, top = 0, right = 0, bottom = 0;
};

/** Box of a detection in pixels of the input. */
struct Detection {
  float x1 = 0, y1 = 0, x2 = 0, y2 = 0, confidence = 0, cls = 0;
};

}  // namespace vantage
