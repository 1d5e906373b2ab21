// A step of pre-training on another network's features.
#include "arguments.h"
#include "batch.h"
#include "engine-object.h"

namespace vantage {

Napi::Value EngineObject::distill(Info info) {
  return promised(info, [&] {
    const Fields from(info[0], "batch");
    const BatchCopy images = readImages(info[0]);
    const std::vector<Napi::Value> levels = from.list("targets");
    if (levels.size() != 3) refuseArgument(from.pathOf("targets"), "must be three maps");
    std::vector<std::vector<float>> targets;
    for (size_t level = 0; level < levels.size(); ++level) {
      const auto values = readFloats(levels[level], from.pathOf("targets", level));
      const int stride = kStrides[level];
      const size_t cells = size_t{1} * images.count * static_cast<size_t>(images.height / stride) *
                           static_cast<size_t>(images.width / stride);
      if (values.ElementLength() != cells * static_cast<size_t>(classes_))
        refuseArgument(from.pathOf("targets", level), "must be count * classes * cells numbers");
      targets.emplace_back(values.Data(), values.Data() + values.ElementLength());
    }
    const Fields options(info[1], "options");
    TrainingPlace place;
    place.epoch = options.integer("epoch", 0, kEpochsMax);
    place.iterations = options.integer("iterations", 1, kBatchesMax);
    place.iteration = options.integer("iteration", 0, static_cast<double>(place.iterations - 1));
    const auto work = [this, images, targets, place](Reporter&) {
      FeatureView batch{images.view(), {}};
      for (size_t level = 0; level < targets.size(); ++level)
        batch.targets[level] = targets[level].data();
      return engine().distill(batch, place);
    };
    return call(info.Env(), {}, work, [](Napi::Env env, double loss) {
      Napi::Object answer = Napi::Object::New(env);
      answer["loss"] = loss;
      return answer;
    });
  });
}

}  // namespace vantage
