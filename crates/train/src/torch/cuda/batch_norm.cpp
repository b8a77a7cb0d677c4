// Batch normalisation of a training step on a CUDA device, with the addition of a shortcut and the activation behind it in
// the same kernels: each tensor is read and written once where PyTorch does so for each of the three.
//
// A part of `libgradus-cuda.so` like `nccl.cpp`. `norm.rs` looks the name up. The kernels (`batch_norm_kernels.h`) are
// compiled by NVIDIA's run-time compiler, which PyTorch brings along, once per process, type and activation.

#include "attempt.h"
#include "batch_norm_kernels.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <dlfcn.h>

#include <ATen/Functions.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <nvrtc.h>
#include <torch/csrc/autograd/custom_function.h>

namespace {

// The values of `Activation` in `layer.rs`.
constexpr int ACTIVATIONS = 5;
constexpr int RELU = 1;
constexpr int THREADS = 256;
// As many blocks as keep a device busy: a few for each of its multiprocessors.
constexpr std::int64_t BLOCKS_PER_MULTIPROCESSOR = 8;
// Fewer rows than this are not worth a block's sums.
constexpr std::int64_t ROWS_PER_THREAD = 8;

// A function of a library that is opened by name; its dependencies are searched too.
template <typename Function> Function *look_up(void *library, const char *name) {
  auto *symbol = dlsym(library, name);
  TORCH_CHECK(symbol != nullptr, "`", name, "` is missing in NVIDIA's libraries");
  return reinterpret_cast<Function *>(symbol);
}

void *open_any(std::initializer_list<const char *> names) {
  for (const char *name : names) {
    if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      return library;
    }
  }
  TORCH_CHECK(false, "`", *names.begin(), "` cannot be opened: ", dlerror());
}

#define GRADUS_FIND(library, name) look_up<decltype(name)>(library, #name)

struct Kernels {
  CUfunction statistics, finish_statistics, normalise, gradient_sums, finish_gradients, gradients;
};

struct Driver {
  Driver()
      : library(open_any({"libcuda.so.1"})), load(GRADUS_FIND(library, cuModuleLoadData)),
        find(GRADUS_FIND(library, cuModuleGetFunction)), launch(GRADUS_FIND(library, cuLaunchKernel)) {}
  void *library;
  decltype(cuModuleLoadData) *load;
  decltype(cuModuleGetFunction) *find;
  decltype(cuLaunchKernel) *launch;
};

const Driver &driver() {
  static const Driver opened;
  return opened;
}

// The compiler opens a library of its own by its name alone, which lies beside it and on no path.
void open_builtins(void *of_compiler) {
  Dl_info found{};
  if (dladdr(of_compiler, &found) == 0 || found.dli_fname == nullptr) {
    return;
  }
  std::error_code failed;
  const auto folder = std::filesystem::path(found.dli_fname).parent_path();
  for (const auto &entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().filename().string().rfind("libnvrtc-builtins.so", 0) == 0) {
      dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
    }
  }
}

