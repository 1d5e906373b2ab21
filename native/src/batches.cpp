// Making batches ahead: the background thread plans and, on the CPU, renders; for a GPU it gathers
// the images' bytes unless all of them lie there, and copies what the batch has beside the step
// that is under way. They are rendered on the stream of the step that reads the pixels, so that the
// host has nothing to wait for.
#include "batches.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>

#include "device.h"
#include "error.h"
#include "flags.h"
#include "mask.h"
#include "paste.h"
#include "render-torch.h"
#include "schedule.h"

namespace vantage {
namespace {

/** A split's file is copied to the GPU as a whole up to this share of the memory free there. */
constexpr double kUploadShare = 0.3;
/** For so many threads of a step on the CPU, one thread renders beside it. */
constexpr int kStepThreads = 8;
/** How often a wait for a batch checks whether it was stopped. */
constexpr std::chrono::milliseconds kStopCheck{20};

at::Tensor uploadable(const ImageFile& file, at::Device device) {
  if (device.is_cuda() &&
      static_cast<double>(file.bytes()) < kUploadShare * static_cast<double>(freeBytes(device)))
    return at::from_blob(const_cast<uint8_t*>(file.data()), {file.bytes()}, at::kByte).to(device);
  return {};
}

Renderer fastestOn(const at::Device& device) {
  if (!device.is_cuda()) return Renderer::cpu;
#ifdef VANTAGE_CUDA
  return Renderer::kernel;
#else
  return Renderer::torch;
#endif
}

/** Memory of the host that a GPU copies from without a wait. */
at::Tensor pinnedBytes(int64_t bytes, bool isPinned) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(isPinned));
}

/**
 * Copies the bytes of the images that plans read, one image after another, and has the plans read
 * the copy.
 */
at::Tensor gather(const ImageFile& file, std::vector<Plan>& plans, bool isPinned) {
  using Range = std::pair<int64_t, int64_t>;
  std::map<Range, int64_t> offsets;
  int64_t bytes = 0;
  const auto rangeOf = [](const Patch& patch) {
    return Range{patch.offset, int64_t{3} * patch.width * patch.height};
  };
  const auto eachPatch = [&plans](auto visit) {
    for (Plan& plan : plans)
      for (Layer* layer : {&plan.layer[0], &plan.layer[1], &plan.paste})
        for (int p = 0; p < layer->patches; p++) visit(layer->patch[p]);
  };
  eachPatch([&](const Patch& patch) {
    const Range range = rangeOf(patch);
    if (offsets.emplace(range, bytes).second) bytes += range.second;
  });
  at::Tensor gathered = pinnedBytes(bytes, isPinned);
  for (const auto& [range, offset] : offsets)
    std::memcpy(gathered.data_ptr<uint8_t>() + offset, file.data() + range.first,
                static_cast<size_t>(range.second));
  eachPatch([&](Patch& patch) { patch.offset = offsets[rangeOf(patch)]; });
  return gathered;
}

/** Row after row without gaps; the width is a multiple of eight. */
void copyBits(const Bitmap& bitmap, uint8_t* to) {
  const int bytes = bitmap.width() / 8;
  // Words of a row begin with their lowest bits, as bytes do where memory is little-endian.
  for (int y = 0; y < bitmap.height(); y++) std::memcpy(to + y * bytes, bitmap.row(y), bytes);
}

/** The bits of objects' masks, image after image, [n, size / 4, size / 32] on the CPU. */
at::Tensor maskBits(const std::vector<PlannedImage>& images, int size, bool isPinned) {
  const int side = size / kMaskStride, bytes = side / kMaskBits;
  int64_t count = 0;
  for (const PlannedImage& image : images) count += static_cast<int64_t>(image.rings.size());
  const at::Tensor masks =
      at::zeros({count, side, bytes}, at::TensorOptions(at::kByte).pinned_memory(isPinned));
  uint8_t* to = masks.data_ptr<uint8_t>();
  for (const PlannedImage& image : images) {
    for (const Bitmap& bitmap : masksOf(image, side, kMaskStride)) {
      copyBits(bitmap, to);
      to += side * bytes;
    }
  }
  return masks;
}

/** The stencils of images that have one, [n, bytes of a stencil]; undefined where none has. */
at::Tensor stencilsOf(const std::vector<PlannedImage>& images, int size, bool isPinned) {
  const auto has = [](const PlannedImage& image) { return image.stencil.has_value(); };
  if (std::none_of(images.begin(), images.end(), has)) return {};
  const at::Tensor stencils = at::zeros({static_cast<int64_t>(images.size()), stencilBytes(size)},
                                        at::TensorOptions(at::kByte).pinned_memory(isPinned));
  for (size_t i = 0; i < images.size(); i++)
    if (has(images[i]))
      copyBits(*images[i].stencil,
               stencils.data_ptr<uint8_t>() + static_cast<int64_t>(i) * stencilBytes(size));
  return stencils;
}

