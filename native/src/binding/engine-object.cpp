#include "engine-object.h"

#include "options.h"

namespace vantage {

EngineObject::EngineObject(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<EngineObject>(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  try {
    EngineOptions options = readOptions(info[0]);
    check(options.graph);
    classes_ = options.graph.classes;
    options.interrupted = interrupted_;
    mailbox_ = std::make_unique<Mailbox>(env);
    thread_ = std::make_unique<Thread>();
    ExitHooks::add(env, this, [this] { abandon(); });
    // Runs before Node frees what the thread sends to.
    napi_add_env_cleanup_hook(env, &EngineObject::endOf, this);
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

void EngineObject::abandon() {
  if (!thread_) return;
  napi_remove_env_cleanup_hook(env_, &EngineObject::endOf, this);
  end();
}

EngineObject::~EngineObject() { abandon(); }

void EngineObject::end() {
  ExitHooks::remove(this);
  closed_ = true;
  *interrupted_ = true;
  if (thread_)
    thread_->post([this] {
      engine_.reset();
      writes_.finish();
    });
  thread_.reset();
  mailbox_.reset();
}

void EngineObject::hold(Napi::Env env) {
  if (waiting_++ == 0) mailbox_->hold(env);
  Ref();
}

void EngineObject::release(Napi::Env env) {
  if (--waiting_ == 0 && mailbox_) mailbox_->release(env);
}

void EngineObject::reply(std::function<void(Napi::Env)> deliver) {
  mailbox_->send([this, deliver = std::move(deliver)](Napi::Env in) mutable {
    const Napi::HandleScope scope(in);
    release(in);
    deliver(in);
    // What it holds is JS of this object's.
    deliver = nullptr;
    Unref();
  });
}

void EngineObject::reject(CallPointer& call, const std::exception_ptr& thrown) {
  reply([call = std::move(call), error = failureOf(thrown)](Napi::Env in) {
    call->reject(in, error);
  });
}

/** On the engine's thread: an interrupt made after the call counts for it, one before does not. */
void EngineObject::begin(int64_t serial) {
  const std::lock_guard<std::mutex> lock(interrupting_);
  running_ = serial;
  *interrupted_ = closed_ || serial <= interruptedThrough_;
}

void EngineObject::interruptOnly(int64_t serial) {
  const std::lock_guard<std::mutex> lock(interrupting_);
  if (running_ == serial) *interrupted_ = true;
}

/** A call that closing interrupts fails with `closed`. */
EngineError EngineObject::failureOf(const std::exception_ptr& thrown) const {
  const EngineError error = errorOf(thrown);
  if (error.code == "interrupted" && closed_) return {"closed", "the engine was closed"};
  return error;
}

Engine& EngineObject::engine() {
  if (failure_) throw EngineError(*failure_);
  if (!engine_) throw EngineError("closed", "the engine was closed");
  return *engine_;
}

Napi::Value EngineObject::interrupt(Info info) {
  const std::lock_guard<std::mutex> lock(interrupting_);
  interruptedThrough_ = calls_;
  *interrupted_ = true;
  return info.Env().Undefined();
}

Napi::Value EngineObject::close(Info info) {
  const Napi::Env env = info.Env();
  const auto deferred = Napi::Promise::Deferred::New(env);
  constexpr bool kClosed = true;
  if (closed_.exchange(kClosed)) {
    // A second call gets the same answer: the engine is closed, or will be before its next call.
    deferred.Resolve(env.Undefined());
    return deferred.Promise();
  }
  *interrupted_ = true;
  hold(env);
  thread_->post([this, deferred] {
    engine_.reset();
    writes_.finish();
    mailbox_->send([this, deferred](Napi::Env in) {
      const Napi::HandleScope scope(in);
      release(in);
      deferred.Resolve(in.Undefined());
      Unref();
    });
  });
  return deferred.Promise();
}

Napi::Function EngineObject::define(Napi::Env env) {
  return DefineClass(env, "Engine",
                     {
                         InstanceMethod("load", &EngineObject::load),
                         InstanceMethod("save", &EngineObject::save),
                         InstanceMethod("checkpoint", &EngineObject::checkpoint),
                         InstanceMethod("restore", &EngineObject::restore),
                         InstanceMethod("join", &EngineObject::join),
                         InstanceMethod("setDataset", &EngineObject::setDataset),
                         InstanceMethod("trainEpoch", &EngineObject::trainEpoch),
                         InstanceMethod("interrupt", &EngineObject::interrupt),
                         InstanceMethod("evaluate", &EngineObject::evaluate),
                         InstanceMethod("predict", &EngineObject::predict),
                         InstanceMethod("predictMasks", &EngineObject::predictMasks),
                         InstanceMethod("render", &EngineObject::render),
                         InstanceMethod("probe", &EngineObject::probe),
                         InstanceMethod("forward", &EngineObject::forward),
                         InstanceMethod("losses", &EngineObject::losses),
                         InstanceMethod("step", &EngineObject::step),
                         InstanceMethod("distill", &EngineObject::distill),
                         InstanceMethod("tensor", &EngineObject::tensor),
                         InstanceMethod("close", &EngineObject::close),
                     });
}

}  // namespace vantage
