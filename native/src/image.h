// Training images: the mapped file of a split, the plan of each augmented image (pure, decided by
// seed, epoch and place alone), and rendering plans to pixels on the CPU or, by our kernel, on the
// GPU. No torch here.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "sample.h"
#include "settings.h"

namespace vantage {

struct ImageEntry {
  int64_t offset = 0;
  int width = 0, height = 0;
  std::vector<Truth> truths;
};

/**
 * A split's file, mapped read-only. Fails with `bad_dataset` where entries leave the file or boxes
 * make no sense, with `io_failed` where the file cannot be read.
 */
class ImageFile {
 public:
  ImageFile(const std::string& path, std::vector<ImageEntry> images, int classes);
  ~ImageFile();
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;
  const std::vector<ImageEntry>& images() const { return images_; }
  const uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /**
   * Fails with `bad_dataset` where the file has become shorter: to read beyond its end would end
   * the process. To be asked before a batch is read.
   */
  void checkLength() const;

 private:
  std::vector<ImageEntry> images_;
  const uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  int file_ = -1;
};

struct PlannedImage {
  Plan plan{};
  /** The boxes that are left, in pixels of the output. */
  std::vector<Truth> truths;
};

/** The order of a split's images in an epoch. */
std::vector<int> shuffled(int count, uint64_t seed, int epoch);

/** The augmented image at `place` of the epoch's order. */
PlannedImage planTraining(const ImageFile& file, const std::vector<int>& order, int place,
                          int epoch, uint64_t seed, const TrainingSettings& settings);

/** An image letterboxed as facts 1.7: centred, padded with 114, never augmented. */
PlannedImage planLetterbox(const ImageEntry& image, int imageSize);

/**
 * Renders plans to [count, 3, size, size] RGB in 0 to 1, on `threads` threads; leaves it half done
 * once `abandoned` is true.
 */
void renderCpu(const uint8_t* file, const Plan* plans, int count, int size, float* out, int threads,
               const std::atomic<bool>* abandoned = nullptr);

#ifdef VANTAGE_CUDA
/**
 * The same on the GPU: every pointer is device memory; `stream` is a cudaStream_t. Answers
 * cudaGetLastError of the launch.
 */
int renderCuda(const uint8_t* file, const Plan* plans, int count, int size, float* out,
               void* stream);
/** Memory that is free on the current GPU. */
int64_t gpuFreeBytes();
#endif

}  // namespace vantage
