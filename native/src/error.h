// Expected failures of the engine: a code of native/index.d.ts and a sentence.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace vantage {

struct EngineError : std::runtime_error {
  std::string code;
  EngineError(std::string code, const std::string& detail)
      : std::runtime_error(detail), code(std::move(code)) {}
};

/** The call was interrupted. What catches it restores the state before the abandoned step. */
struct Interruption : EngineError {
  Interruption() : EngineError("interrupted", "it was interrupted") {}
};

}  // namespace vantage
