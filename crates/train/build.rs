//! Compiles the C++ shim, and tells the linker where the tensor library lies.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by variables")]

use std::env;
use std::path::PathBuf;

fn main() {
    // torch-sys passes this on to its direct dependents.
    let lib = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").expect("run `cargo xtask setup` first"));
    let include = lib.parent().expect("`lib` has a parent").join("include");

    cxx_build::bridge("src/torch/bridge.rs")
        .file("src/torch/shim.cpp")
        // As system headers, so that warnings within them are not shown.
        .flag(format!("-isystem{}", include.display()))
        .flag("-std=c++17")
        .flag("-D_GLIBCXX_USE_CXX11_ABI=1")
        .compile("gradus-torch-shim");

    println!("cargo:rerun-if-changed=src/torch/bridge.rs");
    println!("cargo:rerun-if-changed=src/torch/shim.cpp");
    println!("cargo:rerun-if-changed=src/torch/shim.h");
    // Found here during development, and beside an installed executable; the agent's LD_LIBRARY_PATH comes before.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}
