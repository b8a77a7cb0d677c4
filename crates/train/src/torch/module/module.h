// Networks that users have built: TorchScript modules, read, run and written.
//
// Every function may throw; cxx turns what is thrown into a Rust error.

#pragma once

#include <cstdint>
#include <memory>

#include "gradus-train/src/torch/shim.h"

namespace gradus {

struct Given;
using Givens = rust::Slice<const Given>;

// What it holds is known to `module.cpp` alone, which keeps its headers out of every other file.
struct Script {
  struct Inner;
  std::shared_ptr<Inner> inner;
};

// Reads a file onto the CPU, or onto the CUDA device of this number.
std::unique_ptr<Script> script_load(rust::Str path, bool cuda, std::uint32_t device);
void script_save(const Script &script, rust::Str path);

// Names of its parameters or buffers, and the tensors of those names; the handles are shared.
rust::Vec<rust::String> script_names(const Script &script, bool buffers);
std::unique_ptr<at::Tensor> script_tensor(const Script &script, bool buffers, std::uint64_t place);

// How many values `forward` must be given, and how many it can be given.
std::uint32_t script_least_inputs(const Script &script);
std::uint32_t script_most_inputs(const Script &script);

void script_train(const Script &script, bool on);
std::unique_ptr<at::Tensor> script_forward(const Script &script, Givens values);

} // namespace gradus
