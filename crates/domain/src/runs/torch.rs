//! The version of libtorch that ranks use, and the location of its pruned copy.

/// The one version of libtorch that a rank is built for and started with.
pub const VERSION: &str = "2.11.0";

/// Folder name of the pruned copy, below `gradus/` in the user's cache folder.
pub const CACHE_FOLDER: &str = "libtorch-2.11.0-cpu";

/// Libraries that must stand in the folder before a rank is started on CPU.
pub const LIBRARIES: [&str; 3] = ["libtorch_cpu.so", "libc10.so", "libtorch.so"];
