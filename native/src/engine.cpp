// An engine's construction, its weights and its forward passes. Training is in trainer.cpp,
// datasets and evaluation are in evaluation.cpp.
#include "engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <set>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "core.h"
#include "flags.h"
#include "safetensors.h"

namespace vantage {
namespace {

std::atomic<int64_t> enginesAlive{0};
/** Masks of an image that a prediction gives. */
constexpr size_t kMasksMax = 100;
/** First factor of the loss in fp16: 2^16, as is usual. */
constexpr double kLossScale = 65536;
constexpr int kStrideMax = kStrides[2], kSideMax = 8192, kImagesMax = 4096, kThreadsMax = 1024;

[[noreturn]] void refuse(const std::string& why) { throw EngineError("bad_argument", why); }

int coresOf() { return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1); }

const EngineOptions& checked(const EngineOptions& options) {
  check(options.graph);
  if (options.threads < 1 || options.threads > kThreadsMax) refuse("threads must be 1 to 1024");
  if (options.training && options.graph.o2m.box.empty()) refuse("a deployed graph does not train");
  if (options.training && options.graph.hasMasks() && options.graph.semantic < 0)
    refuse("a graph with masks does not train without its semantic map");
  // OpenMP keeps the number of threads by calling thread: this is the engine's own. More threads
  // than cores never pay, and where the system gives no more of them OpenMP ends the process.
  at::set_num_threads(std::clamp(options.threads, 1, coresOf()));
  return options;
}

at::Device openedDevice(const std::string& name) {
  const at::Device device = deviceOf(name);
  // An engine is one thread's: so all that it does is on that stream.
  useOwnStream(device);
  return device;
}

at::ScalarType scalarOf(const std::string& dtype) {
  static const std::map<std::string, at::ScalarType> types = {
      {"F32", at::kFloat},  {"F16", at::kHalf}, {"BF16", at::kBFloat16},
      {"F64", at::kDouble}, {"I64", at::kLong}, {"I32", at::kInt},
      {"I16", at::kShort},  {"U8", at::kByte},  {"I8", at::kChar},
  };
  const auto found = types.find(dtype);
  if (found == types.end())
    throw EngineError("bad_weights", "weights of type " + dtype + " are not read");
  return found->second;
}

/** A copy as fp32: a file's tensors need not be aligned. */
at::Tensor tensorOf(const StoredTensor& stored) {
  at::Tensor tensor = at::empty(stored.shape, scalarOf(stored.dtype));
  if (stored.bytes > 0) std::memcpy(tensor.data_ptr(), stored.data, stored.bytes);
  return tensor.to(at::kFloat);
}

const NamedTensor* find(const std::vector<NamedTensor>& state, const std::string& name) {
  const auto found = std::find_if(state.begin(), state.end(),
                                  [&](const NamedTensor& entry) { return entry.name == name; });
  return found == state.end() ? nullptr : &*found;
}

HeadValues headValues(const BranchMaps& maps) {
  HeadValues values;
  const auto copy = [](const std::vector<at::Tensor>& from, std::vector<TensorValues>& to) {
    for (const at::Tensor& map : from) to.push_back(valuesOf(map));
  };
  copy(maps.box, values.box);
  copy(maps.cls, values.cls);
  copy(maps.mask, values.mask);
  return values;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

Description describe() {
  Description description;
  description.torch = torchVersion();
  description.torchSource = torchSource();
  description.gpus = gpus();
#ifdef VANTAGE_CUDA
  description.cudaKernels = true;
#endif
  description.cpuBf16 = hasCpuBf16();
  // Engines run on the first GPU.
  description.bf16 = !description.gpus.empty() && description.gpus[0].bf16;
  return description;
}

LiveCounts alive() { return {enginesAlive.load(), gpuBytes()}; }

EngineError errorOf(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const EngineError& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {"out_of_memory", "the machine's memory does not suffice"};
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const std::string line = text.substr(0, text.find('\n'));
    if ((contains(text, "CUDA") && contains(text, "out of memory")) ||
        contains(text, "_STATUS_ALLOC_FAILED"))
      return {"gpu_out_of_memory", line};
    if (contains(text, "not enough memory") || contains(text, "can't allocate memory"))
      return {"out_of_memory", line};
    return {"internal", line};
  } catch (const std::exception& error) {
    return {"internal", error.what()};
  } catch (...) {
    return {"internal", "something that is no exception was thrown"};
  }
}

TensorValues valuesOf(const at::Tensor& tensor) {
  const at::Tensor local = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* values = local.data_ptr<float>();
  return {local.sizes().vec(), {values, values + local.numel()}};
}

EngineCore::EngineCore(const EngineOptions& given)
    : options(checked(given)),
      device(openedDevice(options.device)),
      network(options.graph, device, options.seed) {
  network.setPrecision(options.precision);
  network.setFusedNorm(options.fusedNorm);
  network.setChannelsLast(options.channelsLast.value_or(device.is_cuda() || options.fusedNorm));
  if (options.precision == Precision::fp16) {
    if (!device.is_cuda()) refuse("fp16 is for GPUs");
    if (options.settings.lossScale == 0) options.settings.lossScale = kLossScale;
  }
  // Batches have few shapes, so cuDNN measures once a shape which algorithm of a convolution is
  // fastest.
  if (device.is_cuda()) at::globalContext().setBenchmarkCuDNN(kEnabled);
  network.setStop(options.interrupted);
  if (!options.training) return;
  keepStepMemory(device);
  network.freeze(options.settings.freeze);
  training =
      std::make_unique<Training>(network.state(), options.settings, options.precision,
                                 options.graph.lossItems());
  if (options.recorded.value_or(canRecord(device)))
    recorded = std::make_unique<RecordedPasses>(network);
}

void EngineCore::needsTraining() const {
  if (!training) refuse("this engine was made without `training`");
}

void EngineCore::needsNoGroup() const {
  if (group || isGroupLost) refuse("this engine trains as one with others");
}

void EngineCore::leaveGroup() {
  network.setGroup(nullptr);
  buckets.reset();
  group.reset();
  isGroupLost = true;
}

void EngineCore::checkShape(const BatchView& batch) {
  const auto isSide = [](int side) {
    return side >= kStrideMax && side <= kSideMax && side % kStrideMax == 0;
  };
  if (batch.count < 1 || batch.count > kImagesMax) refuse("a batch is 1 to 4096 images");
  if (!isSide(batch.height) || !isSide(batch.width))
    refuse("width and height must be multiples of 32 up to 8192");
}

at::Tensor EngineCore::images(const BatchView& batch) const {
  checkShape(batch);
  const at::Tensor view = at::from_blob(const_cast<float*>(batch.images),
                                        {batch.count, 3, batch.height, batch.width}, at::kFloat);
  return view.to(device);
}

Engine::Engine(const EngineOptions& options) : core_(std::make_unique<EngineCore>(options)) {
  ++enginesAlive;
}

Engine::~Engine() {
  const at::Device device = core_->device;
  core_.reset();
  releaseMemory(device);
  --enginesAlive;
}

int64_t Engine::parameters() const { return core_->network.parameters(); }

LoadReport Engine::load(const std::string& path) {
  const at::NoGradGuard guard;
  core_->needsNoGroup();
  const TensorFile file(path);
  LoadReport report;
  report.metadata = file.metadata();
  const auto& state = core_->network.state();
  std::set<std::string> met;
  std::vector<std::pair<at::Tensor, at::Tensor>> taken;
  for (const StoredTensor& stored : file.tensors()) {
    // Only training needs these tensors of a checkpoint.
    if (stored.name.rfind(kTrainerPrefix, 0) == 0) continue;
    const NamedTensor* entry = find(state, stored.name);
    if (!entry) {
      report.unused.push_back(stored.name);
      continue;
    }
    met.insert(stored.name);
    if (entry->tensor.sizes() != at::IntArrayRef(stored.shape)) {
      report.mismatched.push_back({stored.name, stored.shape, entry->tensor.sizes().vec()});
      continue;
    }
    taken.emplace_back(entry->tensor, tensorOf(stored));
    if (!at::isfinite(taken.back().second).all().item<bool>())
      throw EngineError("bad_weights", stored.name + " is not finite");
    report.matched.push_back(stored.name);
  }
  // All is read before anything is written over: a refusal leaves the engine as it was.
  for (auto& [own, values] : taken) own.copy_(values);
  for (const NamedTensor& entry : state)
    if (!met.count(entry.name)) report.missing.push_back(entry.name);
  // The average begins anew at the loaded weights.
  if (core_->training) core_->training->ema.reset();
  return report;
}

FileCopy Engine::save() const {
  const at::NoGradGuard guard;
  return copyOf(core_->evaluated());
}

MapValues Engine::forward(const BatchView& batch, bool training) {
  const at::NoGradGuard guard;
  const BatchNorm norm = training ? BatchNorm::batch : BatchNorm::evaluation;
  const NetworkMaps maps = core_->network.forward(core_->images(batch), norm);
  MapValues values;
  values.hasO2m = !maps.o2m.box.empty();
  if (values.hasO2m) values.o2m = headValues(maps.o2m);
  values.o2o = headValues(maps.o2o);
  values.hasPrototypes = maps.prototypes.defined();
  if (values.hasPrototypes) values.prototypes = valuesOf(maps.prototypes);
  values.hasSemantic = maps.semantic.defined();
  if (values.hasSemantic) values.semantic = valuesOf(maps.semantic);
  return values;
}

Bitmap ImageDetections::mask(size_t box) const {
  const auto side = [&](int64_t dim) { return static_cast<int>(prototypes.size(dim)); };
  const Prototypes view{prototypes.data_ptr<float>(), side(0), side(1), side(2)};
  return predictedMask(view, weights.data() + box * static_cast<size_t>(view.count), boxes[box]);
}

void ImageDetections::cutAt(const Rectangle& rectangle) {
  const size_t ofBox = boxes.empty() ? 0 : weights.size() / boxes.size();
  size_t kept = 0;
  for (size_t box = 0; box < boxes.size(); ++box) {
    Detection cut = boxes[box];
    cut.x1 = std::clamp(cut.x1, rectangle.left, rectangle.right);
    cut.x2 = std::clamp(cut.x2, rectangle.left, rectangle.right);
    cut.y1 = std::clamp(cut.y1, rectangle.top, rectangle.bottom);
    cut.y2 = std::clamp(cut.y2, rectangle.top, rectangle.bottom);
    if (!(cut.x2 > cut.x1 && cut.y2 > cut.y1)) continue;
    const auto from = weights.begin() + static_cast<ptrdiff_t>(box * ofBox);
    std::copy(from, from + static_cast<ptrdiff_t>(ofBox),
              weights.begin() + static_cast<ptrdiff_t>(kept * ofBox));
    boxes[kept++] = cut;
  }
  boxes.resize(kept);
  weights.resize(kept * ofBox);
}

std::vector<ImageDetections> detect(Network& network, const at::Tensor& images, double confidence) {
  return detectionsOf(network.forward(images, BatchNorm::evaluation), confidence);
}

std::vector<ImageDetections> detectionsOf(const NetworkMaps& maps, double confidence) {
  const auto [boxes, scores] = decode(maps.o2o);
  const BestDetections best = endToEnd(boxes, scores);
  const auto local = [](const at::Tensor& of) { return of.to(at::kCPU, at::kFloat).contiguous(); };
  const at::Tensor rows = local(best.rows);
  at::Tensor weights, prototypes;
  if (maps.prototypes.defined()) {
    std::vector<at::Tensor> levels;
    for (const at::Tensor& map : maps.o2o.mask) levels.push_back(map.flatten(2).transpose(1, 2));
    const at::Tensor all = at::cat(levels, 1);
    weights = local(all.gather(1, best.anchors.unsqueeze(2).expand({-1, -1, all.size(2)})));
    prototypes = local(maps.prototypes);
  }
  const float* row = rows.data_ptr<float>();
  std::vector<ImageDetections> detections(static_cast<size_t>(rows.size(0)));
  for (size_t image = 0; image < detections.size(); ++image) {
    ImageDetections& found = detections[image];
    if (prototypes.defined()) found.prototypes = prototypes[static_cast<int64_t>(image)];
    for (int64_t i = 0; i < rows.size(1); ++i, row += 6) {
      if (!(row[4] >= confidence)) continue;
      found.boxes.push_back({row[0], row[1], row[2], row[3], row[4], row[5]});
      if (!weights.defined()) continue;
      const int64_t count = weights.size(2);
      const float* of =
          weights.data_ptr<float>() + (static_cast<int64_t>(image) * rows.size(1) + i) * count;
      found.weights.insert(found.weights.end(), of, of + count);
    }
  }
  return detections;
}

std::vector<std::vector<Detection>> Engine::predict(const BatchView& batch, double confidence) {
  const at::NoGradGuard guard;
  Network network = core_->network.deployed(core_->evaluated());
  std::vector<std::vector<Detection>> boxes;
  for (ImageDetections& image : detect(network, core_->images(batch), confidence))
    boxes.push_back(std::move(image.boxes));
  return boxes;
}

std::vector<MaskedImage> Engine::predictMasks(const BatchView& batch, double confidence) {
  const at::NoGradGuard guard;
  if (!core_->network.graph().hasMasks()) refuse("a graph of detection predicts no masks");
  Network network = core_->network.deployed(core_->evaluated());
  std::vector<MaskedImage> images;
  for (ImageDetections& image : detect(network, core_->images(batch), confidence)) {
    // The most confident come first.
    image.boxes.resize(std::min(image.boxes.size(), kMasksMax));
    MaskedImage masked;
    for (size_t box = 0; box < image.boxes.size(); ++box) {
      const Bitmap mask = image.mask(box);
      for (int y = 0; y < mask.height(); ++y)
        for (int x = 0; x < mask.width(); ++x) masked.masks.push_back(mask.at(x, y));
    }
    masked.boxes = std::move(image.boxes);
    images.push_back(std::move(masked));
  }
  return images;
}

TensorValues Engine::tensor(const std::string& name, const std::string& of) {
  const bool average = of == "ema";
  if (average) core_->needsTraining();
  const NamedTensor* entry =
      find(average ? core_->training->ema.state() : core_->network.state(), name);
  if (!entry) refuse("there is no tensor " + name);
  if (of != "gradient") return valuesOf(entry->tensor);
  const at::Tensor gradient = entry->tensor.grad();
  return valuesOf(gradient.defined() ? gradient : at::zeros_like(entry->tensor));
}

}  // namespace vantage
