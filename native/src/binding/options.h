// The options that an engine is made with.
#pragma once
#include <napi.h>

#include "arguments.h"

namespace vantage {

EngineOptions readOptions(const Napi::Value& value);
/** The graph of shared/detector.ts; graph.cpp. Its nodes are checked one by one, not together. */
Graph readGraph(const Fields& from);

}  // namespace vantage
