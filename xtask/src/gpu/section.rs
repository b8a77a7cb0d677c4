//! The sections of the suite, in order of worth: when the time is short, what is left out is at the end.

use std::fmt::Write as _;

/// What a section cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Python alone.
    Python,
    /// PyTorch's libraries, on any machine.
    Libtorch,
    /// A CUDA device.
    Device,
}

/// One part of the suite: a script that prints one line of JSON for each case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it shows, as the heading of its table.
    pub what: &'static str,
    /// The script in `gpu/`, and its arguments.
    pub script: &'static str,
    /// Arguments of the script.
    pub arguments: &'static [&'static str],
    /// What it cannot do without.
    pub needs: Needs,
    /// Seconds after which it is ended; what it has printed by then counts.
    pub limit_s: u64,
}

const fn section(
    name: &'static str,
    what: &'static str,
    needs: Needs,
    script: &'static str,
    arguments: &'static [&'static str],
    limit_s: u64,
) -> Section {
    Section { name, what, script, arguments, needs, limit_s }
}

/// All sections, the most worth knowing first.
pub const SECTIONS: [Section; 19] = [
    section("start", "Executables start", Needs::Python, "start.py", &[], 30),
    section("device", "Device, driver and measured ceilings", Needs::Device, "facts.py", &[], 60),
    section("digits", "Digits trains", Needs::Libtorch, "digits.py", &["train"], 60),
    section("resume", "Resume after kills, bit for bit", Needs::Libtorch, "digits.py", &["resume"], 180),
    section("parity-bf16", "Parity with PyTorch, bf16", Needs::Device, "parity.py", &["bf16"], 210),
    section("speed", "Step against PyTorch", Needs::Device, "speed.py", &["resnet50", "bert_base", "gpt2"], 300),
    section("kernels", "Kernels of a step", Needs::Device, "step_kernels.py", &["resnet50", "bert_base", "gpt2"], 150),
    section("parity-fp32", "Parity with PyTorch, fp32", Needs::Device, "parity.py", &["fp32"], 180),
    section("errors", "Out of memory, killed ranks", Needs::Device, "errors.py", &[], 120),
    section("graphs", "CUDA graphs", Needs::Device, "graphs.py", &[], 120),
    section("estimates", "Estimates, before calibration and after", Needs::Device, "estimates.py", &[], 240),
    section("memory", "Checkpoints, offload, recomputation", Needs::Device, "memory.py", &[], 180),
    section("loader", "Loader feeding the device", Needs::Device, "loader.py", &[], 120),
    section("exchange", "Collectives on the device", Needs::Device, "exchange.py", &[], 150),
    section("telemetry", "Profile, NVML, Xid", Needs::Device, "telemetry.py", &[], 90),
    section("parity-fp16", "Parity with PyTorch, fp16", Needs::Device, "parity.py", &["fp16"], 150),
    section("parity-tf32", "Parity with PyTorch, tf32", Needs::Device, "parity.py", &["tf32"], 150),
    section(
        "speed-more",
        "Step against PyTorch, further networks",
        Needs::Device,
        "speed.py",
        &["vit_s_16", "mobilenet_v3_large", "yolo_s", "gpt2_medium"],
        400,
    ),
    section(
        "speed-autotune",
        "Step against `torch.compile` with max-autotune",
        Needs::Device,
        "speed.py",
        &["--autotune", "bert_base", "resnet50", "gpt2"],
        500,
    ),
];

/// The sections with these names, in the suite's order; all where none is named.
///
/// # Errors
/// A name that none has.
pub fn named(names: &[&str]) -> Result<Vec<Section>, String> {
    if let Some(unknown) = names.iter().find(|name| !SECTIONS.iter().any(|section| section.name == **name)) {
        return Err(format!("there is no section `{unknown}`\n  hint: `cargo xtask gpu sections` lists them"));
    }
    Ok(SECTIONS.into_iter().filter(|section| names.is_empty() || names.contains(&section.name)).collect())
}

/// The list, as people read it.
pub fn listed() -> String {
    let mut text = String::new();
    for Section { name, what, limit_s, .. } in SECTIONS {
        let _ = writeln!(text, "{name:<15} {limit_s:>4} s  {what}");
    }
    text.trim_end().to_owned()
}
