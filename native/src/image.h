// Training images: the mapped file of a split, the plan of each augmented image (pure, decided by
// seed, epoch and position alone), and rendering plans to pixels on the CPU or, by our kernel, on
// the GPU. No torch here.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mask.h"
#include "sample.h"
#include "settings.h"

namespace vantage {

struct ImageEntry {
  int64_t offset = 0;
  int width = 0, height = 0;
  std::vector<Truth> truths;
  /** One a truth, whose box then is the ring's; or none for any. */
  std::vector<Ring> rings;
};

/**
 * A split's file, mapped read-only. Fails with `bad_dataset` where entries leave the file, or boxes
 * or rings make no sense, with `io_failed` where the file cannot be read.
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
   * the process. To be called before the images of a batch are read.
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
  /** The boxes that are kept, in pixels of the output. */
  std::vector<Truth> truths;
  /** One a truth: what the frame shows of its ring, in pixels of the output. */
  std::vector<Ring> rings;
  /** So many of the truths, the last ones, were pasted: they hide what lies below their rings. */
  size_t pasted = 0;
  /** The pixels of the output that pasted objects cover; none where there are no such objects. */
  std::optional<Bitmap> stencil;
};

/** The order of a split's images in an epoch. */
std::vector<int> shuffled(int count, uint64_t seed, int epoch);

/** All that decides an augmented image, beside the split and the settings. */
struct ImageKey {
  uint64_t seed = 0;
  int epoch = 0;
  /** Index in the epoch's order. */
  int position = 0;
};

/** The augmented image at `key.position` of the epoch's order. */
PlannedImage planTraining(const ImageFile& file, const std::vector<int>& order, const ImageKey& key,
                          const TrainingSettings& settings);

/** An image letterboxed: scaled to fit, centred, padded with 114, never augmented. */
PlannedImage planLetterbox(const ImageEntry& image, int imageSize);

/** Plans to render: the images that they read, and where their pixels go. */
struct Rendering {
  /** The split's file, or the bytes of it that the plans read. */
  const uint8_t* file;
  /** The images' stencils, `stencilBytes` each, read where a plan pastes. */
  const uint8_t* stencils;
  const Plan* plans;
  int count;
  /** Side of the images in pixels. */
  int size;
  /** [count, 3, size, size]: RGB in 0 to 1. */
  float* images;
};

/** Renders on `threads` threads of the CPU; stops halfway once `abandoned` is true. */
void renderCpu(const Rendering& rendering, int threads,
               const std::atomic<bool>* abandoned = nullptr);

#ifdef VANTAGE_CUDA
/**
 * Renders on the GPU: every pointer is device memory; `stream` is a cudaStream_t. Returns
 * cudaGetLastError of the launch.
 */
int renderCuda(const Rendering& rendering, void* stream);
#endif

}  // namespace vantage
