#include "options.h"

namespace vantage {
namespace {

/** Sizes of batches differ from the nominal one by this share at most. */
constexpr double kMultiScaleMax = 0.9;
/** The largest power of two in fp32. */
constexpr double kLossScaleMax = 0x1p127;

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
  if (from.has("copyPaste")) augmentation.copyPaste = share("copyPaste");
  augmentation.closeMosaic = from.integer("closeMosaic", 0, kIntMax);
  const std::vector<Napi::Value> hsv = from.list("hsv");
  if (hsv.size() != augmentation.hsv.size())
    refuseArgument(from.pathOf("hsv"), "must be three numbers");
  for (size_t i = 0; i < hsv.size(); ++i) {
    const double value = hsv[i].IsNumber() ? hsv[i].ToNumber().DoubleValue() : -1;
    if (!(value >= 0 && value <= 1))
      refuseArgument(from.pathOf("hsv"), "must be three numbers in 0 to 1");
    augmentation.hsv[i] = value;
  }
  return augmentation;
}

TrainingSettings::Optimizer readOptimizer(const Fields& from) {
  const std::string name = from.text("optimizer");
  if (name == "adamw") return TrainingSettings::Optimizer::adamw;
  if (name == "sgd") return TrainingSettings::Optimizer::sgd;
  if (name == "musgd") return TrainingSettings::Optimizer::musgd;
  refuseArgument(from.pathOf("optimizer"), "is adamw, sgd or musgd");
}

TrainingSettings readTraining(const Fields& from) {
  TrainingSettings settings;
  const auto positive = [&](const char* name) { return from.number(name, 0, 1e9); };
  settings.optimizer = readOptimizer(from);
  settings.epochs = from.integer("epochs", 1, kEpochsMax);
  settings.batch = from.integer("batch", 1, kImagesMax);
  settings.imageSize = from.imageSize("imageSize");
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
  if (from.has("freeze")) settings.freeze = from.integer("freeze", 0, kHeadLayer);
  if (from.has("multiScale")) settings.multiScale = from.number("multiScale", 0, kMultiScaleMax);
  if (from.has("lossScale")) settings.lossScale = from.number("lossScale", 0, kLossScaleMax);
  const Fields gains = from.object("gains");
  settings.boxGain = gains.number("box", 0, 1e6);
  settings.clsGain = gains.number("cls", 0, 1e6);
  settings.dflGain = gains.number("dfl", 0, 1e6);
  if (gains.has("mask")) settings.maskGain = gains.number("mask", 0, 1e6);
  if (gains.has("semantic")) settings.semanticGain = gains.number("semantic", 0, 1e6);
  settings.augmentation = readAugmentation(from.object("augmentation"));
  return settings;
}

}  // namespace

std::optional<Precision> readPrecision(const Fields& from) {
  if (!from.has("precision")) return std::nullopt;
  const std::string precision = from.text("precision");
  if (precision == "fp32") return Precision::fp32;
  if (precision == "bf16") return Precision::bf16;
  if (precision == "fp16") return Precision::fp16;
  refuseArgument(from.pathOf("precision"), "is fp32, bf16 or fp16");
}

EngineOptions readOptions(const Napi::Value& value) {
  const Fields from(value, "");
  EngineOptions options;
  options.graph = readGraph(from.object("graph"));
  options.device = from.text("device");
  if (options.device != "cpu" && options.device != "cuda")
    refuseArgument("device", "is cpu or cuda");
  options.seed = static_cast<int64_t>(from.number("seed", 0, kSafeIntegerMax));
  options.threads = from.integer("threads", 1, 1024);
  options.precision = readPrecision(from).value_or(options.precision);
  if (from.has("fusedNorm")) options.fusedNorm = from.flag("fusedNorm");
  if (from.has("channelsLast")) options.channelsLast = from.flag("channelsLast");
  if (from.has("recorded")) options.recorded = from.flag("recorded");
  options.training = from.has("training");
  if (options.training) options.settings = readTraining(from.object("training"));
  return options;
}

}  // namespace vantage
