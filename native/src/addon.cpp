// The face of native/index.d.ts: reads arguments on Node's thread, has the engine's do the work, and
// settles promises. A failed call rejects; nothing here ends the process.
#include <napi.h>

#include "convert.h"
#include "handle.h"

namespace vantage {

Napi::Value Handle::load(Info info) {
  return promised(info, [&] {
    const auto work = [this, path = readText(info[0], "path")](Reporter&) {
      return engine().load(path);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env in, const LoadReport& report) { return toJs(in, report); });
  });
}

/** A file written from a path and metadata. */
template <typename Work>
Napi::Value Handle::writes(Info info, Work work) {
  return promised(info, [&] {
    const auto write = [this, work, path = readText(info[0], "path"),
                        metadata = readMetadata(info[1])](Reporter&) {
      return work(engine(), path, metadata);
    };
    return call(info.Env(), {}, write, [](Napi::Env in, uint64_t bytes) {
      Napi::Object answer = Napi::Object::New(in);
      answer["bytes"] = static_cast<double>(bytes);
      return answer;
    });
  });
}

Napi::Value Handle::save(Info info) {
  return writes(info, [](Engine& engine, const std::string& path, const auto& metadata) {
    return engine.save(path, metadata);
  });
}

Napi::Value Handle::checkpoint(Info info) {
  return writes(info, [](Engine& engine, const std::string& path, const auto& metadata) {
    return engine.checkpoint(path, metadata);
  });
}

Napi::Value Handle::restore(Info info) {
  return promised(info, [&] {
    const auto work = [this, path = readText(info[0], "path")](Reporter&) {
      return engine().restore(path);
    };
    return call(info.Env(), {}, work, [](Napi::Env in, const auto& metadata) {
      Napi::Object answer = Napi::Object::New(in);
      answer["metadata"] = toJs(in, metadata);
      return answer;
    });
  });
}

namespace {

std::string readSplit(const std::string& split) {
  if (split != "train" && split != "val") refuseArgument("split", "is train or val");
  return split;
}

}  // namespace

Napi::Value Handle::setDataset(Info info) {
  return promised(info, [&] {
    const std::string split = readSplit(readText(info[0], "split"));
    const Fields dataset(info[1], "dataset");
    const auto work = [this, split, path = dataset.text("path"),
                       images = readImages(dataset)](Reporter&) mutable {
      engine().setDataset(split, path, std::move(images));
      return true;
    };
    return call(info.Env(), {}, work, [](Napi::Env in, bool) { return in.Undefined(); });
  });
}

Napi::Value Handle::trainEpoch(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    const int epoch = options.integer("epoch", 0, 1e6), from = options.integer("from", 0, 1e9);
    const auto work = [this, epoch, from](Reporter& report) {
      return engine().trainEpoch(epoch, from, [&](const StepProgress& progress) {
        report([progress](Napi::Env in) { return toJs(in, progress); });
      });
    };
    return call(info.Env(), {{}, info[1]}, work,
                [](Napi::Env in, const EpochResult& result) { return toJs(in, result); });
  });
}

Napi::Value Handle::interrupt(Info info) {
  interruptedThrough_ = calls_;
  *interrupted_ = true;
  return info.Env().Undefined();
}

Napi::Value Handle::evaluate(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    const std::string split = readSplit(options.text("split"));
    const int batch = options.integer("batch", 1, 4096);
    const int imageSize = options.integer("imageSize", 32, 8192);
    if (imageSize % 32 != 0) refuseArgument(options.at("imageSize"), "must be a multiple of 32");
    const auto work = [this, split, batch, imageSize](Reporter& report) {
      std::pair<Evaluation, double> done;
      const auto progress = [&](int64_t images, int64_t of) {
        report([images, of](Napi::Env in) {
          Napi::Object value = Napi::Object::New(in);
          value["images"] = static_cast<double>(images);
          value["of"] = static_cast<double>(of);
          return value;
        });
      };
      done.first = engine().evaluate(split, batch, imageSize, progress, &done.second);
      return done;
    };
    return call(info.Env(), {{}, info[1]}, work, [](Napi::Env in, const auto& done) {
      return toJs(in, done.first, done.second);
    });
  });
}

Napi::Value Handle::predict(Info info) {
  return promised(info, [&] {
    With with;
    const BatchView batch = readBatch(info[0], false, with.kept);
    if (!info[1].IsNumber()) refuseArgument("confidence", "must be a number");
    const double confidence = info[1].As<Napi::Number>().DoubleValue();
    const auto work = [this, batch, confidence](Reporter&) {
      return engine().predict(batch, confidence);
    };
    return call(info.Env(), with, work,
                [](Napi::Env in, const auto& detections) { return toJs(in, detections); });
  });
}

Napi::Value Handle::render(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    const int epoch = options.integer("epoch", 0, 1e6), batch = options.integer("batch", 0, 1e9);
    const auto work = [this, epoch, batch](Reporter&) { return engine().render(epoch, batch); };
    return call(info.Env(), {}, work,
                [](Napi::Env in, const RenderedBatch& rendered) { return toJs(in, rendered); });
  });
}

