// Node's object of an engine: the calls that wait for it and the thread that does them. What each
// call reads and gives is in addon.cpp.
#pragma once
#include <napi.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "async.h"
#include "engine.h"

namespace vantage {

/** Node's object of an engine. The engine itself is made, used and freed on its own thread. */
class Handle : public Napi::ObjectWrap<Handle> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit Handle(const Napi::CallbackInfo& info);
  ~Handle() override;
  /** Ends every engine of a Node: one that computed on while torch is freed would crash. */
  static void endAll(Napi::Env env);

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

  /** What a call takes besides its work. */
  struct With {
    std::vector<Napi::Object> kept;
    Napi::Value onProgress;
  };
  template <typename Work, typename Answer>
  Napi::Promise call(Napi::Env env, const With& with, Work work, Answer answer);
  template <typename Work>
  auto reported(Work& work, const std::shared_ptr<Call>& waiting);
  /** Reads arguments and calls; a wrong argument rejects, like every failure. */
  template <typename Body>
  static Napi::Value promised(Info info, Body body);
  template <typename Work>
  Napi::Value writes(Info info, Work work);

  void end();
  static void endAtExit(void* handle) { static_cast<Handle*>(handle)->end(); }
  void begin(int64_t serial);
  Engine& engine();

  std::shared_ptr<std::atomic<bool>> interrupted_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> closed_{false};
  /** Calls up to this one are interrupted. */
  std::atomic<int64_t> interruptedThrough_{0};
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

template <typename Work, typename Answer>
Napi::Promise Handle::call(Napi::Env env, const With& with, Work work, Answer answer) {
  auto waiting = std::make_shared<Call>(env, with.kept, with.onProgress);
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
    mailbox_->send([this, settled = std::forward<decltype(settled)>(settled)](
                       Napi::Env in) mutable {
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
      const auto result = reported(work, waiting);
      settle([waiting = std::move(waiting), result, answer](Napi::Env in) mutable {
        waiting->deferred.Resolve(answer(in, *result));
        waiting.reset();
      });
    } catch (...) {
      settle([waiting = std::move(waiting),
              error = errorOf(std::current_exception())](Napi::Env in) mutable {
        waiting->deferred.Reject(errorValue(in, error, waiting->caller.Value()));
        waiting.reset();
      });
    }
  });
  return promise;
}

/**
 * What a call's work gives. The reporter is gone before the answer is sent: the call's last holder
 * frees what is JS of it, so that has to be Node's thread.
 */
template <typename Work>
auto Handle::reported(Work& work, const std::shared_ptr<Call>& waiting) {
  Reporter report(*mailbox_, waiting);
  return std::make_shared<decltype(work(report))>(work(report));
}

template <typename Body>
Napi::Value Handle::promised(Info info, Body body) {
  const Napi::Env env = info.Env();
  try {
    return body();
  } catch (const EngineError& error) {
    const auto deferred = Napi::Promise::Deferred::New(env);
    deferred.Reject(errorValue(env, error));
    return deferred.Promise();
  }
}

}  // namespace vantage
