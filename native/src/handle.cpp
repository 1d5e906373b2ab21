// An engine's object from its making to its end, whichever comes first: close, the collector, or the
// end of Node.
#include "handle.h"

#include <mutex>
#include <set>

#include "convert.h"

namespace vantage {
namespace {

/** Handles whose thread runs; of every Node in the process. */
struct Running {
  std::mutex mutex;
  std::set<Handle*> handles;
};

Running& running() {
  // Never freed: a handle may outlive every static.
  static auto* const kept = new Running();
  return *kept;
}

}  // namespace

Handle::Handle(const Napi::CallbackInfo& info) : Napi::ObjectWrap<Handle>(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  try {
    EngineOptions options = readOptions(info[0]);
    check(options.graph);
    options.interrupted = interrupted_;
    mailbox_ = std::make_unique<Mailbox>(env);
    thread_ = std::make_unique<Thread>();
    // Runs before Node frees what the thread sends to; `process.exit` runs `endAll` instead.
    napi_add_env_cleanup_hook(env, &Handle::endAtExit, this);
    {
      const std::lock_guard<std::mutex> lock(running().mutex);
      running().handles.insert(this);
    }
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
  } catch (const EngineError& error) {
    throw Napi::Error(env, errorValue(env, error));
  }
}

void Handle::endAll(Napi::Env env) {
  std::vector<Handle*> ours;
  {
    const std::lock_guard<std::mutex> lock(running().mutex);
    for (Handle* handle : running().handles)
      if (static_cast<napi_env>(handle->env_) == env) ours.push_back(handle);
  }
  for (Handle* handle : ours) {
    napi_remove_env_cleanup_hook(env, &Handle::endAtExit, handle);
    handle->end();
  }
}

Handle::~Handle() {
  if (!thread_) return;
  napi_remove_env_cleanup_hook(env_, &Handle::endAtExit, this);
  end();
}

/** Ends the thread within a step, and the engine with it. */
void Handle::end() {
  {
    const std::lock_guard<std::mutex> lock(running().mutex);
    running().handles.erase(this);
  }
  closed_ = true;
  *interrupted_ = true;
  if (thread_) thread_->post([this] { engine_.reset(); });
  thread_.reset();
  mailbox_.reset();
}

/** On the engine's thread: an interrupt made after the call counts for it, one before does not. */
void Handle::begin(int64_t serial) {
  *interrupted_ = false;
  if (closed_ || serial <= interruptedThrough_) *interrupted_ = true;
}

Engine& Handle::engine() {
  if (failure_) throw EngineError(*failure_);
  if (!engine_) throw EngineError("closed", "the engine was closed");
  return *engine_;
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

}  // namespace vantage
