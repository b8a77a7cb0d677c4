// Stands in for a header that the wheel lacks. No object of it is made on this side of the library.
#pragma once
#include <gloo/context.h>
namespace gloo::rendezvous {
struct Store {
  virtual ~Store() = default;
  virtual void set(const std::string &key, const std::vector<char> &value) = 0;
  virtual std::vector<char> get(const std::string &key) = 0;
  virtual void wait(const std::vector<std::string> &keys) = 0;
  virtual void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) = 0;
};
} // namespace gloo::rendezvous
