// Work whose exceptions do not cross the border to Rust: what went wrong is returned as text, and nothing where all is well.

#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

namespace gradus {

template <typename Work> const char *attempt(Work &&work) noexcept {
  static thread_local std::string wrong;
  try {
    work();
    return nullptr;
  } catch (const c10::Error &error) {
    wrong = error.what_without_backtrace();
  } catch (const std::exception &error) {
    wrong = error.what();
  } catch (...) {
    wrong = "an exception of unknown kind";
  }
  return wrong.c_str();
}

} // namespace gradus