/** What the images of plans cover: of one that is laid alone, its rectangle. */
std::vector<Rectangle> coveredBy(const std::vector<Plan>& plans) {
  std::vector<Rectangle> covered;
  for (const Plan& plan : plans) {
    const Patch& patch = plan.layer[0].patch[0];
    covered.push_back({patch.left, patch.top, patch.right, patch.bottom});
  }
  return covered;
}

std::vector<int64_t> countsOf(const std::vector<std::vector<Truth>>& boxes) {
  std::vector<int64_t> counts;
  for (const auto& image : boxes) counts.push_back(static_cast<int64_t>(image.size()));
  return counts;
}

/** The boxes of images, [n, objects, 5]; of fewer objects the rest has class −1. */
at::Tensor padded(const std::vector<std::vector<Truth>>& boxes, bool isPinned) {
  size_t objectsMax = 1;
  for (const auto& image : boxes) objectsMax = std::max(objectsMax, image.size());
  at::Tensor truths =
      at::zeros({static_cast<int64_t>(boxes.size()), static_cast<int64_t>(objectsMax), 5},
                at::TensorOptions(at::kFloat).pinned_memory(isPinned));
  truths.select(2, 0).fill_(-1);
  static_assert(sizeof(Truth) == 5 * sizeof(float), "a truth is a row of the tensor");
  for (size_t i = 0; i < boxes.size(); i++)
    if (!boxes[i].empty())
      std::memcpy(truths.data_ptr<float>() + i * objectsMax * 5, boxes[i].data(),
                  boxes[i].size() * sizeof(Truth));
  return truths;
}

}  // namespace

Split::Split(const std::string& path, std::vector<ImageEntry> images, int classes,
             at::Device device)
    : file_(path, std::move(images), classes), device_(device), uploads_(device) {
  uploaded_ = uploadable(file_, device);
}

BatchSource::BatchSource(const Split& split, BatchRange range,
                         std::function<PlannedImage(int)> plan)
    : split_(split),
      range_(range),
      renderer_(range.renderer.value_or(fastestOn(split.device()))),
      plan_(std::move(plan)),
      next_(range.from) {
  // On a CPU the cores are for the step: an image costs it some forty times what rendering costs.
  if (!split.device().is_cuda()) range_.threads = std::max(1, range_.threads / kStepThreads);
  begin();
}

at::Tensor BatchSource::pixelBuffer() const {
  return at::empty({std::min(range_.batch, range_.images), 3, range_.sizeMax, range_.sizeMax},
                   at::TensorOptions(at::kFloat).pinned_memory(split_.device().is_cuda()));
}

void BatchSource::begin() {
  if (next_ >= batches()) return;
  at::Tensor& buffer = buffers_[next_ % 2];
  if (!buffer.defined() && renderer_ == Renderer::cpu && !split_.device().is_cuda())
    buffer = pixelBuffer();
  pending_ = std::async(std::launch::async,
                        [this, batch = next_, buffer] { return prepare(batch, buffer); });
}

BatchSource::PreparedBatch BatchSource::prepare(int batch, const at::Tensor& buffer) const {
  const int begin = batch * range_.batch;
  const int whole = std::min(range_.batch, range_.images - begin);
  const auto [rank, size] = range_.share;
  const int first = begin + whole * rank / size;
  const int own = begin + whole * (rank + 1) / size - first;
  const int count = std::max(own, 1);
  PreparedBatch prepared;
  prepared.whole = whole;
  prepared.size = range_.sizeOf(batch);
  prepared.isStandIn = own == 0;
  split_.file().checkLength();
  std::vector<PlannedImage> images;
  for (int i = 0; i < count; i++) images.push_back(plan_(first + i));
  const bool isPinned = split_.device().is_cuda();
  at::Tensor masks;
  if (range_.hasMasks) masks = maskBits(images, prepared.size, isPinned);
  const at::Tensor stencils = stencilsOf(images, prepared.size, isPinned);
  for (PlannedImage& image : images) {
    prepared.plans.push_back(image.plan);
    prepared.boxes.push_back(std::move(image.truths));
    prepared.rings.push_back(std::move(image.rings));
  }
  const Uploads& uploads = split_.uploads();
  prepared.truths = uploads.begin(padded(prepared.boxes, isPinned));
  prepared.masks = uploads.begin(masks);
  if (renderer_ == Renderer::cpu) {
    const int64_t side = prepared.size;
    // What a GPU copies is not filled again before it was copied: torch's pool of pinned memory
    // sees to that.
    const at::Tensor all = buffer.defined() ? buffer : pixelBuffer();
    const at::Tensor pixels =
        all.view(-1).narrow(0, 0, count * 3 * side * side).view({count, 3, side, side});
    const Rendering rendering{
        split_.file().data(),  stencils.defined() ? stencils.data_ptr<uint8_t>() : nullptr,
        prepared.plans.data(), count,
        prepared.size,         pixels.data_ptr<float>()};
    renderCpu(rendering, range_.threads, &abandoned_);
    prepared.pixels = uploads.begin(pixels);
  } else {
    prepared.stencils = uploads.begin(stencils);
    if (!split_.uploaded().defined())
      prepared.gathered = uploads.begin(gather(split_.file(), prepared.plans, isPinned));
    // They read the gathered bytes by now.
    if (renderer_ == Renderer::kernel) {
      const size_t bytes = prepared.plans.size() * sizeof(Plan);
      const at::Tensor plans = pinnedBytes(static_cast<int64_t>(bytes), isPinned);
      std::memcpy(plans.data_ptr(), prepared.plans.data(), bytes);
      prepared.planBytes = uploads.begin(plans);
    }
  }
  prepared.copied = uploads.mark();
  return prepared;
}

