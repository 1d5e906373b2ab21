// Making batches ahead: the background thread plans and, on the CPU, renders; with our kernel it
// gathers the images' bytes unless all of them lie on the GPU, and the kernel runs on the stream of
// the step that reads its pixels, so that nothing has to be waited for.
#include "batches.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>

#include "device.h"
#include "error.h"

namespace vantage {
namespace {

/** A split's file lies on the GPU as a whole up to this share of what is free there. */
constexpr double kUploadShare = 0.3;
/** Threads of a step on the CPU for each one that renders beside it. */
constexpr int kStepThreads = 8;
/** Who waits for a batch looks so often whether it is still wanted. */
constexpr std::chrono::milliseconds kLookEvery{20};

at::Tensor uploadable(const ImageFile& file, at::Device device) {
#ifdef VANTAGE_CUDA
  if (device.is_cuda() &&
      static_cast<double>(file.bytes()) < kUploadShare * static_cast<double>(gpuFreeBytes()))
    return at::from_blob(const_cast<uint8_t*>(file.data()), {file.bytes()}, at::kByte).to(device);
#endif
  (void)file, (void)device;
  return {};
}

/** Our kernel renders; without it the CPU does, for a GPU too. */
bool rendersOnGpu(const at::Device& device) {
#ifdef VANTAGE_CUDA
  return device.is_cuda();
#else
  (void)device;
  return false;
#endif
}

at::Tensor hostBytes(int64_t bytes, bool pinned) {
  return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(pinned));
}

/** The bytes of the images that plans read, one after the other; the plans then point there. */
at::Tensor gather(const ImageFile& file, std::vector<Plan>& plans) {
  using Range = std::pair<int64_t, int64_t>;
  std::map<Range, int64_t> placed;
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
    if (placed.emplace(range, bytes).second) bytes += range.second;
  });
  at::Tensor gathered = hostBytes(bytes, true);
  for (const auto& [range, at] : placed)
    std::memcpy(gathered.data_ptr<uint8_t>() + at, file.data() + range.first,
                static_cast<size_t>(range.second));
  eachPatch([&](Patch& patch) { patch.offset = placed[rangeOf(patch)]; });
  return gathered;
}

at::Tensor padded(const std::vector<std::vector<Truth>>& boxes, at::Device device) {
  size_t most = 1;
  for (const auto& image : boxes) most = std::max(most, image.size());
  // From other memory than pinned the copy would wait for all that the GPU was given before it.
  at::Tensor truths = at::zeros({static_cast<int64_t>(boxes.size()), static_cast<int64_t>(most), 5},
                                at::TensorOptions(at::kFloat).pinned_memory(device.is_cuda()));
  truths.select(2, 0).fill_(-1);
  static_assert(sizeof(Truth) == 5 * sizeof(float), "a truth is a row of the tensor");
  for (size_t i = 0; i < boxes.size(); i++)
    if (!boxes[i].empty())
      std::memcpy(truths.data_ptr<float>() + i * most * 5, boxes[i].data(),
                  boxes[i].size() * sizeof(Truth));
  return truths.to(device, at::kFloat, device.is_cuda());
}

}  // namespace

Split::Split(const std::string& path, std::vector<ImageEntry> images, int classes,
             at::Device device)
    : file_(path, std::move(images), classes), device_(device) {
  uploaded_ = uploadable(file_, device);
}

BatchSource::BatchSource(const Split& split, BatchRange range,
                         std::function<PlannedImage(int)> plan)
    : split_(split), range_(range), plan_(std::move(plan)), next_(range.from) {
  // On the CPU the step has the cores; an image takes it some forty times as long as it takes us.
  if (!split.device().is_cuda()) range_.threads = std::max(1, range_.threads / kStepThreads);
  begin();
}