Napi::Value Handle::probe(Info info) {
  return promised(info, [&] {
    const Fields options(info[0], "options");
    const int batch = options.integer("batch", 1, 4096);
    const int imageSize = options.integer("imageSize", 32, 8192);
    if (imageSize % 32 != 0) refuseArgument(options.at("imageSize"), "must be a multiple of 32");
    const auto work = [this, batch, imageSize](Reporter&) {
      return engine().probe(batch, imageSize);
    };
    return call(info.Env(), {}, work, [](Napi::Env in, const ProbeResult& result) {
      Napi::Object answer = Napi::Object::New(in);
      answer["bytes"] = static_cast<double>(result.bytes);
      answer["seconds"] = result.seconds;
      return answer;
    });
  });
}

Napi::Value Handle::forward(Info info) {
  return promised(info, [&] {
    With with;
    const BatchView batch = readBatch(info[0], false, with.kept);
    const bool training = Fields(info[1], "options").flag("training");
    const auto work = [this, batch, training](Reporter&) {
      return engine().forward(batch, training);
    };
    return call(info.Env(), with, work,
                [](Napi::Env in, const MapValues& maps) { return toJs(in, maps); });
  });
}

Napi::Value Handle::losses(Info info) {
  return promised(info, [&] {
    With with;
    const BatchView batch = readBatch(info[0], true, with.kept);
    const double share = Fields(info[1], "options").number("o2mShare", 0, 1);
    const auto work = [this, batch, share](Reporter&) { return engine().losses(batch, share); };
    return call(info.Env(), with, work,
                [](Napi::Env in, const LossItems& items) { return toJs(in, items); });
  });
}

Napi::Value Handle::step(Info info) {
  return promised(info, [&] {
    With with;
    const BatchView batch = readBatch(info[0], true, with.kept);
    const Fields options(info[1], "options");
    const int epoch = options.integer("epoch", 0, 1e6);
    const int iteration = options.integer("iteration", 0, 1e9);
    const auto work = [this, batch, epoch, iteration](Reporter&) {
      return engine().step(batch, epoch, iteration);
    };
    return call(info.Env(), with, work,
                [](Napi::Env in, const LossItems& items) { return toJs(in, items); });
  });
}

Napi::Value Handle::tensor(Info info) {
  return promised(info, [&] {
    const std::string name = readText(info[0], "name"), of = readText(info[1], "of");
    if (of != "model" && of != "ema" && of != "gradient")
      refuseArgument("of", "is model, ema or gradient");
    const auto work = [this, name, of](Reporter&) { return engine().tensor(name, of); };
    return call(info.Env(), {}, work,
                [](Napi::Env in, const TensorValues& values) { return toJs(in, values); });
  });
}

namespace {

/** Arguments of a plain function: what fails is thrown with its code. */
template <typename Body>
Napi::Value thrown(const Napi::CallbackInfo& info, Body body) {
  try {
    return body(info.Env());
  } catch (...) {
    throw Napi::Error(info.Env(), errorValue(info.Env(), errorOf(std::current_exception())));
  }
}

Napi::Value describeJs(const Napi::CallbackInfo& info) {
  return thrown(info, [](Napi::Env env) { return toJs(env, describe()); });
}

Napi::Value aliveJs(const Napi::CallbackInfo& info) {
  return thrown(info, [](Napi::Env env) {
    const Alive counts = alive();
    Napi::Object object = Napi::Object::New(env);
    object["engines"] = static_cast<double>(counts.engines);
    object["gpuBytes"] = static_cast<double>(counts.gpuBytes);
    return object;
  });
}

Napi::Value evaluateDetectionsJs(const Napi::CallbackInfo& info) {
  return thrown(info, [&](Napi::Env env) {
    const EvaluationInput input = readEvaluation(info[0]);
    Evaluator evaluator(input.classes);
    for (size_t image = 0; image < input.detections.size(); ++image)
      evaluator.add(input.detections[image], input.truths[image]);
    return toJs(env, evaluator.evaluate(), 0);
  });
}

Napi::Value assignTargetsJs(const Napi::CallbackInfo& info) {
  return thrown(info, [&](Napi::Env env) {
    return toJs(env, assignTargets(readAssignment(info[0])));
  });
}

Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  exports["Engine"] = Handle::define(env);
  const Napi::Object process = env.Global().Get("process").As<Napi::Object>();
  const auto end = [](const Napi::CallbackInfo& info) { Handle::endAll(info.Env()); };
  process.Get("once").As<Napi::Function>().Call(
      process, {Napi::String::New(env, "exit"), Napi::Function::New(env, end, "endEngines")});
  exports["describe"] = Napi::Function::New(env, describeJs, "describe");
  exports["alive"] = Napi::Function::New(env, aliveJs, "alive");
  exports["evaluateDetections"] =
      Napi::Function::New(env, evaluateDetectionsJs, "evaluateDetections");
  exports["assignTargets"] = Napi::Function::New(env, assignTargetsJs, "assignTargets");
  return exports;
}

}  // namespace
}  // namespace vantage

static Napi::Object initializeAddon(Napi::Env env, Napi::Object exports) {
  return vantage::initialize(env, exports);
}
NODE_API_MODULE(vantage, initializeAddon)
