//! What the built-in trainer needs of a rented machine's image to use its GPUs: told with the plan, before anything is paid.

use cloud::Catalog;
use cloud::rented::MachineChoice;
use domain::gpu::{Gpu, GpuArchitecture, GpuPlatform};
use domain::{Job, Offer, Work, torch};

/// The note of a plan; none where the job trains otherwise, or the machine has no GPU.
pub fn of_image(job: &Job, catalog: &Catalog, offer: &Offer) -> Option<String> {
    let kind = offer.kind.rsplit_once('@').map_or(offer.kind.as_str(), |(kind, _)| kind);
    let choice = kind.parse::<MachineChoice>().ok()?;
    let listing = catalog.listings.iter().find(|listing| listing.instance_type == choice.machine)?;
    let has_gpus = listing.gpus.count > 0;
    let gpu = listing.gpus.name.as_deref().and_then(|name| catalog.gpus.named(name));
    (matches!(job.work, Work::Train(_)) && has_gpus).then(|| note(gpu))
}

/// Which build of PyTorch computes on a GPU.
fn note(gpu: Option<&Gpu>) -> String {
    let version = torch::VERSION;
    let usual = format!("the machine's image has PyTorch {version} for CUDA; without it, training runs on its CPU");
    let Some(gpu) = gpu else { return usual };
    if gpu.traits.platform != GpuPlatform::Cuda {
        return format!(
            "training runs on the machine's CPU: the trainer computes on GPUs of NVIDIA, on x86-64, and not on `{}`",
            gpu.name
        );
    }
    match gpu.architecture {
        // CUDA 13 has no compute capability below 7.5 (its release notes, "deprecated architectures").
        GpuArchitecture::Pascal | GpuArchitecture::Volta => format!(
            "the machine's image has PyTorch {version} for CUDA 12: CUDA 13 does not know its `{}`, and without a GPU \
             training runs on its CPU",
            gpu.name
        ),
        GpuArchitecture::Turing
        | GpuArchitecture::Ampere
        | GpuArchitecture::Ada
        | GpuArchitecture::Hopper
        | GpuArchitecture::Blackwell
        | GpuArchitecture::Cdna3
        | GpuArchitecture::Cdna4
        | GpuArchitecture::Unlisted
        | GpuArchitecture::Processor => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_the_trainer_does_not_use_is_told_before_it_is_paid_for() {
        let catalog = Catalog::embedded().unwrap();
        let check = |gpu: &str, expected: &str| {
            let note = note(Some(catalog.gpus.named(gpu).unwrap_or_else(|| panic!("no GPU `{gpu}`"))));
            assert!(note.contains(expected), "{gpu}: {note}");
        };
        check("T4", "for CUDA; without it");
        check("P4", "CUDA 13 does not know its `P4`");
        check("T4G", "not on `T4G`");
        assert!(note(None).contains("for CUDA; without it"));
    }
}
