#include "convert.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace vantage {
namespace {

constexpr double kIntMax = std::numeric_limits<int>::max();
/** Of an array: a sparse one of four thousand million would take all memory. */
constexpr uint32_t kItemsMax = 10'000'000;
constexpr int kBoxNumbers = 6, kTruthNumbers = 5, kFoundNumbers = 6;

const std::map<std::string, Op> kOps = {
    {"input", Op::input},       {"conv", Op::conv},         {"conv_transpose", Op::conv_transpose},
    {"add", Op::add},           {"concat", Op::concat},     {"slice", Op::slice},
    {"max_pool", Op::max_pool}, {"upsample", Op::upsample}, {"attention", Op::attention},
    {"values", Op::values},     {"detach", Op::detach},
};

Node readNode(const Fields& from) {
  Node node;
  const std::string op = from.text("op");
  const auto found = kOps.find(op);
  if (found == kOps.end()) refuseArgument(from.at("op"), "is the unknown operation " + op);
  node.op = found->second;
  node.layer = from.integer("layer", 0, kIntMax);
  node.channels = from.integer("channels", 1, kIntMax);
  node.stride = from.integer("stride", 1, kIntMax);
  if (node.op == Op::add || node.op == Op::concat) node.inputs = from.integers("inputs");
  else if (node.op != Op::input) node.inputs = {from.integer("input", 0, kIntMax)};
  const auto read = [&](const char* name) { return from.integer(name, 0, kIntMax); };
  switch (node.op) {
    case Op::conv:
      node.kernel = read("kernel");
      node.step = read("step");
      node.groups = read("groups");
      node.normalized = from.flag("normalized");
      node.silu = from.flag("silu");
      [[fallthrough]];
    case Op::conv_transpose: node.name = from.text("name"); break;
    case Op::slice:
      node.from = read("from");
      node.to = read("to");
      break;
    case Op::max_pool: node.kernel = read("kernel"); break;
    case Op::upsample: node.factor = read("factor"); break;
    case Op::attention:
    case Op::values:
      node.heads = read("heads");
      node.key = read("key");
      node.value = read("value");
      break;
    default: break;
  }
  return node;
}

Branch readBranch(const Fields& from) {
  Branch branch{from.integers("box"), from.integers("cls"), {}};
  if (from.has("mask")) branch.mask = from.integers("mask");
  return branch;
}

Graph readGraph(const Fields& from) {
  Graph graph;
  graph.variant = from.text("variant");
  graph.task = from.text("task");
  graph.classes = from.integer("classes", 1, kIntMax);
  size_t place = 0;
  for (const Napi::Value& node : from.list("nodes"))
    graph.nodes.push_back(readNode({node, from.at("nodes") + "[" + std::to_string(place++) + "]"}));
  graph.o2o = readBranch(from.object("o2o"));
  if (from.has("o2m")) graph.o2m = readBranch(from.object("o2m"));
  if (from.has("prototypes")) graph.prototypes = from.integer("prototypes", 0, kIntMax);
  if (from.has("semantic")) graph.semantic = from.integer("semantic", 0, kIntMax);
  return graph;
}

Augmentation readAugmentation(const Fields& from) {
  Augmentation augmentation;
  const auto share = [&](const char* name) { return from.number(name, 0, 1); };
  augmentation.mosaic = share("mosaic");
  augmentation.mixup = share("mixup");
  augmentation.flipLeftRight = share("flipLeftRight");
  augmentation.flipUpDown = share("flipUpDown");
  augmentation.scale = share("scale");
  augmentation.translate = share("translate");
  augmentation.rotate = from.number("rotate", 0, 180);
  augmentation.shear = from.number("shear", 0, 89);
  augmentation.closeMosaic = from.integer("closeMosaic", 0, kIntMax);
  const std::vector<Napi::Value> hsv = from.list("hsv");
  if (hsv.size() != augmentation.hsv.size())
    refuseArgument(from.at("hsv"), "must be three numbers");
  for (size_t at = 0; at < hsv.size(); ++at) {
    const double value = hsv[at].IsNumber() ? hsv[at].ToNumber().DoubleValue() : -1;
    if (!(value >= 0 && value <= 1))
      refuseArgument(from.at("hsv"), "must be three numbers in 0 to 1");
    augmentation.hsv[at] = value;
  }
  return augmentation;
}

TrainingSettings::Optimizer readOptimizer(const Fields& from) {
  const std::string name = from.text("optimizer");
  if (name == "adamw") return TrainingSettings::Optimizer::adamw;
  if (name == "sgd") return TrainingSettings::Optimizer::sgd;
  if (name == "musgd") return TrainingSettings::Optimizer::musgd;
  refuseArgument(from.at("optimizer"), "is adamw, sgd or musgd");
}

TrainingSettings readTraining(const Fields& from) {
  TrainingSettings settings;
  const auto positive = [&](const char* name) { return from.number(name, 0, 1e9); };
  settings.optimizer = readOptimizer(from);
  settings.epochs = from.integer("epochs", 1, 1e6);
  settings.batch = from.integer("batch", 1, 4096);
  settings.imageSize = from.integer("imageSize", 32, 8192);
  if (settings.imageSize % 32 != 0)
    refuseArgument(from.at("imageSize"), "must be a multiple of 32");
  settings.lr0 = positive("lr0");
  settings.lrf = positive("lrf");
  settings.cosine = from.flag("cosine");
  settings.momentum = from.number("momentum", 0, 1);
  settings.weightDecay = positive("weightDecay");
  settings.warmupEpochs = positive("warmupEpochs");
  settings.warmupMomentum = from.number("warmupMomentum", 0, 1);
  settings.warmupBiasLr = positive("warmupBiasLr");
  settings.nominalBatch = from.integer("nominalBatch", 1, 1e6);
  settings.clipNorm = positive("clipNorm");
  settings.emaDecay = from.number("emaDecay", 0, 1);
  settings.emaUpdates = positive("emaUpdates");
  const Fields gains = from.object("gains");
  settings.boxGain = gains.number("box", 0, 1e6);
  settings.clsGain = gains.number("cls", 0, 1e6);
  settings.dflGain = gains.number("dfl", 0, 1e6);
  settings.augmentation = readAugmentation(from.object("augmentation"));
  return settings;
}

Napi::Float32Array readFloats(const Napi::Value& value, const std::string& where) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_float32_array)
    refuseArgument(where, "must be a Float32Array");
  return value.As<Napi::Float32Array>();
}

