// The face of native/index.d.ts: reads arguments on Node's thread, has the engine's do the work,
// and settles promises. A failed call rejects; nothing here ends the process.
#include <napi.h>

#include <mutex>
#include <optional>

#include "async.h"
#include "convert.h"

namespace vantage {
namespace {

/** Node's object of an engine. The engine itself is made, used and freed on its own thread. */
class Handle : public Napi::ObjectWrap<Handle> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit Handle(const Napi::CallbackInfo& info);
  ~Handle() override;

 private:
  using Info = const Napi::CallbackInfo&;
  Napi::Value load(Info info);
  Napi::Value save(Info info);
  Napi::Value checkpoint(Info info);
  Napi::Value restore(Info info);
  Napi::Value setDataset(Info info);
  Napi::Value trainEpoch(Info info);
  Napi::Value interrupt(Info info);
  Napi::Value evaluate(Info info);
  Napi::Value predict(Info info);
  Napi::Value render(Info info);
  Napi::Value probe(Info info);
  Napi::Value forward(Info info);
  Napi::Value losses(Info info);
  Napi::Value step(Info info);
  Napi::Value tensor(Info info);
  Napi::Value close(Info info);

  template <typename Work, typename Answer>
  Napi::Promise call(Napi::Env env, const Napi::Value& onProgress, Work work, Answer answer);
  /** Reads arguments and calls; a wrong argument rejects, like every failure. */
  template <typename Body>
  static Napi::Value promised(Info info, Body body);
  template <typename Work>
  Napi::Value writes(Info info, Work work);

  void end();
  void abandon();
  /** The hook: Node finds it again, to remove it, by this very function. */
  static void endOf(void* handle) { static_cast<Handle*>(handle)->end(); }
  void begin(int64_t serial);
  /** Ends the call while it is the one under way. */
  void interruptOnly(int64_t serial);
  EngineError failureOf(const std::exception_ptr& thrown) const;
  Engine& engine();

