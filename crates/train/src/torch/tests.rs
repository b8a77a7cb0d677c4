use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, ThreadId};

use tch::{Device, Kind, Tensor};

use super::*;

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values).to_kind(Kind::Float)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).contiguous().view(-1)).unwrap()
}

fn close(left: &[f64], right: &[f64]) {
    assert_eq!(left.len(), right.len());
    for (a, b) in left.iter().zip(right) {
        assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{left:?} against {right:?}");
    }
}

#[test]
fn sgd_is_the_written_update() {
    for (momentum, nesterov, weight_decay) in [(0.0, false, 0.0), (0.9, false, 0.01), (0.9, true, 0.01)] {
        let start = [1.0, -2.0, 0.5];
        let parameter = vector(&start);
        let buffer = vector(&[0.0; 3]);
        let (mut weights, mut velocity) = (start, [0.0; 3]);
        for step in 0..4 {
            let gradient = [0.3, -0.1 * f64::from(step), 0.7];
            let constants = SgdConstants { lr: 0.1, momentum, nesterov, weight_decay };
            let momenta = if momentum == 0.0 { vec![] } else { vec![buffer.shallow_clone()] };
            sgd_step(&[parameter.shallow_clone()], &[vector(&gradient)], &momenta, constants, None).unwrap();
            for i in 0..3 {
                let gradient = gradient[i] + weight_decay * weights[i];
                velocity[i] = momentum * velocity[i] + gradient;
                let update = if nesterov { gradient + momentum * velocity[i] } else { velocity[i] };
                weights[i] -= 0.1 * update;
            }
        }
        close(&values(&parameter), &weights);
    }
}

#[test]
fn adamw_is_the_written_update() {
    let start = [1.0, -2.0, 0.5];
    let (parameter, first, second) = (vector(&start), vector(&[0.0; 3]), vector(&[0.0; 3]));
    let (mut weights, mut mean, mut square) = (start, [0.0; 3], [0.0; 3]);
    let (lr, [beta1, beta2], eps, weight_decay) = (0.01, [0.9, 0.999], 1e-8, 0.1);
    for count in 1..=4 {
        let gradient = [0.3, -0.1 * f64::from(count), 0.7];
        let constants = AdamwConstants { lr, betas: [beta1, beta2], eps, weight_decay };
        let moments: [&[Tensor]; 2] = [&[first.shallow_clone()], &[second.shallow_clone()]];
        let step = Tensor::from(count as f32);
        adamw_step(&[parameter.shallow_clone()], &[vector(&gradient)], moments, &step, constants, None).unwrap();
        for i in 0..3 {
            weights[i] -= lr * weight_decay * weights[i];
            mean[i] = beta1 * mean[i] + (1.0 - beta1) * gradient[i];
            square[i] = beta2 * square[i] + (1.0 - beta2) * gradient[i] * gradient[i];
            let denominator = (square[i] / (1.0 - beta2.powi(count))).sqrt() + eps;
            weights[i] -= lr * mean[i] / (1.0 - beta1.powi(count)) / denominator;
        }
    }
    close(&values(&parameter), &weights);
}

#[test]
fn gradients_are_measured_scaled_and_forgotten() {
    let gradients = [vector(&[3.0, 0.0]), vector(&[0.0, 4.0])];
    close(&values(&gradient_norm(&gradients).unwrap()), &[5.0]);
    scale(&gradients, &Tensor::from(0.5f32)).unwrap();
    close(&values(&gradients[1]), &[0.0, 2.0]);
    zero(&gradients).unwrap();
    close(&values(&gradients[1]), &[0.0, 0.0]);

    let parameter = vector(&[1.0]).set_requires_grad(true);
    (&parameter * 2.0).sum(Kind::Float).backward();
    assert!(parameter.grad().defined());
    drop_gradients(&[parameter.shallow_clone()]).unwrap();
    assert!(!parameter.grad().defined());
}

#[test]
fn tensors_are_added_and_copied_in_pairs() {
    let (sums, others) = ([vector(&[1.0, 2.0]), vector(&[3.0])], [vector(&[10.0, 20.0]), vector(&[30.0])]);
    add(&sums, &others).unwrap();
    close(&values(&sums[0]), &[11.0, 22.0]);
    close(&values(&sums[1]), &[33.0]);
    copy(&sums, &others).unwrap();
    close(&values(&sums[0]), &[10.0, 20.0]);
}