std::vector<Truth> readTruths(const Napi::Value& value, const std::string& where) {
  const Napi::Float32Array numbers = readFloats(value, where);
  if (numbers.ElementLength() % kTruthNumbers != 0)
    refuseArgument(where, "must be five numbers a box");
  std::vector<Truth> truths(numbers.ElementLength() / kTruthNumbers);
  const float* box = numbers.Data();
  for (Truth& truth : truths) {
    truth = {box[0], box[1], box[2], box[3], box[4]};
    box += kTruthNumbers;
  }
  return truths;
}

std::vector<Found> readFound(const Napi::Value& value, const std::string& where) {
  const Napi::Float32Array numbers = readFloats(value, where);
  if (numbers.ElementLength() % kFoundNumbers != 0)
    refuseArgument(where, "must be six numbers a detection");
  std::vector<Found> found(numbers.ElementLength() / kFoundNumbers);
  const float* at = numbers.Data();
  for (Found& detection : found) {
    detection = {at[0], at[1], at[2], at[3], at[4], at[5]};
    at += kFoundNumbers;
  }
  return found;
}

Napi::Float32Array floatArray(Napi::Env env, const float* values, size_t count) {
  Napi::Float32Array array = Napi::Float32Array::New(env, count);
  if (count > 0) std::memcpy(array.Data(), values, count * sizeof(float));
  return array;
}

Napi::Float32Array floatArray(Napi::Env env, const std::vector<float>& values) {
  return floatArray(env, values.data(), values.size());
}

template <typename Item, typename Convert>
Napi::Array arrayOf(Napi::Env env, const std::vector<Item>& items, Convert convert) {
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t at = 0; at < items.size(); ++at) array.Set(at, convert(items[at]));
  return array;
}

Napi::Array texts(Napi::Env env, const std::vector<std::string>& items) {
  return arrayOf(env, items, [&](const std::string& item) { return Napi::String::New(env, item); });
}

Napi::Array numbers(Napi::Env env, const std::vector<int64_t>& items) {
  return arrayOf(env, items,
                 [&](int64_t item) { return Napi::Number::New(env, static_cast<double>(item)); });
}

