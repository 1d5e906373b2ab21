// Node's object of an engine: `Engine` of native/index.d.ts. Its methods read their arguments on
// Node's thread, have the engine work on its own thread, and resolve or reject a promise. A failed
// call rejects; nothing here ends the process.
//
// engine-object.cpp has what all calls share; the methods are in the file of their noun: dataset,
// distillation, evaluation, forward, training, weights.
#pragma once
#include <napi.h>

#include <mutex>
#include <optional>

#include "async.h"
#include "file-writes.h"

namespace vantage {

class EngineObject : public Napi::ObjectWrap<EngineObject> {
 public:
  /** The JS class. */
  static Napi::Function define(Napi::Env env);
  /** Starts to make the engine; `ready` is the promise of it. */
  explicit EngineObject(const Napi::CallbackInfo& info);
  ~EngineObject() override;

 private:
  using Info = const Napi::CallbackInfo&;
  Napi::Value load(Info info);
  Napi::Value save(Info info);
  Napi::Value checkpoint(Info info);
  Napi::Value restore(Info info);
  Napi::Value join(Info info);
  Napi::Value setDataset(Info info);
  Napi::Value trainEpoch(Info info);
  Napi::Value interrupt(Info info);
  Napi::Value evaluate(Info info);
  Napi::Value predict(Info info);
  Napi::Value predictMasks(Info info);
  Napi::Value render(Info info);
  Napi::Value probe(Info info);
  Napi::Value forward(Info info);
  Napi::Value losses(Info info);
  Napi::Value step(Info info);
  Napi::Value distill(Info info);
  Napi::Value tensor(Info info);
  Napi::Value close(Info info);

  /**
   * Has the engine's thread do `work(reporter)`, after the calls made before it, and resolves with
   * what `answer(env, result)` makes of its result on Node's thread.
   */
  template <typename Work, typename Answer>
  Napi::Promise call(Napi::Env env, const Napi::Value& onProgress, Work work, Answer answer);

  using CallPointer = std::shared_ptr<Call>;
  /**
   * Has the engine's thread do `begin(call)`, which leaves it to somebody to resolve or reject the
   * call; where it throws, the call is rejected.
   */
  template <typename Begin>
  Napi::Promise enqueue(Napi::Env env, const Napi::Value& onProgress, Begin begin);
  /** From any thread, which then no longer holds the call: JS is freed on Node's thread alone. */
  template <typename Result, typename Answer>
  void resolve(CallPointer& call, std::shared_ptr<Result> result, Answer answer);
  void reject(CallPointer& call, const std::exception_ptr& thrown);
  void reply(std::function<void(Napi::Env)> deliver);
  /** Reads arguments and calls, as `body` does; a wrong argument rejects, like every failure. */
  template <typename Body>
  static Napi::Value promised(Info info, Body body);
  template <typename Copy>
  Napi::Value writeFile(Info info, Copy copy);

  /** Ends the thread within a step, and the engine with it. */
  void end();
  /** Ends what an object began that is not to be, or no longer is. */
  void abandon();
  /** The cleanup hook: Node identifies it, to remove it, by this very function. */
  static void endOf(void* object) { static_cast<EngineObject*>(object)->end(); }
  /** A call waits for its answer: the process and, by `Ref`, the object stay for it. */
  void hold(Napi::Env env);
  /** The answer is about to be given; `Unref` follows once it was. */
  void release(Napi::Env env);
  void begin(int64_t serial);
  /** Ends the call of this serial number while it is the one under way. */
  void interruptOnly(int64_t serial);
  EngineError failureOf(const std::exception_ptr& thrown) const;
  Engine& engine();

  std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> closed_{false};
  /** Guards the two serial numbers below, and `interrupted_` where it is set because of them. */
  std::mutex interrupting_;
  /** The last call that was interrupted, with all before it; and the call under way. */
  int64_t interruptedThrough_ = 0, running_ = 0;
  /** Calls made, and calls that wait for their answer; used on Node's thread alone. */
  int64_t calls_ = 0, waiting_ = 0;
  std::unique_ptr<Mailbox> mailbox_;
  /** Classes of the graph. */
  int classes_ = 0;
  /** Used on the engine's thread alone: the engine, or why it could not be made. */
  std::unique_ptr<Engine> engine_;
  std::optional<EngineError> failure_;
  /** Used on the engine's thread alone. */
  FileWrites writes_;
  /** Destroyed before the members above, which its jobs use. */
  std::unique_ptr<Thread> thread_;
  Napi::Env env_;
};

template <typename Begin>
Napi::Promise EngineObject::enqueue(Napi::Env env, const Napi::Value& onProgress, Begin begin) {
  auto waiting = std::make_shared<Call>(env, onProgress);
  const Napi::Promise promise = waiting->deferred.Promise();
  if (closed_) {
    waiting->deferred.Reject(
        errorValue(env, {"closed", "the engine was closed"}, waiting->caller.Value()));
    return promise;
  }
  const int64_t serial = ++calls_;
  hold(env);
  thread_->post([this, serial, waiting = std::move(waiting), begin = std::move(begin)]() mutable {
    try {
      if (closed_) throw EngineError("closed", "the engine was closed");
      this->begin(serial);
      begin(waiting);
    } catch (...) {
      reject(waiting, std::current_exception());
    }
  });
  return promise;
}

template <typename Result, typename Answer>
void EngineObject::resolve(CallPointer& call, std::shared_ptr<Result> result, Answer answer) {
  reply([call = std::move(call), result = std::move(result), answer](Napi::Env in) {
    call->resolve(in, [&] { return answer(in, *result); });
  });
}

template <typename Work, typename Answer>
Napi::Promise EngineObject::call(Napi::Env env, const Napi::Value& onProgress, Work work,
                                 Answer answer) {
  auto begin = [this, work = std::move(work), answer](CallPointer& waiting) mutable {
    // The reporter goes before the answer is sent: what is JS may be freed on Node's thread alone.
    const auto done = [&] {
      Reporter report(*mailbox_, waiting, [this, serial = running_] { interruptOnly(serial); });
      return std::make_shared<decltype(work(report))>(work(report));
    };
    resolve(waiting, done(), answer);
  };
  return enqueue(env, onProgress, std::move(begin));
}

template <typename Body>
Napi::Value EngineObject::promised(Info info, Body body) {
  const Napi::Env env = info.Env();
  const auto rejected = [&](const Napi::Value& error) {
    const auto deferred = Napi::Promise::Deferred::New(env);
    deferred.Reject(error);
    return deferred.Promise();
  };
  try {
    return body();
  } catch (const Napi::Error& error) {
    // A getter of the argument threw it.
    return rejected(error.Value());
  } catch (...) {
    return rejected(errorValue(env, errorOf(std::current_exception())));
  }
}

}  // namespace vantage