std::optional<DeviceBatch> BatchSource::next(const std::function<bool()>& isStopped) {
  if (next_ >= batches()) return std::nullopt;
  while (pending_.wait_for(kStopCheck) != std::future_status::ready)
    if (isStopped && isStopped()) return std::nullopt;
  PreparedBatch prepared = pending_.get();
  next_++;
  begin();
  split_.uploads().await(prepared.copied,
                         {prepared.truths, prepared.masks, prepared.pixels, prepared.stencils,
                          prepared.gathered, prepared.planBytes});
  const std::vector<int64_t> counts = countsOf(prepared.boxes);
  DeviceBatch batch{prepared.pixels,
                    {prepared.truths, prepared.masks, counts},
                    std::move(prepared.boxes),
                    std::move(prepared.rings),
                    coveredBy(prepared.plans),
                    prepared.whole,
                    prepared.isStandIn};
  if (renderer_ == Renderer::cpu) return batch;
  const at::Tensor file = prepared.gathered.defined() ? prepared.gathered : split_.uploaded();
  const at::Tensor& stencils = prepared.stencils;
  if (renderer_ == Renderer::torch) {
    batch.images = renderTorch({file, stencils}, prepared.plans, prepared.size);
    return batch;
  }
#ifdef VANTAGE_CUDA
  const at::Device device = split_.device();
  const auto count = static_cast<int64_t>(prepared.plans.size());
  const int side = prepared.size;
  batch.images = at::empty({count, 3, side, side}, at::TensorOptions(device).dtype(at::kFloat));
  const Rendering rendering{file.data_ptr<uint8_t>(),
                            stencils.defined() ? stencils.data_ptr<uint8_t>() : nullptr,
                            reinterpret_cast<const Plan*>(prepared.planBytes.data_ptr<uint8_t>()),
                            static_cast<int>(count),
                            side,
                            batch.images.data_ptr<float>()};
  const int failed = renderCuda(rendering, currentStream(device));
  if (failed)
    throw EngineError("internal", "rendering failed: CUDA error " + std::to_string(failed));
#endif
  return batch;
}

BatchSource trainingBatches(const Split& split, const TrainingSettings& settings,
                            const EpochBatches& batches) {
  const auto [epoch, from, seed, threads, hasMasks, share, renderer] = batches;
  auto order = std::make_shared<const std::vector<int>>(shuffled(split.images(), seed, epoch));
  BatchRange range{split.images(), settings.batch, from,    imageSizeMax(settings), {}, threads,
                   hasMasks,       share,          renderer};
  range.sizeOf = [epoch = batches.epoch, seed = batches.seed, settings](int batch) {
    return imageSizeAt(settings, seed, epoch, batch);
  };
  return {split, range,
          [&file = split.file(), order, epoch = batches.epoch, seed = batches.seed, settings,
           sizeOf = range.sizeOf](int position) {
            TrainingSettings ofBatch = settings;
            ofBatch.imageSize = sizeOf(position / settings.batch);
            return planTraining(file, *order, {seed, epoch, position}, ofBatch);
          }};
}

BatchSource letterboxedBatches(const Split& split, const LetterboxedBatches& batches) {
  const int imageSize = batches.imageSize;
  const auto sizeOf = [imageSize](int) { return imageSize; };
  const BatchRange range{split.images(), batches.batch,   0,               imageSize,
                         sizeOf,         batches.threads, batches.hasMasks};
  return {split, range, [&file = split.file(), imageSize](int index) {
            return planLetterbox(file.images()[index], imageSize);
          }};
}

}  // namespace vantage
