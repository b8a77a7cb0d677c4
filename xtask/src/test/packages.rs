//! The packages that users install: the wheel, tried in a fresh environment while the tarball and the Debian package are
//! packed, and the size of each.

use std::path::Path;

use xtask::build::{environment, package, wheel};
use xtask::doing::{Outcome, step};
use xtask::peers;

use crate::check::Missing;

/// Makes all three from the executables that were built before, and tries the wheel.
pub(super) fn packages(root: &Path, missing: Missing) -> Outcome {
    let wheel = step("wheel", || wheel::wheel(root))?;
    let pytorch = match (peers::fetched_pytorch(), missing) {
        (Some(packages), _) => Some(packages),
        (None, Missing::Fails) => Some(peers::pytorch()?),
        // 4.7 GB are more than everything else takes.
        (None, Missing::IsSaid) => {
            eprintln!("xtask: tests of the wheel with PyTorch were left out: `cargo xtask wheel --test` fetches it");
            None
        }
    };
    let trying = || step("wheel, in a fresh environment", || environment::tried(root, &wheel, pytorch.as_deref()));
    let packing = || match package::obstacle(root) {
        None => step("tarball and Debian package", || package::package(root)),
        Some(obstacle) => {
            let why = obstacle.lines().next().unwrap_or_default();
            Ok(format!("tarball and Debian package were left out: {why}"))
        }
    };
    // gzip has one thread, and so have most of the tests.
    let (packed, tried) = std::thread::scope(|scope| {
        let packing = scope.spawn(|| packing().map_err(|error| error.to_string()));
        let tried = trying();
        (packing.join(), tried)
    });
    let packed = packed.map_err(|_| "the step that packs panicked")??;
    Ok(format!("{}\nwheel {}, {packed}", tried?, package::sized(&wheel)))
}
