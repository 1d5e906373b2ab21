// A step of pre-training: the class maps of the one-to-many branch learn another network's
// features.
#include "distillation.h"

#include "core.h"
#include "engine.h"
#include "flags.h"
#include "guarded-pass.h"
#include "schedule.h"

namespace vantage {
namespace {

constexpr double kLengthEps = 1e-6;

/** Squared lengths of the cells' features: [B, 1, H, W]. */
at::Tensor squares(const at::Tensor& map) { return map.square().sum({1}, kKeepDim); }

}  // namespace

at::Tensor featureLoss(const std::vector<at::Tensor>& maps,
                       const std::vector<at::Tensor>& targets) {
  at::Tensor total = at::zeros({}, maps[0].options());
  for (size_t level = 0; level < maps.size(); ++level) {
    const at::Tensor lengths = squares(targets[level]);
    const at::Tensor isThere = (lengths > 0).to(at::kFloat);
    const at::Tensor products = (maps[level] * targets[level]).sum({1}, kKeepDim);
    const at::Tensor cosine =
        products * (squares(maps[level]) + kLengthEps).rsqrt() * (lengths + kLengthEps).rsqrt();
    total = total + ((1 - cosine) * isThere).sum() / isThere.sum().clamp_min(1);
  }
  return total / static_cast<double>(maps.size());
}

double Engine::distill(const FeatureView& batch, const TrainingPlace& place) {
  EngineCore& core = *core_;
  core.needsTraining();
  core.needsNoGroup();
  Training& training = *core.training;
  const at::Tensor images = core.images(batch.images);
  std::vector<at::Tensor> targets;
  for (size_t level = 0; level < batch.targets.size(); ++level) {
    const int64_t stride = kStrides[level];
    const at::Tensor view = at::from_blob(
        const_cast<float*>(batch.targets[level]),
        {batch.images.count, core.network.graph().classes, batch.images.height / stride,
         batch.images.width / stride},
        at::kFloat);
    targets.push_back(view.to(core.device));
  }
  GuardedPass pass(core);
  const NetworkMaps maps = core.network.forward(images, BatchNorm::training);
  core.network.checkStop();
  const at::Tensor loss = featureLoss(maps.o2m.cls, targets);
  const at::Tensor scale = training.optimizer.lossScale();
  (scale.defined() ? loss * scale : loss).backward();
  pass.keep();
  training.optimizer.forget();
  training.gathered = 0;
  // The optimizer takes the gradients away; `tensor` shows them as they were before clipping.
  auto shown = training.packed.gradients();
  if (scale.defined())
    for (at::Tensor& gradient : shown)
      if (gradient.defined()) gradient = gradient / scale;
  training.optimizer.gather();
  training.optimizer.step(
      ratesAt(core.options.settings, place.epoch, place.iteration, place.iterations));
  training.ema.update();
  training.packed.setGradients(shown);
  return loss.item<double>();
}

}  // namespace vantage
