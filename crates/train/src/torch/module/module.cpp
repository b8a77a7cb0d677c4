#include "gradus-train/src/torch/module/module.h"
#include "gradus-train/src/torch/module/bridge.rs.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

namespace gradus {

struct Script::Inner {
  torch::jit::Module module;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

namespace {

const auto &tensors(const Script &script, bool buffers) {
  return buffers ? script.inner->buffers : script.inner->parameters;
}

// Without the module itself, which comes first.
std::vector<c10::Argument> arguments(const Script &script) {
  auto all = script.inner->module.get_method("forward").function().getSchema().arguments();
  return {all.begin() + 1, all.end()};
}

} // namespace

std::unique_ptr<Script> script_load(rust::Str path, bool cuda, std::uint32_t device) {
  // Optimised, a graph runs otherwise the first time than later, so that a run that is resumed would not repeat what
  // one without a break computes. On this thread.
  torch::jit::setGraphExecutorOptimize(false);
  auto where = cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)) : at::Device(at::kCPU);
  auto inner = std::make_shared<Script::Inner>();
  // Without what says where in a Python program each line was: from a damaged file, that is read only when an error is
  // put into words, and then there is no way to say that it is damaged.
  std::unordered_map<std::string, std::string> more;
  inner->module = torch::jit::load(std::string(path.data(), path.size()), where, more, /*load_debug_files=*/false);
  for (const auto &named : inner->module.named_parameters(/*recurse=*/true)) {
    inner->parameters.emplace_back(named.name, named.value);
  }
  for (const auto &named : inner->module.named_buffers(/*recurse=*/true)) {
    inner->buffers.emplace_back(named.name, named.value);
  }
  return std::make_unique<Script>(Script{inner});
}

void script_save(const Script &script, rust::Str path) {
  script.inner->module.save(std::string(path.data(), path.size()));
}

rust::Vec<rust::String> script_names(const Script &script, bool buffers) {
  rust::Vec<rust::String> names;
  for (const auto &named : tensors(script, buffers)) {
    names.push_back(rust::String::lossy(named.first));
  }
  return names;
}

std::unique_ptr<at::Tensor> script_tensor(const Script &script, bool buffers, std::uint64_t place) {
  return std::make_unique<at::Tensor>(tensors(script, buffers).at(place).second);
}

std::uint32_t script_least_inputs(const Script &script) {
  std::uint32_t count = 0;
  for (const auto &argument : arguments(script)) {
    count += argument.default_value().has_value() ? 0 : 1;
  }
  return count;
}

std::uint32_t script_most_inputs(const Script &script) {
  return static_cast<std::uint32_t>(arguments(script).size());
}

void script_train(const Script &script, bool on) { script.inner->module.train(on); }

std::unique_ptr<at::Tensor> script_forward(const Script &script, Givens values) {
  std::vector<c10::IValue> inputs;
  for (const Given &given : values) {
    inputs.emplace_back(*given.tensor);
  }
  auto said = script.inner->module.forward(std::move(inputs));
  if (!said.isTensor()) {
    throw std::runtime_error("its `forward` returns a " + said.tagKind() + ", and a tensor of scores is wanted");
  }
  return std::make_unique<at::Tensor>(said.toTensor());
}

} // namespace gradus
