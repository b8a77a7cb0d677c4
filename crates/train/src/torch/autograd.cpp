// Functions of autograd that run closures of Rust's: activation checkpointing and backward hooks.
//
// Declared in `shim.h`, as what `shim.cpp` defines.

#include "gradus-train/src/torch/shim.h"
#include "gradus-train/src/torch/bridge.rs.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gradus {

namespace {

// A closure of Rust's, as autograd keeps it between forward and backward pass.
struct Kept : torch::CustomClassHolder {
  explicit Kept(rust::Box<AutogradClosure> work) : work(std::move(work)) {}
  at::Tensor run(const at::Tensor &x, bool again) const {
    return *work->run(std::make_unique<at::Tensor>(x), again);
  }
  rust::Box<AutogradClosure> work;
};

// Saves the input alone; the backward pass computes everything in between once more, then goes back through that.
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &x,
                            const c10::intrusive_ptr<Kept> &kept) {
    context->save_for_backward({x});
    context->saved_data["work"] = c10::IValue::make_capsule(kept);
    return kept->run(x, /*again=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["work"].toCapsule());
    auto x = context->get_saved_variables().at(0).detach();
    x.set_requires_grad(true);
    at::Tensor y;
    {
      at::AutoGradMode on(true);
      // Not the leaf itself: autocast would cast that once for all that use it, and their gradients would be added up
      // in 16 bits instead of 32.
      y = kept->run(at::alias(x), /*again=*/true);
    }
    torch::autograd::backward({y}, {gradients.at(0)});
    return {x.grad(), at::Tensor()};
  }
};

// The same for work that several nodes of a graph do with the same parameters: each returns its share of their gradients,
// which autograd adds up before anything waits for a gradient to be complete, such as an exchange between ranks.
struct RecomputeWith : torch::autograd::Function<RecomputeWith> {
  static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &x, at::TensorList parameters,
                            const c10::intrusive_ptr<Kept> &kept) {
    torch::autograd::variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["work"] = c10::IValue::make_capsule(kept);
    return kept->run(x, /*again=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["work"].toCapsule());
    auto inputs = context->get_saved_variables();
    inputs.at(0) = inputs.at(0).detach();
    inputs.at(0).set_requires_grad(true);
    at::Tensor y;
    {
      at::AutoGradMode on(true);
      y = kept->run(at::alias(inputs.at(0)), /*again=*/true);
    }
    auto found = torch::autograd::grad({y}, inputs, {gradients.at(0)}, /*retain_graph=*/false, /*create_graph=*/false,
                                       /*allow_unused=*/true);
    found.emplace_back();
    return found;
  }
};

// Values and gradients go through as they are; in the backward pass the work is done before the gradient goes on.
struct Gate : torch::autograd::Function<Gate> {
  static at::Tensor forward(torch::autograd::AutogradContext *context, const at::Tensor &x,
                            const c10::intrusive_ptr<Kept> &kept) {
    context->saved_data["work"] = c10::IValue::make_capsule(kept);
    return x.view_as(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["work"].toCapsule());
    return {kept->run(gradients.at(0), /*again=*/true), at::Tensor()};
  }
};

} // namespace

std::unique_ptr<at::Tensor> recompute(const at::Tensor &x, rust::Box<AutogradClosure> work) {
  return std::make_unique<at::Tensor>(Recompute::apply(x, c10::make_intrusive<Kept>(std::move(work))));
}

std::unique_ptr<at::Tensor> recompute_with(const at::Tensor &x, Tensors parameters,
                                           rust::Box<AutogradClosure> work) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(parameters.size());
  for (const Borrowed &borrowed : parameters) {
    inputs.push_back(*borrowed.tensor);
  }
  return std::make_unique<at::Tensor>(
      RecomputeWith::apply(x, at::TensorList(inputs), c10::make_intrusive<Kept>(std::move(work))));
}

std::unique_ptr<at::Tensor> gate(const at::Tensor &x, rust::Box<AutogradClosure> work) {
  return std::make_unique<at::Tensor>(Gate::apply(x, c10::make_intrusive<Kept>(std::move(work))));
}

} // namespace gradus