std::string compiled(const cudaDeviceProp &device, int kind, int activation, bool residual) {
  // PyTorch's own stand-in depends on the compiler, wherever that is.
  void *library = open_any({"libnvrtc.so.13", "libcaffe2_nvrtc.so", "libnvrtc.so"});
  nvrtcProgram program = nullptr;
  auto *create = GRADUS_FIND(library, nvrtcCreateProgram);
  open_builtins(reinterpret_cast<void *>(create));
  TORCH_CHECK(create(&program, gradus::batch_norm_kernels, "batch_norm.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS);
  const std::vector<std::string> options{
      "-arch=sm_" + std::to_string(device.major) + std::to_string(device.minor), "-std=c++17",
      "-DKIND=" + std::to_string(kind), "-DACTIVATION=" + std::to_string(activation),
      "-DRESIDUAL=" + std::to_string(int(residual))};
  std::vector<const char *> words;
  for (const auto &option : options) {
    words.push_back(option.c_str());
  }
  const bool is_done =
      GRADUS_FIND(library, nvrtcCompileProgram)(program, int(words.size()), words.data()) == NVRTC_SUCCESS;
  std::size_t size = 0;
  std::string text;
  if (is_done) {
    GRADUS_FIND(library, nvrtcGetCUBINSize)(program, &size);
    text.resize(size);
    GRADUS_FIND(library, nvrtcGetCUBIN)(program, text.data());
  } else {
    GRADUS_FIND(library, nvrtcGetProgramLogSize)(program, &size);
    text.resize(size);
    GRADUS_FIND(library, nvrtcGetProgramLog)(program, text.data());
  }
  GRADUS_FIND(library, nvrtcDestroyProgram)(&program);
  TORCH_CHECK(is_done, "kernels for batch normalisation do not compile: ", text);
  return text;
}

const Kernels &kernels(c10::DeviceIndex device, int kind, int activation, bool residual) {
  static std::mutex lock;
  static std::map<std::tuple<int, int, int, bool>, Kernels> known;
  const std::lock_guard<std::mutex> guard(lock);
  const std::tuple<int, int, int, bool> key{device, kind, activation, residual};
  if (auto found = known.find(key); found != known.end()) {
    return found->second;
  }
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const std::string code = compiled(properties, kind, activation, residual);
  CUmodule module = nullptr;
  TORCH_CHECK(driver().load(&module, code.data()) == CUDA_SUCCESS, "the device refuses the kernels");
  auto function = [&](const char *name) {
    CUfunction found = nullptr;
    TORCH_CHECK(driver().find(&found, module, name) == CUDA_SUCCESS, "there is no kernel `", name, "`");
    return found;
  };
  return known[key] = Kernels{function("statistics"),    function("finish_statistics"), function("normalise"),
                              function("gradient_sums"), function("finish_gradients"),  function("gradients")};
}

// How rows and channels are divided among threads and blocks.
struct Division {
  Division(const at::Tensor &x, int width)
      : channels(int(x.size(1))), rows(x.numel() / x.size(1)), wide(std::min(channels / width, 32)),
        high(THREADS / wide), columns((channels / width + wide - 1) / wide) {
    int multiprocessors = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, x.device().index()));
    const std::int64_t useful = (rows + high * ROWS_PER_THREAD - 1) / (high * ROWS_PER_THREAD);
    const std::int64_t enough = std::max<std::int64_t>(1, multiprocessors * BLOCKS_PER_MULTIPROCESSOR / columns);
    blocks = int(std::clamp<std::int64_t>(useful, 1, enough));
  }
  int channels;
  long long rows;
  int wide, high, columns, blocks = 1;
};

template <typename... Arguments> void launch(CUfunction kernel, dim3 grid, dim3 block, Arguments... arguments) {
  void *places[] = {&arguments...};
  const auto failed = driver().launch(kernel, grid.x, grid.y, 1, block.x, block.y, 1, 0,
                                      c10::cuda::getCurrentCUDAStream().stream(), places, nullptr);
  TORCH_CHECK(failed == CUDA_SUCCESS, "a kernel of batch normalisation was not launched: error ", int(failed));
}

template <typename... Arguments> void over_rows(CUfunction kernel, const Division &by, Arguments... arguments) {
  launch(kernel, dim3(by.columns, by.blocks), dim3(by.wide, by.high), arguments...);
}

template <typename... Arguments> void over_channels(CUfunction kernel, const Division &by, Arguments... arguments) {
  launch(kernel, dim3((by.channels + 31) / 32), dim3(32, 8), arguments...);
}

int kind_of(const at::Tensor &x) {
  return x.scalar_type() == at::kFloat ? 0 : x.scalar_type() == at::kBFloat16 ? 1 : 2;
}

int width_of(const at::Tensor &x) { return x.scalar_type() == at::kFloat ? 4 : 8; }

const float *floats(const at::Tensor &tensor) { return tensor.const_data_ptr<float>(); }

// A tensor or none; autograd takes no undefined ones.
using OptionalTensor = std::optional<at::Tensor>;