void BatchSource::begin() {
  if (next_ >= batches()) return;
  at::Tensor& pixels = pixels_[next_ % 2];
  if (!pixels.defined() && !rendersOnGpu(split_.device()))
    pixels = at::empty({std::min(range_.batch, range_.images), 3, range_.size, range_.size},
                       at::TensorOptions(at::kFloat).pinned_memory(split_.device().is_cuda()));
  pending_ = std::async(std::launch::async,
                        [this, batch = next_, pixels] { return prepare(batch, pixels); });
}

BatchSource::Prepared BatchSource::prepare(int batch, at::Tensor pixels) const {
  const int first = batch * range_.batch;
  const int count = std::min(range_.batch, range_.images - first);
  Prepared prepared;
  split_.file().checkLength();
  for (int i = 0; i < count; i++) {
    PlannedImage image = plan_(first + i);
    prepared.plans.push_back(image.plan);
    prepared.boxes.push_back(std::move(image.truths));
  }
  if (pixels.defined()) {
    prepared.pixels = pixels.narrow(0, 0, count);
    renderCpu(split_.file().data(), prepared.plans.data(), count, range_.size,
              pixels.data_ptr<float>(), range_.threads, &abandoned_);
  } else if (!split_.uploaded().defined()) {
    prepared.gathered = gather(split_.file(), prepared.plans);
  }
  return prepared;
}

std::optional<DeviceBatch> BatchSource::next(const std::function<bool()>& isStopped) {
  if (next_ >= batches()) return std::nullopt;
  while (pending_.wait_for(kLookEvery) != std::future_status::ready)
    if (isStopped && isStopped()) return std::nullopt;
  Prepared prepared = pending_.get();
  next_++;
  begin();
  const at::Device device = split_.device();
  DeviceBatch batch{{}, padded(prepared.boxes, device), std::move(prepared.boxes)};
  if (prepared.pixels.defined()) {
    // The copy is waited for, so that its pixels may be overwritten later.
    batch.images = device.is_cuda() ? prepared.pixels.to(device) : prepared.pixels;
    return batch;
  }
#ifdef VANTAGE_CUDA
  const auto count = static_cast<int64_t>(prepared.plans.size());
  at::Tensor plans = hostBytes(count * static_cast<int64_t>(sizeof(Plan)), true);
  std::memcpy(plans.data_ptr(), prepared.plans.data(), prepared.plans.size() * sizeof(Plan));
  const at::Tensor onGpu = plans.to(device, at::kByte, true);
  const at::Tensor file = prepared.gathered.defined()
                              ? prepared.gathered.to(device, at::kByte, true)
                              : split_.uploaded();
  batch.images =
      at::empty({count, 3, range_.size, range_.size}, at::TensorOptions(device).dtype(at::kFloat));
  const int failed = renderCuda(
      file.data_ptr<uint8_t>(), reinterpret_cast<const Plan*>(onGpu.data_ptr<uint8_t>()),
      static_cast<int>(count), range_.size, batch.images.data_ptr<float>(), currentStream(device));
  if (failed)
    throw EngineError("internal", "rendering failed: CUDA error " + std::to_string(failed));
#endif
  return batch;
}

BatchSource trainingBatches(const Split& split, int epoch, int from, uint64_t seed,
                            const TrainingSettings& settings, int threads) {
  auto order = std::make_shared<const std::vector<int>>(shuffled(split.images(), seed, epoch));
  const BatchRange range{split.images(), settings.batch, from, settings.imageSize, threads};
  return {split, range, [&file = split.file(), order, epoch, seed, settings](int place) {
            return planTraining(file, *order, place, epoch, seed, settings);
          }};
}

BatchSource letterboxedBatches(const Split& split, int batch, int imageSize, int threads) {
  const BatchRange range{split.images(), batch, 0, imageSize, threads};
  return {split, range, [&file = split.file(), imageSize](int place) {
            return planLetterbox(file.images()[place], imageSize);
          }};
}

}  // namespace vantage