Napi::Object headMaps(Napi::Env env, const HeadValues& head) {
  Napi::Object object = Napi::Object::New(env);
  const auto maps = [&](const std::vector<TensorValues>& levels) {
    return arrayOf(env, levels, [&](const TensorValues& map) { return toJs(env, map); });
  };
  object["box"] = maps(head.box);
  object["cls"] = maps(head.cls);
  if (!head.mask.empty()) object["mask"] = maps(head.mask);
  return object;
}

}  // namespace

void refuseArgument(const std::string& where, const std::string& why) {
  throw EngineError("bad_argument", where + " " + why);
}

Fields::Fields(const Napi::Value& value, std::string path) : path_(std::move(path)) {
  if (!value.IsObject())
    refuseArgument(path_.empty() ? "the argument" : path_, "must be an object");
  object_ = value.As<Napi::Object>();
}

bool Fields::has(const char* name) const { return !object_.Get(name).IsUndefined(); }

double Fields::number(const char* name, double least, double most) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsNumber()) refuseArgument(at(name), "must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!(number >= least && number <= most)) refuseArgument(at(name), "is out of its range");
  return number;
}

int Fields::integer(const char* name, double least, double most) const {
  const double value = number(name, least, most);
  if (value != std::floor(value)) refuseArgument(at(name), "must be an integer");
  return static_cast<int>(value);
}

bool Fields::flag(const char* name) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsBoolean()) refuseArgument(at(name), "must be true or false");
  return value.As<Napi::Boolean>().Value();
}

std::string Fields::text(const char* name) const {
  return readText(object_.Get(name), at(name).c_str());
}

Fields Fields::object(const char* name) const { return {object_.Get(name), at(name)}; }

std::vector<Napi::Value> Fields::list(const char* name) const {
  const Napi::Value value = object_.Get(name);
  if (!value.IsArray()) refuseArgument(at(name), "must be an array");
  const Napi::Array array = value.As<Napi::Array>();
  std::vector<Napi::Value> items;
  const uint32_t length = array.Length();
  if (length > kItemsMax) refuseArgument(at(name), "is too long");
  for (uint32_t place = 0; place < length; ++place) items.push_back(array.Get(place));
  return items;
}