  std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> closed_{false};
  /** Guards the two that follow, and `interrupted_` where it is set because of them. */
  std::mutex interrupting_;
  /** Calls up to this one are interrupted; and the one under way. */
  int64_t interruptedThrough_ = 0, running_ = 0;
  /** Of Node's thread: calls made, and those that wait. */
  int64_t calls_ = 0, waiting_ = 0;
  std::unique_ptr<Mailbox> mailbox_;
  /** Of the engine's thread. */
  std::unique_ptr<Engine> engine_;
  std::optional<EngineError> failure_;
  /** Last, so that it ends before what its jobs use. */
  std::unique_ptr<Thread> thread_;
  Napi::Env env_;
};

Handle::Handle(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Handle>(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  try {
    EngineOptions options = readOptions(info[0]);
    check(options.graph);
    options.interrupted = interrupted_;
    mailbox_ = std::make_unique<Mailbox>(env);
    thread_ = std::make_unique<Thread>();
    Endings::add(env, this, [this] { abandon(); });
    // Runs before Node frees what the thread sends to.
    napi_add_env_cleanup_hook(env, &Handle::endOf, this);
    const auto make = [this, options = std::move(options)](Reporter&) {
      try {
        engine_ = std::make_unique<Engine>(options);
      } catch (...) {
        failure_ = errorOf(std::current_exception());
      }
      return engine().parameters();
    };
    const Napi::Promise ready = call(env, {}, make, [](Napi::Env in, int64_t parameters) {
      Napi::Object answer = Napi::Object::New(in);
      answer["parameters"] = static_cast<double>(parameters);
      return answer;
    });
    // Every other call fails for the same reason, so nobody has to await this one.
    const Napi::Function handled = Napi::Function::New(env, [](const Napi::CallbackInfo&) {});
    ready.Get("catch").As<Napi::Function>().Call(ready, {handled});
    Value().DefineProperty(Napi::PropertyDescriptor::Value("ready", ready, napi_enumerable));
  } catch (const Napi::Error&) {
    abandon();
    throw;
  } catch (...) {
    abandon();
    throw Napi::Error(env, errorValue(env, errorOf(std::current_exception())));
  }
}

/** Of an object that is not to be, or no more: what was begun ends. */
void Handle::abandon() {
  if (!thread_) return;
  napi_remove_env_cleanup_hook(env_, &Handle::endOf, this);
  end();
}

Handle::~Handle() { abandon(); }

/** Ends the thread within a step, and the engine with it. */
void Handle::end() {
  Endings::remove(this);
  closed_ = true;
  *interrupted_ = true;
  if (thread_) thread_->post([this] { engine_.reset(); });
  thread_.reset();
  mailbox_.reset();
}

/** On the engine's thread: an interrupt made after the call counts for it, one before does not. */
void Handle::begin(int64_t serial) {
  const std::lock_guard<std::mutex> lock(interrupting_);
  running_ = serial;
  *interrupted_ = closed_ || serial <= interruptedThrough_;
}

void Handle::interruptOnly(int64_t serial) {
  const std::lock_guard<std::mutex> lock(interrupting_);
  if (running_ == serial) *interrupted_ = true;
}

/** To end because of closing is to be closed. */
EngineError Handle::failureOf(const std::exception_ptr& thrown) const {
  const EngineError error = errorOf(thrown);
  if (error.code == "interrupted" && closed_) return {"closed", "the engine was closed"};
  return error;
}

Engine& Handle::engine() {
  if (failure_) throw EngineError(*failure_);
  if (!engine_) throw EngineError("closed", "the engine was closed");
  return *engine_;
}

template <typename Work, typename Answer>
Napi::Promise Handle::call(Napi::Env env, const Napi::Value& onProgress, Work work, Answer answer) {
  auto waiting = std::make_shared<Call>(env, onProgress);
  const Napi::Promise promise = waiting->deferred.Promise();
  if (closed_) {
    waiting->deferred.Reject(
        errorValue(env, {"closed", "the engine was closed"}, waiting->caller.Value()));
    return promise;
  }
  const int64_t serial = ++calls_;
  // Node keeps the object, and the process, for as long as a call waits.
  if (waiting_++ == 0) mailbox_->keepAlive(env, true);
  Ref();
  const auto settle = [this](auto&& settled) {
    mailbox_->send(
        [this, settled = std::forward<decltype(settled)>(settled)](Napi::Env in) mutable {
          const Napi::HandleScope scope(in);
          if (--waiting_ == 0 && mailbox_) mailbox_->keepAlive(in, false);
          settled(in);
          Unref();
        });
  };
  thread_->post([this, serial, settle, waiting = std::move(waiting), work = std::move(work),
                 answer = std::move(answer)]() mutable {
    try {
      if (closed_) throw EngineError("closed", "the engine was closed");
      begin(serial);
      // The reporter goes before the answer is sent: what is JS may be freed on Node's thread
      // alone.
      const auto done = [&] {
        Reporter report(*mailbox_, waiting, [this, serial] { interruptOnly(serial); });
        return std::make_shared<decltype(work(report))>(work(report));
      };
      auto result = done();
      settle([waiting = std::move(waiting), result, answer](Napi::Env in) mutable {
        waiting->resolve(in, [&] { return answer(in, *result); });
        waiting.reset();
      });
    } catch (...) {
      settle([waiting = std::move(waiting),
              error = failureOf(std::current_exception())](Napi::Env in) mutable {
        waiting->reject(in, error);
        waiting.reset();
      });
    }
  });
  return promise;
}

template <typename Body>
Napi::Value Handle::promised(Info info, Body body) {
  const Napi::Env env = info.Env();
  const auto rejected = [&](const Napi::Value& error) {
    const auto deferred = Napi::Promise::Deferred::New(env);
    deferred.Reject(error);
    return deferred.Promise();
  };
  try {
    return body();
  } catch (const Napi::Error& error) {
    // Thrown by the argument itself, by a getter for one.
    return rejected(error.Value());
  } catch (...) {
    return rejected(errorValue(env, errorOf(std::current_exception())));
  }
}

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

std::string readSplit(const std::string& split) {
  if (split != "train" && split != "val") refuseArgument("split", "is train or val");
  return split;
}

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
    return call(info.Env(), info[1], work,
                [](Napi::Env in, const EpochResult& result) { return toJs(in, result); });
  });
}

