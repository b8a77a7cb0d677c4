//! The agent as a separate process, between a control loop and ranks that are real processes too.
#![allow(clippy::disallowed_methods, reason = "a test program in another role is told so by its environment")]

mod container;
mod control;
mod devices;
mod lifetime;
mod origin;
mod podman;
mod program;
mod rank;
mod roles;
mod scene;
mod world;

#[test]
#[ignore = "a role that other tests start"]
fn agent_process() {
    if let Some(folder) = std::env::var_os("GRADUS_TEST_FOLDER") {
        roles::agent(folder.into(), &std::env::var("GRADUS_TEST_PATIENCE").unwrap_or_default());
    }
}

#[test]
#[ignore = "a role that other tests start"]
fn program_process() {
    if let Ok(behaviour) = std::env::var("GRADUS_TEST_PROGRAM") {
        roles::program(&behaviour);
    }
}

#[test]
#[ignore = "a role that other tests start"]
fn rank_process() {
    if let Ok(spec) = std::env::var("GRADUS_TEST_SPEC") {
        roles::rank(&spec, &std::env::var("GRADUS_TEST_RANK").unwrap_or_default());
    }
}