std::vector<int> Fields::integers(const char* name) const {
  std::vector<int> numbers;
  for (const Napi::Value& item : list(name)) {
    const double number = item.IsNumber() ? item.As<Napi::Number>().DoubleValue() : -1;
    if (!(number >= 0 && number <= kIntMax) || number != std::floor(number))
      refuseArgument(at(name), "must be places");
    numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

Napi::Float32Array Fields::floats(const char* name) const {
  return readFloats(object_.Get(name), at(name));
}

std::string readText(const Napi::Value& value, const char* name) {
  if (!value.IsString()) refuseArgument(name, "must be a string");
  return value.As<Napi::String>().Utf8Value();
}

std::map<std::string, std::string> readMetadata(const Napi::Value& value) {
  if (!value.IsObject()) refuseArgument("metadata", "must be an object");
  const Napi::Object object = value.As<Napi::Object>();
  if (value.IsArray() || value.IsTypedArray()) refuseArgument("metadata", "must be an object");
  const Napi::Array names = object.GetPropertyNames();
  std::map<std::string, std::string> metadata;
  for (uint32_t at = 0; at < names.Length(); ++at) {
    const std::string name = names.Get(at).ToString().Utf8Value();
    metadata[name] = readText(object.Get(name), ("metadata." + name).c_str());
  }
  return metadata;
}

EngineOptions readOptions(const Napi::Value& value) {
  const Fields from(value, "");
  EngineOptions options;
  options.graph = readGraph(from.object("graph"));
  options.device = from.text("device");
  if (options.device != "cpu" && options.device != "cuda")
    refuseArgument("device", "is cpu or cuda");
  options.seed = static_cast<int64_t>(from.number("seed", 0, 9007199254740991.0));
  options.threads = from.integer("threads", 1, 1024);
  if (from.has("precision")) {
    const std::string precision = from.text("precision");
    if (precision != "fp32" && precision != "bf16") refuseArgument("precision", "is fp32 or bf16");
    options.bf16 = precision == "bf16";
  }
  options.training = from.has("training");
  if (options.training) options.settings = readTraining(from.object("training"));
  return options;
}

std::vector<ImageEntry> readImages(const Fields& dataset) {
  std::vector<ImageEntry> images;
  size_t place = 0;
  for (const Napi::Value& value : dataset.list("images")) {
    const Fields from(value, dataset.at("images") + "[" + std::to_string(place++) + "]");
    ImageEntry image;
    image.offset = static_cast<int64_t>(from.number("offset", 0, 9007199254740991.0));
    image.width = from.integer("width", 1, 65536);
    image.height = from.integer("height", 1, 65536);
    image.truths = readTruths(from.value("boxes"), from.at("boxes"));
    images.push_back(std::move(image));
  }
  return images;
}

EvaluationInput readEvaluation(const Napi::Value& value) {
  const Fields from(value, "");
  EvaluationInput input;
  input.classes = from.integer("classes", 1, 10'000);
  for (const Napi::Value& detections : from.list("detections"))
    input.detections.push_back(readFound(detections, from.at("detections")));
  for (const Napi::Value& truths : from.list("truths"))
    input.truths.push_back(readTruths(truths, from.at("truths")));
  if (input.detections.size() != input.truths.size())
    refuseArgument("truths", "must be as many as detections");
  const auto classes = static_cast<float>(input.classes);
  const auto isClass = [&](float cls) { return cls >= 0 && cls < classes; };
  for (const auto& image : input.detections)
    for (const Found& found : image)
      if (!isClass(found.cls)) refuseArgument("detections", "name a class that is not there");
  for (const auto& image : input.truths)
    for (const Truth& truth : image)
      if (!isClass(truth.cls)) refuseArgument("truths", "name a class that is not there");
  return input;
}

BatchView OwnedBatch::view() const {
  return {images->data(),
          count,
          height,
          width,
          boxes ? boxes->data() : nullptr,
          boxes ? boxes->size() / kBoxNumbers : 0};
}

OwnedBatch readBatch(const Napi::Value& value, bool boxes) {
  const Fields from(value, "batch");
  OwnedBatch batch;
  batch.count = from.integer("count", 1, 4096);
  batch.height = from.integer("height", 1, 8192);
  batch.width = from.integer("width", 1, 8192);
  const auto copyOf = [](const Napi::Float32Array& array) {
    const float* values = array.Data();
    return std::make_shared<std::vector<float>>(values, values + array.ElementLength());
  };
  const Napi::Float32Array images = from.floats("images");
  if (images.ElementLength() != size_t{3} * batch.count * batch.height * batch.width)
    refuseArgument(from.at("images"), "must be count * 3 * height * width numbers");
  batch.images = copyOf(images);
  if (!boxes) return batch;
  const Napi::Float32Array numbers = from.floats("boxes");
  if (numbers.ElementLength() % kBoxNumbers != 0)
    refuseArgument(from.at("boxes"), "must be six numbers a box");
  batch.boxes = copyOf(numbers);
  for (size_t at = 0; at < batch.boxes->size(); at += kBoxNumbers) {
    const float image = (*batch.boxes)[at];
    if (!(image >= 0 && image < static_cast<float>(batch.count)))
      refuseArgument(from.at("boxes"), "names an image that is not in the batch");
  }
  return batch;
}

Napi::Value toJs(Napi::Env env, const TensorValues& tensor) {
  Napi::Object object = Napi::Object::New(env);
  object["shape"] = numbers(env, tensor.shape);
  object["values"] = floatArray(env, tensor.values);
  return object;
}

Napi::Value toJs(Napi::Env env, const MapValues& maps) {
  Napi::Object object = Napi::Object::New(env);
  if (maps.hasO2m) object["o2m"] = headMaps(env, maps.o2m);
  object["o2o"] = headMaps(env, maps.o2o);
  if (maps.hasPrototypes) object["prototypes"] = toJs(env, maps.prototypes);
  return object;
}

Napi::Value toJs(Napi::Env env, const LoadReport& report) {
  Napi::Object object = Napi::Object::New(env);
  object["matched"] = texts(env, report.matched);
  object["mismatched"] = arrayOf(env, report.mismatched, [&](const LoadReport::Mismatch& mismatch) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = mismatch.name;
    entry["file"] = numbers(env, mismatch.file);
    entry["graph"] = numbers(env, mismatch.graph);
    return entry;
  });
  object["missing"] = texts(env, report.missing);
  object["unused"] = texts(env, report.unused);
  object["metadata"] = toJs(env, report.metadata);
  return object;
}

Napi::Value toJs(Napi::Env env, const std::map<std::string, std::string>& metadata) {
  Napi::Object object = Napi::Object::New(env);
  for (const auto& [name, value] : metadata) object.Set(name, Napi::String::New(env, value));
  return object;
}

Napi::Value toJs(Napi::Env env, const LossItems& losses) {
  Napi::Object object = Napi::Object::New(env);
  object["total"] = losses.total;
  object["box"] = losses.box;
  object["cls"] = losses.cls;
  object["dfl"] = losses.dfl;
  return object;
}

Napi::Value toJs(Napi::Env env, const StepProgress& progress) {
  Napi::Object object = Napi::Object::New(env);
  object["epoch"] = progress.epoch;
  object["batch"] = progress.batch;
  object["batches"] = progress.batches;
  object["losses"] = toJs(env, progress.losses);
  object["lr"] = progress.lr;
  object["imagesPerSecond"] = progress.imagesPerSecond;
  object["memoryBytes"] = static_cast<double>(progress.memoryBytes);
  return object;
}

Napi::Value toJs(Napi::Env env, const EpochResult& result) {
  Napi::Object object = Napi::Object::New(env);
  object["losses"] = toJs(env, result.losses);
  object["lr"] = result.lr;
  object["batch"] = result.batch;
  object["batches"] = result.batches;
  object["images"] = static_cast<double>(result.images);
  Napi::Object seconds = Napi::Object::New(env);
  seconds["data"] = result.data;
  seconds["forward"] = result.forward;
  seconds["backward"] = result.backward;
  seconds["optimizer"] = result.optimizer;
  object["seconds"] = seconds;
  object["skipped"] = static_cast<double>(result.skipped);
  return object;
}

Napi::Value toJs(Napi::Env env, const Evaluation& evaluation, double seconds) {
  Napi::Object object = Napi::Object::New(env);
  object["precision"] = evaluation.precision;
  object["recall"] = evaluation.recall;
  object["mAP50"] = evaluation.mAP50;
  object["mAP50_95"] = evaluation.mAP50_95;
  object["confidence"] = evaluation.confidence;
  const auto ofClass = [&](const std::optional<ClassMetrics>& metrics) -> Napi::Value {
    if (!metrics) return env.Null();
    Napi::Object entry = Napi::Object::New(env);
    entry["precision"] = metrics->precision;
    entry["recall"] = metrics->recall;
    entry["mAP50"] = metrics->mAP50;
    entry["mAP50_95"] = metrics->mAP50_95;
    entry["truths"] = static_cast<double>(metrics->truths);
    return entry;
  };
  object["perClass"] = arrayOf(env, evaluation.perClass, ofClass);
  Napi::Object curves = Napi::Object::New(env);
  curves["precision"] = floatArray(env, evaluation.precisionCurve);
  curves["recall"] = floatArray(env, evaluation.recallCurve);
  curves["f1"] = floatArray(env, evaluation.f1Curve);
  object["curves"] = curves;
  object["precisionByRecall"] = floatArray(env, evaluation.precisionByRecall);
  Napi::Int32Array confusion = Napi::Int32Array::New(env, evaluation.confusion.size());
  std::copy(evaluation.confusion.begin(), evaluation.confusion.end(), confusion.Data());
  object["confusion"] = confusion;
  object["images"] = static_cast<double>(evaluation.images);
  object["seconds"] = seconds;
  return object;
}

Napi::Value toJs(Napi::Env env, const RenderedBatch& batch) {
  Napi::Object object = Napi::Object::New(env);
  object["images"] = floatArray(env, batch.images);
  object["count"] = batch.count;
  object["height"] = batch.size;
  object["width"] = batch.size;
  object["boxes"] = floatArray(env, batch.boxes);
  return object;
}

Napi::Value toJs(Napi::Env env, const Description& description) {
  Napi::Object object = Napi::Object::New(env);
  object["torch"] = description.torch;
  object["cudaKernels"] = description.cudaKernels;
  object["gpus"] = arrayOf(env, description.gpus, [&](const Gpu& gpu) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = gpu.name;
    entry["memoryBytes"] = static_cast<double>(gpu.memoryBytes);
    return entry;
  });
  object["bf16"] = description.bf16;
  return object;
}

Napi::Value toJs(Napi::Env env, const std::vector<std::vector<Found>>& detections) {
  static_assert(sizeof(Found) == kFoundNumbers * sizeof(float));
  return arrayOf(env, detections, [&](const std::vector<Found>& found) {
    return floatArray(env, reinterpret_cast<const float*>(found.data()),
                      found.size() * kFoundNumbers);
  });
}

}  // namespace vantage