Napi::Value Handle::interrupt(Info info) {
  const std::lock_guard<std::mutex> lock(interrupting_);
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
    return call(info.Env(), info[1], work,
                [](Napi::Env in, const auto& done) { return toJs(in, done.first, done.second); });
  });
}

Napi::Value Handle::predict(Info info) {
  return promised(info, [&] {
    const OwnedBatch batch = readBatch(info[0], false);
    if (!info[1].IsNumber()) refuseArgument("confidence", "must be a number");
    const double confidence = info[1].As<Napi::Number>().DoubleValue();
    const auto work = [this, batch, confidence](Reporter&) {
      return engine().predict(batch.view(), confidence);
    };
    return call(info.Env(), {}, work,
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
    const OwnedBatch batch = readBatch(info[0], false);
    const bool training = Fields(info[1], "options").flag("training");
    const auto work = [this, batch, training](Reporter&) {
      return engine().forward(batch.view(), training);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env in, const MapValues& maps) { return toJs(in, maps); });
  });
}

Napi::Value Handle::losses(Info info) {
  return promised(info, [&] {
    const OwnedBatch batch = readBatch(info[0], true);
    const double share = Fields(info[1], "options").number("o2mShare", 0, 1);
    const auto work = [this, batch, share](Reporter&) {
      return engine().losses(batch.view(), share);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env in, const LossItems& items) { return toJs(in, items); });
  });
}

Napi::Value Handle::step(Info info) {
  return promised(info, [&] {
    const OwnedBatch batch = readBatch(info[0], true);
    const Fields options(info[1], "options");
    const int epoch = options.integer("epoch", 0, 1e6);
    const int iteration = options.integer("iteration", 0, 1e9);
    const auto work = [this, batch, epoch, iteration](Reporter&) {
      return engine().step(batch.view(), epoch, iteration);
    };
    return call(info.Env(), {}, work,
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

Napi::Value Handle::close(Info info) {
  const Napi::Env env = info.Env();
  const auto deferred = Napi::Promise::Deferred::New(env);
  if (closed_.exchange(true)) {
    // Whoever closes twice gets the same: it is closed, or will be before anything else is done.
    deferred.Resolve(env.Undefined());
    return deferred.Promise();
  }
  *interrupted_ = true;
  mailbox_->keepAlive(env, true);
  ++waiting_;
  Ref();
  thread_->post([this, deferred] {
    engine_.reset();
    mailbox_->send([this, deferred](Napi::Env in) {
      const Napi::HandleScope scope(in);
      if (--waiting_ == 0 && mailbox_) mailbox_->keepAlive(in, false);
      deferred.Resolve(in.Undefined());
      Unref();
    });
  });
  return deferred.Promise();
}

Napi::Function Handle::define(Napi::Env env) {
  return DefineClass(
      env, "Engine",
      {InstanceMethod("load", &Handle::load), InstanceMethod("save", &Handle::save),
       InstanceMethod("checkpoint", &Handle::checkpoint),
       InstanceMethod("restore", &Handle::restore),
       InstanceMethod("setDataset", &Handle::setDataset),
       InstanceMethod("trainEpoch", &Handle::trainEpoch),
       InstanceMethod("interrupt", &Handle::interrupt),
       InstanceMethod("evaluate", &Handle::evaluate), InstanceMethod("predict", &Handle::predict),
       InstanceMethod("render", &Handle::render), InstanceMethod("probe", &Handle::probe),
       InstanceMethod("forward", &Handle::forward), InstanceMethod("losses", &Handle::losses),
       InstanceMethod("step", &Handle::step), InstanceMethod("tensor", &Handle::tensor),
       InstanceMethod("close", &Handle::close)});
}

/** Arguments of a plain function: what fails is thrown with its code. */
template <typename Body>
Napi::Value thrown(const Napi::CallbackInfo& info, Body body) {
  try {
    return body(info.Env());
  } catch (const Napi::Error&) {
    throw;
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
  return thrown(info,
                [&](Napi::Env env) { return toJs(env, assignTargets(readAssignment(info[0]))); });
}

Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  exports["Engine"] = Handle::define(env);
  Endings::atExit(env);
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