#[test]
fn values_are_copied_to_bytes_in_c_order() {
    let tensor = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([2, 3]).transpose(0, 1);
    let mut bytes = vec![0; 24];
    copy_to_bytes(&tensor, &mut bytes).unwrap();
    let found: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect();
    assert_eq!(found, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let error = copy_to_bytes(&tensor, &mut bytes[..20]).unwrap_err();
    assert_eq!(error.to_string(), "20 bytes cannot hold a tensor of [3, 2]");
}

#[test]
fn a_profile_names_what_was_executed() {
    let _turn = turn();
    let matrix = Tensor::ones([64, 64], (Kind::Float, Device::Cpu));
    let (sum, kernels) =
        profiled(Device::Cpu, || Ok(matrix.f_mm(&matrix)?.f_mm(&matrix)?.f_sum(Kind::Float)?)).unwrap();
    close(&values(&sum), &[64.0 * 64.0 * 4096.0]);
    let product = kernels.iter().find(|kernel| kernel.name == "aten::mm").unwrap();
    assert_eq!((product.count, product.on_device), (2, false));
    assert!(!product.time.is_zero() && kernels.is_sorted_by(|one, other| one.time >= other.time));
    // One that failed is over too.
    assert!(profiled(Device::Cpu, || Err::<(), _>(Error::new("no"))).is_err());
    assert!(profiled(Device::Cpu, || Ok(())).is_ok());
}

#[test]
fn random_state_round_trips() {
    let _turn = turn();
    seed(7).unwrap();
    let state = random_state(Device::Cpu).unwrap();
    let drawn = values(&Tensor::rand([8], (Kind::Float, Device::Cpu)));
    assert_ne!(values(&Tensor::rand([8], (Kind::Float, Device::Cpu))), drawn);
    set_random_state(Device::Cpu, &state).unwrap();
    assert_eq!(values(&Tensor::rand([8], (Kind::Float, Device::Cpu))), drawn);
    assert!(set_random_state(Device::Cpu, &vector(&[1.0])).is_err());
}

#[test]
fn autocast_holds_within_its_scope_only() {
    let matrix = Tensor::ones([4, 4], (Kind::Float, Device::Cpu));
    let product = || Ok(matrix.f_matmul(&matrix)?.kind());
    assert_eq!(autocast(Device::Cpu, AutocastDtype::Bf16, product), Ok(Kind::BFloat16));
    assert_eq!(autocast(Device::Cpu, AutocastDtype::Fp16, product), Ok(Kind::Half));
    assert_eq!(product(), Ok(Kind::Float));
    let _ = autocast::<()>(Device::Cpu, AutocastDtype::Bf16, || Err(Error::new("left early")));
    assert_eq!(product(), Ok(Kind::Float));
}

#[test]
fn a_wrong_shape_is_one_line() {
    let constants = SgdConstants { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let shim = sgd_step(&[vector(&[1.0])], &[], &[], constants, None).unwrap_err().to_string();
    let tch = Error::from(vector(&[1.0, 2.0]).f_matmul(&vector(&[1.0])).unwrap_err()).to_string();
    for text in [shim, tch] {
        assert!(!text.is_empty() && !text.contains('\n') && !text.contains("frame #"), "{text}");
    }
}

#[test]
fn memory_that_is_not_there_is_told_apart() {
    let error = Error::from(Tensor::f_empty([1 << 50], (Kind::Float, Device::Cpu)).unwrap_err());
    assert!(error.is_out_of_memory(), "{error}");
}

#[test]
fn the_library_is_the_pinned_one() {
    assert_eq!(version().unwrap(), domain::torch::VERSION);
    assert!(peak_memory().unwrap().host > 1 << 20);
    let picture = Tensor::ones([1, 3, 2, 2], (Kind::Float, Device::Cpu));
    assert_eq!(channels_last(&picture).unwrap().stride(), [12, 1, 6, 3]);
}

#[test]
fn memory_that_was_given_back_comes_again_for_all_views() {
    let all = Tensor::zeros([1 << 20], (Kind::Float, Device::Cpu));
    let part = all.narrow(0, 1000, 8);
    for round in 0..3 {
        release_memory(&part).unwrap();
        assert_eq!((all.numel(), part.size()), (1 << 20, vec![8]));
        // Any view stands for the whole.
        allocate_memory(&part).unwrap();
        let _ = all.shallow_clone().fill_(f64::from(round));
        assert_eq!(values(&part), vec![f64::from(round); 8]);
        assert_eq!(values(&all.narrow(0, (1 << 20) - 1, 1)), [f64::from(round)]);
    }
    let nothing = Tensor::zeros([0], (Kind::Float, Device::Cpu));
    release_memory(&nothing).unwrap();
    allocate_memory(&nothing).unwrap();
}

/// Libraries that stand in for the one for CUDA devices: of this version and this PyTorch, of others, and of none.
#[test]
fn a_library_for_cuda_says_what_it_was_built_for_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/torch/cuda/version.cpp");
    let build = |name: &str, source: &Path, torch: &str| {
        let library = folder.path().join(name);
        let mut compiler = Command::new("c++");
        compiler.args(["-shared", "-fPIC", &format!("-DGRADUS_TORCH_VERSION=\"{torch}\"")]).arg("-o").arg(&library);
        assert!(compiler.arg(source).status().unwrap().success());
        CString::new(library.into_os_string().into_encoded_bytes()).unwrap()
    };
    let silent = folder.path().join("silent.cpp");
    std::fs::write(&silent, "extern \"C\" int gradus_stand_in() { return 1; }\n").unwrap();
    let torch = domain::torch::VERSION;
    let [good, other] = [torch, "2.1.0"].map(|torch| build(&format!("{torch}.so"), &source, torch));
    let silent = build("silent.so", &silent, torch);
    let check = |path: &CString, version: u32| load::open_if_built_for(path, version, torch);
    assert_eq!(check(&CString::new("/nowhere/libgradus-cuda.so").unwrap(), load::CUDA_PART), Ok(false));
    let refused = check(&other, load::CUDA_PART).unwrap_err();
    let (part, next) = (load::CUDA_PART, load::CUDA_PART + 1);
    assert!(refused.contains(&format!("it is version {part} for PyTorch 2.1.0, and this program needs")), "{refused}");
    assert!(check(&good, next).unwrap_err().contains(&format!("needs version {next}")));
    assert!(check(&silent, load::CUDA_PART).unwrap_err().contains("does not say what it was built for"));
    // One that needs what is not there, and one that is none.
    let needy = folder.path().join("needy.cpp");
    std::fs::write(&needy, "extern \"C\" int gradus_missing();\nint needs() { return gradus_missing(); }\n").unwrap();
    let refused = check(&build("needy.so", &needy, torch), load::CUDA_PART).unwrap_err();
    assert_eq!(refused, "it cannot be loaded: undefined symbol: gradus_missing");
    let cut = folder.path().join("cut.so");
    std::fs::write(&cut, "ELF").unwrap();
    let cut = CString::new(cut.into_os_string().into_encoded_bytes()).unwrap();
    assert_eq!(check(&cut, load::CUDA_PART).unwrap_err(), "it cannot be loaded: file too short");
    assert!(!load::is_known(c"gradus_stand_in") && !load::is_known(c"gradus_cuda_built_for"));
    assert_eq!(check(&good, load::CUDA_PART), Ok(true));
    assert!(load::is_known(c"gradus_cuda_built_for"));
}

/// Notes on which thread it is dropped.
struct Noted(mpsc::Sender<ThreadId>);

impl Drop for Noted {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

/// Autograd may drop a graph on another thread, as it does for CUDA devices.
#[test]
fn a_closure_is_dropped_where_it_was_made_whoever_drops_it() {
    let (notes, noted) = mpsc::channel();
    let closure = || {
        let held = Rc::new(Noted(notes.clone()));
        bridge::AutogradClosure::new(Box::new(move |x, _| {
            let _ = &held;
            Ok(x.shallow_clone())
        }))
    };
    let drop_elsewhere = |closure: bridge::AutogradClosure| thread::spawn(move || drop(closure)).join().unwrap();
    drop(closure());
    assert_eq!(noted.try_recv(), Ok(thread::current().id()));
    drop_elsewhere(closure());
    assert!(noted.try_recv().is_err(), "it was dropped by another thread");
    drop(closure());
    assert_eq!([noted.recv().unwrap(), noted.recv().unwrap()], [thread::current().id(); 2]);
    // One that outlives its thread is dropped by nobody, and one that came back in time by the thread's end.
    let notes = notes.clone();
    let (late, early) = thread::spawn(move || {
        let one = || {
            let held = Rc::new(Noted(notes.clone()));
            bridge::AutogradClosure::new(Box::new(move |x, _| {
                let _ = &held;
                Ok(x.shallow_clone())
            }))
        };
        let (late, early) = (one(), one());
        thread::spawn(move || drop(early)).join().unwrap();
        (late, thread::current().id())
    })
    .join()
    .unwrap();
    assert_eq!(noted.recv().unwrap(), early);
    drop(late);
    assert!(noted.try_recv().is_err(), "it was dropped by another thread");
}

#[test]
fn an_update_that_the_device_forbids_changes_nothing() {
    let constants = SgdConstants { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.1 };
    let adamw = AdamwConstants { lr: 0.1, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.1 };
    let (gradient, step) = (vector(&[f64::NAN, 1.0]), Tensor::from(1f32));
    for (found, is_updated) in [(1f32, false), (0.0, true)] {
        let found = Tensor::from(found);
        let gradient = if is_updated { vector(&[1.0, 1.0]) } else { gradient.shallow_clone() };
        let [by_sgd, momentum, by_adamw, first, second] = [(); 5].map(|()| vector(&[1.0, 2.0]));
        let [sgd, adam] = [&by_sgd, &by_adamw].map(|tensor| [tensor.shallow_clone()]);
        let gradients = [gradient];
        sgd_step(&sgd, &gradients, &[momentum.shallow_clone()], constants, Some(&found)).unwrap();
        let moments = [&[first.shallow_clone()][..], &[second.shallow_clone()][..]];
        adamw_step(&adam, &gradients, moments, &step, adamw, Some(&found)).unwrap();
        for tensor in [by_sgd, momentum, by_adamw, first, second] {
            assert_eq!(tensor == vector(&[1.0, 2.0]), !is_updated, "{tensor:?}");
        }
    }
}

#[test]
fn a_value_that_is_not_finite_is_found_among_all() {
    let ok = [vector(&[1.0, -3e38]), Tensor::from_slice(&[i64::MAX]), Tensor::zeros([0], (Kind::Float, Device::Cpu))];
    assert_eq!(are_finite(&ok), Ok(true));
    assert_eq!(are_finite(&[]), Ok(true));
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for kind in [Kind::Float, Kind::Double, Kind::BFloat16] {
            let bad = vector(&[0.0, bad, 1.0]).to_kind(kind);
            assert_eq!(are_finite(ok.iter().chain([&bad])), Ok(false), "{bad:?}");
        }
    }
}

#[test]
fn values_reach_the_device_in_their_order_and_come_back() {
    let tensor = upload(&[1i64, 2, 3, 4, 5, 6], &[2, 3], Device::Cpu).unwrap();
    assert_eq!(Vec::<Vec<i64>>::try_from(&tensor).unwrap(), [[1, 2, 3], [4, 5, 6]]);
    assert!(upload(&[1f32; 5], &[2, 3], Device::Cpu).is_err());
    // What is lent to be copied to another device is the same tensor.
    let lent = bridge::lend_values(&[1i64, 2, 3, 4, 5, 6], &[2, 3], |lent| Ok(lent == &tensor));
    assert_eq!(lent, Ok(true));
    assert!(bridge::lend_values(&[true; 5], &[2, 3], |_| Ok(())).is_err());
    let copy = HostCopy::begin(&Tensor::from_slice(&[0.5f64, f64::NAN])).unwrap();
    assert_eq!(copy.is_done(), Ok(true));
    let values = copy.read().unwrap();
    assert!(values[0] == 0.5 && values[1].is_nan());
}
