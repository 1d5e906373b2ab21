// Files of weights: models and checkpoints.
#include "arguments.h"
#include "engine-object.h"
#include "values.h"

namespace vantage {
namespace {

using Metadata = std::map<std::string, std::string>;

Metadata readMetadata(const Napi::Value& value) {
  if (!value.IsObject()) refuseArgument("metadata", "must be an object");
  const Napi::Object object = value.As<Napi::Object>();
  if (value.IsArray() || value.IsTypedArray()) refuseArgument("metadata", "must be an object");
  const Napi::Array names = object.GetPropertyNames();
  Metadata metadata;
  for (uint32_t i = 0; i < names.Length(); ++i) {
    const std::string name = names.Get(i).ToString().Utf8Value();
    metadata[name] = readText(object.Get(name), ("metadata." + name).c_str());
  }
  return metadata;
}

Napi::Object toJs(Napi::Env env, const Metadata& metadata) {
  Napi::Object object = Napi::Object::New(env);
  for (const auto& [name, value] : metadata) object.Set(name, Napi::String::New(env, value));
  return object;
}

Napi::Value toJs(Napi::Env env, const LoadReport& report) {
  Napi::Object object = Napi::Object::New(env);
  object["matched"] = stringArray(env, report.matched);
  object["mismatched"] = arrayOf(env, report.mismatched, [&](const LoadReport::Mismatch& mismatch) {
    Napi::Object entry = Napi::Object::New(env);
    entry["name"] = mismatch.name;
    entry["file"] = numberArray(env, mismatch.file);
    entry["graph"] = numberArray(env, mismatch.graph);
    return entry;
  });
  object["missing"] = stringArray(env, report.missing);
  object["unused"] = stringArray(env, report.unused);
  object["metadata"] = toJs(env, report.metadata);
  return object;
}

}  // namespace

Napi::Value EngineObject::load(Info info) {
  return promised(info, [&] {
    const auto work = [this, path = readText(info[0], "path")](Reporter&) {
      return engine().load(path);
    };
    return call(info.Env(), {}, work,
                [](Napi::Env env, const LoadReport& report) { return toJs(env, report); });
  });
}

/** Writes a file of what `copy(engine)` holds, beside the calls that follow. */
template <typename Copy>
Napi::Value EngineObject::writeFile(Info info, Copy copy) {
  return promised(info, [&] {
    const auto answer = [](Napi::Env env, uint64_t bytes) {
      Napi::Object object = Napi::Object::New(env);
      object["bytes"] = static_cast<double>(bytes);
      return object;
    };
    auto begin = [this, copy, answer, path = readText(info[0], "path"),
                        metadata = readMetadata(info[1])](CallPointer& waiting) {
      writes_.makeRoom();
      writes_.post([this, answer, path, metadata, file = FileCopy(copy(engine())),
                    waiting = std::move(waiting)]() mutable {
        try {
          const uint64_t bytes = file(path, metadata);
          file = nullptr;
          resolve(waiting, std::make_shared<uint64_t>(bytes), answer);
        } catch (...) {
          reject(waiting, std::current_exception());
        }
      });
    };
    return enqueue(info.Env(), {}, std::move(begin));
  });
}

Napi::Value EngineObject::save(Info info) {
  return writeFile(info, [](const Engine& engine) { return engine.save(); });
}

Napi::Value EngineObject::checkpoint(Info info) {
  return writeFile(info, [](const Engine& engine) { return engine.checkpoint(); });
}

Napi::Value EngineObject::restore(Info info) {
  return promised(info, [&] {
    const auto work = [this, path = readText(info[0], "path")](Reporter&) {
      return engine().restore(path);
    };
    return call(info.Env(), {}, work, [](Napi::Env env, const Metadata& metadata) {
      Napi::Object answer = Napi::Object::New(env);
      answer["metadata"] = toJs(env, metadata);
      return answer;
    });
  });
}

}  // namespace vantage
