//! Compiles the C++ shim, and tells the linker where libtorch is.

#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by variables")]

use std::env;
use std::path::PathBuf;

fn main() {
    // torch-sys passes this on to its direct dependents.
    let lib = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").expect("run `cargo xtask setup` first"));
    let include = lib.parent().expect("`lib` has a parent").join("include");

    cxx_build::bridges(["src/torch/bridge.rs", "src/torch/group/bridge.rs", "src/torch/module/bridge.rs"])
        .file("src/torch/shim.cpp")
        .file("src/torch/autograd.cpp")
        .file("src/torch/group.cpp")
        .file("src/torch/module/module.cpp")
        // As system headers, so that warnings within them are not shown.
        .flag(format!("-isystem{}", include.display()))
        // Stand-ins for headers that the wheel lacks.
        .include("src/torch/standin")
        .flag(format!("-isystem{}", include.join("torch/csrc/api/include").display()))
        .flag("-DUSE_C10D_GLOO")
        .flag("-std=c++17")
        // It only hands calls on to libtorch; most of its time of compilation is that of the headers.
        .opt_level(1)
        .flag("-D_GLIBCXX_USE_CXX11_ABI=1")
        .compile("gradus-torch-shim");

    let group = ["group.cpp", "group.h", "group/bridge.rs", "standin"];
    let module = ["module/module.cpp", "module/module.h", "module/bridge.rs"];
    for name in ["bridge.rs", "shim.cpp", "shim.h", "autograd.cpp"].into_iter().chain(group).chain(module) {
        println!("cargo:rerun-if-changed=src/torch/{name}");
    }
    // Found here during development, and beside an installed executable; the agent's LD_LIBRARY_PATH comes before.
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}
