// The options that an engine is made with.
#pragma once
#include <napi.h>

#include <optional>

#include "arguments.h"

namespace vantage {

EngineOptions readOptions(const Napi::Value& value);
/** The field `precision`; nothing where it is absent. */
std::optional<Precision> readPrecision(const Fields& from);
/** The graph of shared/detector/detector.ts; graph.cpp. Its nodes are checked one by one. */
Graph readGraph(const Fields& from);

}  // namespace vantage
