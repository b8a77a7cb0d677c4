//! What a `config.json` says, key by key: [`typed`] reads values within bounds, [`defaults`] knows what a type of model has where
//! the file is silent, [`asked`] which keys were looked at, and [`fitting`] checks sizes that belong together.

mod asked;
mod defaults;
mod fitting;
mod typed;

pub(super) use asked::Asked;
pub(super) use typed::ConfigFields;
