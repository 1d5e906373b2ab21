// Training images: the mapped file of a split, the plan of each augmented image (pure, decided by
// seed, epoch and place alone), and rendering a plan to pixels on the CPU or, by our kernel, on the
// GPU. No torch here.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "settings.h"

namespace vantage {

struct ImageEntry {
  int64_t offset = 0;
  int width = 0, height = 0;
  std::vector<Truth> truths;
};

/** A split's file, mapped read-only; fails with `bad_dataset` where entries leave the file. */
class ImageFile {
 public:
  ImageFile(const std::string& path, std::vector<ImageEntry> images);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  const std::vector<ImageEntry>& images() const { return images_; }
  const uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<ImageEntry> images_;
  const uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

/** A source image laid onto an output: what a kernel reads. Plain data, copied to the GPU as is. */
struct Patch {
  /** Of the image's first byte in the split's file. */
  int64_t offset;
  int32_t width, height;
  /** Source pixel = m · (x, y, 1) of an output pixel's centre; both in pixels, centres at +0.5. */
  float m[6];
  /** The output's pixels mapped to the canvas by `c`, and the part of the canvas it covers. */
  float c[6];
  float left, top, right, bottom;
};

/** One output image: up to four patches of each of up to two layers that are mixed. */
struct Plan {
  int32_t layers;
  int32_t patches[2];
  Patch patch[2][4];
  /** Of the first layer. */
  float mix;
  /** Factors of hue, saturation and value; hue is added, in turns. */
  float hue, saturation, value;
  /** Not for kernels: the boxes that are left, in pixels of the output. */
};
struct PlannedImage {
  Plan plan;
  std::vector<Truth> truths;
};

/** The order of a split's images in an epoch. */
std::vector<int> shuffled(int count, uint64_t seed, int epoch);

/** The augmented image at `place` of the epoch's order. */
PlannedImage planTraining(const ImageFile& file, int place, int epoch, uint64_t seed,
                          const TrainingSettings& settings);

/** An image letterboxed as facts 1.7: centred, padded with 114, never augmented. */
PlannedImage planLetterbox(const ImageEntry& image, int imageSize);

/** Renders plans to [count, 3, size, size] RGB in 0 to 1, on `threads` threads. */
void renderCpu(const uint8_t* file, const Plan* plans, int count, int size, float* out,
               int threads);

#ifdef VANTAGE_CUDA
/** The same on the GPU: every pointer is device memory; `stream` is a cudaStream_t. */
void renderCuda(const uint8_t* file, const Plan* plans, int count, int size, float* out,
                void* stream);
#endif

}  // namespace vantage
