// Making batches ahead: the background thread plans and, on the CPU, renders; for a GPU it gathers
// the images' bytes unless all of them lie there, and these are rendered on the stream of the step
// that reads the pixels, so that nothing has to be waited for.
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
#include "render-torch.h"

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
at::Tensor pinnedBytes(int64_t bytes, bool isPinned = kPinned) {
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
      for (int l = 0; l < plan.layers; l++)
        for (int p = 0; p < plan.layer[l].patches; p++) visit(plan.layer[l].patch[p]);
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

/** The bits of rings' masks, image after image, [n, size / 4, size / 32] on the CPU. */
at::Tensor masksOf(const std::vector<std::vector<Ring>>& rings, int size, bool isPinned) {
  const int side = size / kMaskStride, bytes = side / kMaskBits;
  int64_t count = 0;
  for (const auto& image : rings) count += static_cast<int64_t>(image.size());
  const at::Tensor masks =
      at::zeros({count, side, bytes}, at::TensorOptions(at::kByte).pinned_memory(isPinned));
  uint8_t* to = masks.data_ptr<uint8_t>();
  for (const auto& image : rings)
    for (const Ring& ring : image) {
      // Words of a row begin with their lowest bits, as bytes do where memory is little-endian.
      if (!ring.empty()) {
        const Bitmap bitmap = drawn(ring, side, side, kMaskStride);
        for (int y = 0; y < side; y++) std::memcpy(to + y * bytes, bitmap.row(y), bytes);
      }
      to += side * bytes;
    }
  return masks;
}

std::vector<int64_t> countsOf(const std::vector<std::vector<Truth>>& boxes) {
  std::vector<int64_t> counts;
  for (const auto& image : boxes) counts.push_back(static_cast<int64_t>(image.size()));
  return counts;
}

at::Tensor padded(const std::vector<std::vector<Truth>>& boxes, at::Device device) {
  size_t objectsMax = 1;
  for (const auto& image : boxes) objectsMax = std::max(objectsMax, image.size());
  // A copy from memory that is not pinned would wait for all that was launched before it.
  at::Tensor truths =
      at::zeros({static_cast<int64_t>(boxes.size()), static_cast<int64_t>(objectsMax), 5},
                at::TensorOptions(at::kFloat).pinned_memory(device.is_cuda()));
  truths.select(2, 0).fill_(-1);
  static_assert(sizeof(Truth) == 5 * sizeof(float), "a truth is a row of the tensor");
  for (size_t i = 0; i < boxes.size(); i++)
    if (!boxes[i].empty())
      std::memcpy(truths.data_ptr<float>() + i * objectsMax * 5, boxes[i].data(),
                  boxes[i].size() * sizeof(Truth));
  return truths.to(device, at::kFloat, kNonBlocking && device.is_cuda());
}

}  // namespace

Split::Split(const std::string& path, std::vector<ImageEntry> images, int classes,
             at::Device device)
    : file_(path, std::move(images), classes), device_(device) {
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

void BatchSource::begin() {
  if (next_ >= batches()) return;
  at::Tensor& pixels = pixels_[next_ % 2];
  if (!pixels.defined() && renderer_ == Renderer::cpu)
    pixels = at::empty({std::min(range_.batch, range_.images), 3, range_.size, range_.size},
                       at::TensorOptions(at::kFloat).pinned_memory(split_.device().is_cuda()));
  pending_ = std::async(std::launch::async,
                        [this, batch = next_, pixels] { return prepare(batch, pixels); });
}

BatchSource::PreparedBatch BatchSource::prepare(int batch, at::Tensor pixels) const {
  const int begin = batch * range_.batch;
  const int whole = std::min(range_.batch, range_.images - begin);
  const auto [rank, size] = range_.share;
  const int first = begin + whole * rank / size;
  const int own = begin + whole * (rank + 1) / size - first;
  const int count = std::max(own, 1);
  PreparedBatch prepared;
  prepared.whole = whole;
  prepared.isStandIn = own == 0;
  split_.file().checkLength();
  for (int i = 0; i < count; i++) {
    PlannedImage image = plan_(first + i);
    prepared.plans.push_back(image.plan);
    prepared.boxes.push_back(std::move(image.truths));
    prepared.rings.push_back(std::move(image.rings));
  }
  if (range_.hasMasks)
    prepared.masks = masksOf(prepared.rings, range_.size, split_.device().is_cuda());
  if (pixels.defined()) {
    prepared.pixels = pixels.narrow(0, 0, count);
    const Rendering rendering{split_.file().data(), prepared.plans.data(), count, range_.size,
                              pixels.data_ptr<float>()};
    renderCpu(rendering, range_.threads, &abandoned_);
  } else if (!split_.uploaded().defined()) {
    prepared.gathered = gather(split_.file(), prepared.plans, split_.device().is_cuda());
  }
  return prepared;
}

std::optional<DeviceBatch> BatchSource::next(const std::function<bool()>& isStopped) {
  if (next_ >= batches()) return std::nullopt;
  while (pending_.wait_for(kStopCheck) != std::future_status::ready)
    if (isStopped && isStopped()) return std::nullopt;
  PreparedBatch prepared = pending_.get();
  next_++;
  begin();
  const at::Device device = split_.device();
  DeviceBatch batch{{},
                    {padded(prepared.boxes, device), {}, countsOf(prepared.boxes)},
                    std::move(prepared.boxes),
                    std::move(prepared.rings),
                    prepared.whole,
                    prepared.isStandIn};
  if (prepared.masks.defined())
    batch.labels.masks = prepared.masks.to(device, at::kByte, kNonBlocking && device.is_cuda());
  if (prepared.pixels.defined()) {
    // A blocking copy, as the next batch but one overwrites these pixels.
    batch.images = device.is_cuda() ? prepared.pixels.to(device) : prepared.pixels;
    return batch;
  }
  const at::Tensor file =
      prepared.gathered.defined()
          ? prepared.gathered.to(device, at::kByte, kNonBlocking && device.is_cuda())
          : split_.uploaded();
  if (renderer_ == Renderer::torch) {
    batch.images = renderTorch(file, prepared.plans, range_.size);
    return batch;
  }
#ifdef VANTAGE_CUDA
  const auto count = static_cast<int64_t>(prepared.plans.size());
  at::Tensor plans = pinnedBytes(count * static_cast<int64_t>(sizeof(Plan)));
  std::memcpy(plans.data_ptr(), prepared.plans.data(), prepared.plans.size() * sizeof(Plan));
  const at::Tensor onGpu = plans.to(device, at::kByte, kNonBlocking);
  batch.images =
      at::empty({count, 3, range_.size, range_.size}, at::TensorOptions(device).dtype(at::kFloat));
  const Rendering rendering{file.data_ptr<uint8_t>(),
                            reinterpret_cast<const Plan*>(onGpu.data_ptr<uint8_t>()),
                            static_cast<int>(count), range_.size, batch.images.data_ptr<float>()};
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
  const BatchRange range{split.images(), settings.batch, from,  settings.imageSize,
                         threads,        hasMasks,       share, renderer};
  return {
      split, range,
      [&file = split.file(), order, epoch = batches.epoch, seed = batches.seed, settings](
          int position) { return planTraining(file, *order, {seed, epoch, position}, settings); }};
}

BatchSource letterboxedBatches(const Split& split, int batch, int imageSize, int threads) {
  const BatchRange range{split.images(), batch, 0, imageSize, threads};
  return {split, range, [&file = split.file(), imageSize](int index) {
            return planLetterbox(file.images()[index], imageSize);
          }};
}

}  // namespace vantage
