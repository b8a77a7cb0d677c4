//! The kernels for CUDA devices, as far as they can be checked without one: compiled for the processor, with threads for
//! their threads, against formulas in 64 bits.

use std::path::Path;
use std::process::Command;

/// Relative differences that rounding in 32 bits explains.
const MOST: f64 = 2e-5;

/// The source within the C++ header.
fn source(header: &str) -> &str {
    let (_, from) = header.split_once("R\"cuda(").expect("the header holds a raw string");
    from.split_once(")cuda\"").expect("the string ends").0
}

#[test]
fn batch_normalisation_is_its_formula_forward_and_backward() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("src/torch/cuda/batch_norm_kernels.h")).unwrap();
    let work = tempfile::tempdir().unwrap();
    std::fs::write(work.path().join("kernels.cu"), source(&header)).unwrap();
    // As in `layer.rs`: a shortcut is added before ReLU only.
    for (activation, residual) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (1, 1)] {
        let program = work.path().join(format!("test-{activation}-{residual}"));
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++20", "-O1", "-pthread", "-w", "-DKIND=0"]);
        compiler.args([format!("-DACTIVATION={activation}"), format!("-DRESIDUAL={residual}")]);
        compiler.arg("-I").arg(work.path()).arg("-I").arg(root.join("tests/kernels"));
        compiler.arg(root.join("tests/kernels/batch_norm.cpp")).arg("-o").arg(&program);
        let compiled = compiler.output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let said = Command::new(&program).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        let lines = String::from_utf8(said.stdout).unwrap();
        assert_eq!(lines.lines().count(), 6 + residual, "{lines}");
        for line in lines.lines() {
            let (name, apart) = line.split_once(' ').unwrap();
            let apart: f64 = apart.parse().unwrap();
            assert!(apart <= MOST, "activation {activation}, residual {residual}: {name} is {apart} apart");
        }
    }
}
