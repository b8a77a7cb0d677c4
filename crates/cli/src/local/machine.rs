//! This machine as a provider.

use std::sync::Arc;

use cloud::{Local, LocalSettings, Provider};
use domain::Rate;
use server::Home;

use crate::settings::GlobalSettings;

/// The providers of this home.
pub fn providers(settings: &GlobalSettings, home: &Home, rate: Rate) -> Vec<Arc<dyn Provider>> {
    let stated = rate != Rate::default();
    let local = LocalSettings {
        home: home.root().to_owned(),
        program: settings.program.clone(),
        owner: home.owner().to_owned(),
        rate,
        price_source: if stated { "--price".to_owned() } else { "free unless `--price` says otherwise".to_owned() },
        socket: home.socket(),
        rank_program: settings.rank_program.clone(),
        libtorch: settings.libtorch.clone(),
    };
    vec![Arc::new(Local::new(local))]
}