struct BatchNorm : torch::autograd::Function<BatchNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &x, const at::Tensor &weight,
                            const at::Tensor &bias, const OptionalTensor &residual, const OptionalTensor &running_mean,
                            const OptionalTensor &running_var, double momentum, double eps, std::int64_t activation) {
    const c10::cuda::CUDAGuard here(x.device());
    const Division by(x, width_of(x));
    const auto &run = kernels(x.device().index(), kind_of(x), int(activation), residual.has_value());
    auto numbers = at::empty({4, by.channels}, weight.options());
    auto partial = at::empty({2, by.blocks, by.channels}, weight.options());
    auto y = at::empty_like(x);
    over_rows(run.statistics, by, x.const_data_ptr(), partial.mutable_data_ptr<float>(), by.rows, by.channels);
    float *mean = running_mean ? running_mean->mutable_data_ptr<float>() : nullptr;
    float *variance = running_var ? running_var->mutable_data_ptr<float>() : nullptr;
    over_channels(run.finish_statistics, by, floats(partial), by.blocks, x.const_data_ptr(), floats(weight), floats(bias),
                  mean, variance, numbers.mutable_data_ptr<float>(), by.rows, by.channels, momentum, eps);
    const void *added = residual ? residual->const_data_ptr() : nullptr;
    over_rows(run.normalise, by, x.const_data_ptr(), added, floats(numbers), y.mutable_data_ptr(), by.rows, by.channels);
    context->save_for_backward({x, numbers, residual ? y : at::Tensor()});
    context->saved_data["activation"] = activation;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved.at(0), &numbers = saved.at(1), &y = saved.at(2);
    const bool has_residual = y.defined();
    const c10::cuda::CUDAGuard here(x.device());
    const auto gradient = gradients.at(0).to(x.scalar_type()).contiguous(at::MemoryFormat::ChannelsLast);
    const Division by(x, width_of(x));
    const auto &run = kernels(x.device().index(), kind_of(x), int(context->saved_data["activation"].toInt()), has_residual);
    auto partial = at::empty({2, by.blocks, by.channels}, numbers.options());
    auto plane = at::empty({2, by.channels}, numbers.options());
    auto of_weight = at::empty({by.channels}, numbers.options()), of_bias = at::empty_like(of_weight);
    auto of_x = at::empty_like(x);
    const auto masked = has_residual ? at::empty_like(x) : at::Tensor();
    const void *result = has_residual ? y.const_data_ptr() : nullptr;
    void *passed_on = has_residual ? masked.mutable_data_ptr() : nullptr;
    over_rows(run.gradient_sums, by, gradient.const_data_ptr(), x.const_data_ptr(), result, floats(numbers), passed_on,
              partial.mutable_data_ptr<float>(), by.rows, by.channels);
    over_channels(run.finish_gradients, by, floats(partial), by.blocks, floats(numbers),
                  of_weight.mutable_data_ptr<float>(), of_bias.mutable_data_ptr<float>(),
                  plane.mutable_data_ptr<float>(), by.rows, by.channels);
    const void *before = has_residual ? masked.const_data_ptr() : gradient.const_data_ptr();
    over_rows(run.gradients, by, before, x.const_data_ptr(), floats(numbers), floats(plane), of_x.mutable_data_ptr(),
              by.rows, by.channels);
    const at::Tensor none;
    return {of_x, of_weight, of_bias, masked, none, none, none, none, none};
  }
};

// Whether the kernels compile for this device; where they do not, PyTorch's own do the work.
bool are_available(c10::Device device, int kind, int activation, bool residual) {
  static std::atomic<bool> failed{false};
  if (failed) {
    return false;
  }
  try {
    const c10::cuda::CUDAGuard here(device);
    kernels(device.index(), kind, activation, residual);
    return true;
  } catch (const std::exception &error) {
    failed = true;
    TORCH_WARN("batch normalisation runs without fused kernels: ", error.what());
    return false;
  }
}

// Whether the kernels can take it: pixel by pixel in memory, with whole groups of 16 bytes, on a device that converts numbers
// as they do.
bool fits(const at::Tensor &x, const at::Tensor &weight, const OptionalTensor &residual, std::int64_t activation) {
  const auto type = x.scalar_type();
  const bool is_known = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  if (!is_known || x.dim() != 4 || x.numel() == 0 || x.numel() == x.size(1) || x.size(1) % width_of(x) != 0) {
    return false;
  }
  const bool is_alike = !residual || (residual->scalar_type() == type && residual->sizes() == x.sizes() &&
                                      residual->is_contiguous(at::MemoryFormat::ChannelsLast));
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.device().index()));
  return is_alike && x.is_contiguous(at::MemoryFormat::ChannelsLast) && weight.scalar_type() == at::kFloat &&
         activation >= 0 && activation < ACTIVATIONS && (!residual || activation == RELU) && major >= 8;
}

} // namespace

// The activation of `x`, normalised by the statistics of its batch, plus `residual` unless that is null; nothing in `out`
// where the kernels do not take it. Running statistics may be null. Returns what went wrong, or null.
extern "C" const char *gradus_batch_norm(const at::Tensor *x, const at::Tensor *weight, const at::Tensor *bias,
                                         const at::Tensor *residual, const at::Tensor *running_mean,
                                         const at::Tensor *running_var, double momentum, double eps, int activation,
                                         at::Tensor **out) noexcept {
  const auto any = [](const at::Tensor *tensor) { return tensor == nullptr ? OptionalTensor() : OptionalTensor(*tensor); };
  return gradus::attempt([&] {
    *out = nullptr;
    if (x->is_cuda() && fits(*x, *weight, any(residual), activation) &&
        are_available(x->device(), kind_of(*x), activation, residual != nullptr)) {
      *out = new at::Tensor(BatchNorm::apply(*x, *weight, *bias, any(residual), any(running_mean), any(running_var),
                                             momentum, eps, std::int64_t(activation)));
    }
  });
}
