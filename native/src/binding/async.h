// How Node's thread and an engine's meet. An engine has a thread of its own (OpenMP keeps a team of
// workers for every thread that computes), which does calls in their order. V8 is touched on Node's
// thread alone: a call leaves Node's thread with plain values and comes back as a message.
#pragma once
#include <napi.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../engine.h"

namespace vantage {

/** A thread that does jobs in order. Ending it waits until all of them are done. */
class Thread {
 public:
  Thread() : thread_([this] { run(); }) {}
  ~Thread() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    waiting_.notify_one();
    thread_.join();
  }
  Thread(const Thread&) = delete;

  void post(std::function<void()> job) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    waiting_.notify_one();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        waiting_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
        if (jobs_.empty()) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable waiting_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

/**
 * Engines that have to end before the process does: `process.exit` runs no cleanup hook, and would
 * free torch's own statics while an engine's thread computes. Hooks are kept by Node environment:
 * a worker thread's exit ends that worker's engines alone.
 */
class ExitHooks {
 public:
  static void add(napi_env env, const void* owner, std::function<void()> end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_[owner] = {env, std::move(end)};
  }
  static void remove(const void* owner) {
    const std::lock_guard<std::mutex> lock(mutex_);
    all_.erase(owner);
  }
  /** Runs the environment's hooks on the `exit` event of its `process`. */
  static void install(Napi::Env env) {
    const Napi::Value process = env.Global().Get("process");
    if (!process.IsObject()) return;
    const Napi::Value on = process.As<Napi::Object>().Get("on");
    if (!on.IsFunction()) return;
    const auto onExit = Napi::Function::New(env, [](const Napi::CallbackInfo& info) {
      for (const auto& end : of(info.Env())) end();
    });
    on.As<Napi::Function>().Call(process, {Napi::String::New(env, "exit"), onExit});
  }

 private:
  static std::vector<std::function<void()>> of(napi_env env) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::function<void()>> hooks;
    for (const auto& [owner, hook] : all_)
      if (hook.first == env) hooks.push_back(hook.second);
    return hooks;
  }

  static inline std::mutex mutex_;
  static inline std::map<const void*, std::pair<napi_env, std::function<void()>>> all_;
};

/** A JS error of an engine. With `caller`, an error made where the call was, it has its stack. */
inline Napi::Value errorValue(Napi::Env env, const EngineError& error,
                              const Napi::Value& caller = Napi::Value()) {
  Napi::Object value = Napi::Error::New(env, error.what()).Value();
  value["name"] = "EngineError";
  value["code"] = error.code;
  const Napi::Value from = caller.IsEmpty() ? value : caller;
  const Napi::Value stack = from.As<Napi::Object>().Get("stack");
  if (stack.IsString()) {
    const std::string text = stack.As<Napi::String>().Utf8Value();
    const size_t frames = text.find("\n    at ");
    value["stack"] = "EngineError: " + std::string(error.what()) +
                     (frames == std::string::npos ? "" : text.substr(frames));
  }
  return value;
}

/** Messages from an engine's thread to Node's, done there in order. */
class Mailbox {
 public:
  using Message = std::function<void(Napi::Env)>;

  explicit Mailbox(Napi::Env env) {
    napi_value name = Napi::String::New(env, "vantage engine");
    const napi_status status =
        napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr,
                                        nullptr, &Mailbox::deliver, &function_);
    if (status != napi_ok) throw EngineError("internal", "Node makes no thread-safe function");
    napi_unref_threadsafe_function(env, function_);
  }
  ~Mailbox() { napi_release_threadsafe_function(function_, napi_tsfn_abort); }
  Mailbox(const Mailbox&) = delete;

  /** Keeps the process alive until `release`: an answer is still to come. */
  void hold(Napi::Env env) { napi_ref_threadsafe_function(env, function_); }
  void release(Napi::Env env) { napi_unref_threadsafe_function(env, function_); }

  /** From any thread; never waits. */
  void send(Message message) {
    // What a message holds may be freed on Node's thread only. Where that ends, it is not freed.
    auto* held = new Message(std::move(message));
    napi_call_threadsafe_function(function_, held, napi_tsfn_nonblocking);
  }

 private:
  static void deliver(napi_env env, napi_value, void*, void* data) {
    if (env == nullptr) return;
    const std::unique_ptr<Message> message(static_cast<Message*>(data));
    try {
      (*message)(Napi::Env(env));
    } catch (const Napi::Error& error) {
      error.ThrowAsJavaScriptException();
    } catch (const std::exception& error) {
      Napi::Error::New(env, error.what()).ThrowAsJavaScriptException();
    }
  }

  napi_threadsafe_function function_ = nullptr;
};

/** A call that waits for its answer: what of it is JS. */
struct Call {
  Call(Napi::Env env, const Napi::Value& onProgress)
      : deferred(Napi::Promise::Deferred::New(env)),
        caller(Napi::Persistent(Napi::Error::New(env, "").Value())) {
    if (!onProgress.IsEmpty() && onProgress.IsFunction())
      progress = Napi::Persistent(onProgress.As<Napi::Function>());
  }

  /** With what `answer` makes; where it cannot be made, the call fails. */
  template <typename Answer>
  void resolve(Napi::Env env, Answer answer) {
    if (failed) return deferred.Reject(failed->Value());
    try {
      deferred.Resolve(answer());
    } catch (const Napi::Error& error) {
      deferred.Reject(error.Value());
    } catch (...) {
      reject(env, errorOf(std::current_exception()));
    }
  }
  void reject(Napi::Env env, const EngineError& error) {
    deferred.Reject(failed ? failed->Value() : errorValue(env, error, caller.Value()));
  }

  Napi::Promise::Deferred deferred;
  Napi::ObjectReference caller;
  Napi::FunctionReference progress;
  /** What the caller's progress threw: the call fails with it. */
  std::optional<Napi::Error> failed;
};

/** Progress of a call. What Node does not get to in time is dropped, never waited for. */
class Reporter {
 public:
  /** `stop` ends the call; it is called on Node's thread where the caller's progress throws. */
  Reporter(Mailbox& mailbox, std::shared_ptr<Call> call, std::function<void()> stop)
      : mailbox_(mailbox),
        call_(std::move(call)),
        stop_(std::move(stop)),
        pending_(std::make_shared<std::atomic<int>>(0)) {}

  template <typename Value>
  void operator()(Value value) {
    if (pending_->load() >= kPendingMax) return;
    ++*pending_;
    mailbox_.send(
        [call = call_, stop = stop_, pending = pending_, value = std::move(value)](Napi::Env env) {
          --*pending;
          if (call->progress.IsEmpty() || call->failed) return;
          const Napi::HandleScope scope(env);
          try {
            call->progress.Call({value(env)});
          } catch (const Napi::Error& error) {
            call->failed = error;
            stop();
          }
        });
  }

 private:
  static constexpr int kPendingMax = 16;
  Mailbox& mailbox_;
  std::shared_ptr<Call> call_;
  std::function<void()> stop_;
  std::shared_ptr<std::atomic<int>> pending_;
};

}  // namespace vantage
