//! What a program's container is made for, from its job and what the agent provides.

use std::path::{Path, PathBuf};

use domain::ContainerImage;
use domain::wire::Start;

use super::super::Tools;
use super::container::ContainerRequest;

/// What the container of an attempt is made for.
pub fn container_request(
    image: ContainerImage,
    start: &Start,
    tools: &Tools,
    folder: &Path,
    log: PathBuf,
) -> ContainerRequest {
    let socket = super::link::socket_file(&tools.folder, &start.attempt);
    ContainerRequest {
        image,
        attempt: start.attempt.to_string(),
        folder: folder.to_owned(),
        checkpoints: Path::new(&start.folder).join("checkpoints"),
        socket: Some(socket).filter(|file| file.exists()),
        log,
        instance: tools.folder.clone(),
        root: tools.root.clone(),
        user_home: tools.user_home.clone(),
        tags: [tools.owner.clone(), tools.instance.to_string()],
        has_gpus: super::gpus_of(start) > 0,
        limits: match start.job.needs.enforce {
            true => (start.job.needs.memory.map(|bytes| bytes.0), start.job.needs.cores),
            false => (None, None),
        },
    }
}
