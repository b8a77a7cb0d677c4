// Stands in for a header that the wheel lacks: the library holds these by pointer, and so does nobody else.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>
namespace gloo {
class Context {
public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class Device;
struct UnboundBuffer {
  virtual ~UnboundBuffer() = default;
};
} // namespace transport
} // namespace gloo
