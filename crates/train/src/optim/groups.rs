//! Parameter groups: the learning-rate factor of each parameter, and whether it decays. Pure functions of names.

use std::collections::BTreeMap;

use domain::train::{Decays, ParameterGroup, Parameters};

/// How a parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParamGroup {
    /// Factor of the learning rate.
    pub rate: f64,
    /// What the optimizer's weight decay is multiplied by; 0 for none.
    pub decay: f64,
}

impl ParamGroup {
    /// Of a parameter of this name and so many dimensions, with this share of the rate but for its own group's.
    pub fn of(keys: &Parameters, name: &str, dimensions: usize, rate: f64) -> ParamGroup {
        let decay = match keys.decay {
            Decays::All => 1.0,
            Decays::Matrices => f64::from(u8::from(dimensions >= 2)),
        };
        match group_of(keys, name) {
            Some(group) => ParamGroup { rate: rate * group.lr_factor, decay: group.decay_factor.unwrap_or(decay) },
            None => ParamGroup { rate, decay },
        }
    }

    /// Whether weight decay is for it.
    pub fn decays(&self) -> bool {
        self.decay > 0.0
    }
}

/// The group of the job that a parameter belongs to.
fn group_of<'a>(keys: &'a Parameters, name: &str) -> Option<&'a ParameterGroup> {
    let names = |group: &&ParameterGroup| group.names.iter().any(|prefix| name.starts_with(prefix.as_str()));
    keys.groups.iter().find(names)
}

/// A prefix in the groups that no parameter has, so that a misspelt one is not passed over.
pub fn unknown_prefix<'a>(keys: &'a Parameters, names: &[String]) -> Option<&'a str> {
    let prefixes = keys.groups.iter().flat_map(|group| &group.names);
    prefixes.map(String::as_str).find(|prefix| !names.iter().any(|name| name.starts_with(prefix)))
}

/// The learning-rate factor of each parameter. `names` are ordered from the stem to the head.
///
/// The stem, each block and the head are a layer each; the last has factor 1, and each layer before it `layer_rate`
/// times that of the next (Howard and Ruder 2018; Clark et al. 2020, section 3.3).
pub fn rates(keys: &Parameters, names: &[String]) -> BTreeMap<String, f64> {
    let mut depths = Vec::with_capacity(names.len());
    let (mut depth, mut last) = (0i32, None);
    for name in names {
        let layer = layer(name);
        if last.is_some_and(|last| last != layer) {
            depth += 1;
        }
        last = Some(layer);
        depths.push(depth);
    }
    names.iter().zip(depths).map(|(name, at)| (name.clone(), keys.layer_rate.powi(depth - at))).collect()
}

/// The prefix of a name up to its first number, such as `bert.encoder.layer.3`, `layer1.0` or
/// `encoder.layers.encoder_layer_3`; empty for a name without one, which belongs to the stem or the head.
fn layer(name: &str) -> &str {
    let mut end = 0;
    for part in name.split('.') {
        let number = part.rsplit('_').next().unwrap_or(part);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        end += part.len();
        // `ln_1` is a layer's part, not its number.
        if is_number && (number.len() == part.len() || part.contains("layer_")) {
            return &name[..end];
        }
        end += 1;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], layer_rate: f64, expected: &[f64]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let keys = Parameters { layer_rate, ..Parameters::default() };
        let found = rates(&keys, &names);
        for (name, expected) in names.iter().zip(expected) {
            assert!((found[name] - expected).abs() < 1e-12, "{name}: {}, expected {expected}", found[name]);
        }
    }

    #[test]
    fn layers_are_told_by_their_names() {
        check(&["conv1.weight", "bn1.bias"], 0.5, &[1.0, 1.0]);
        check(
            &[
                "conv1.weight",
                "bn1.weight",
                "layer1.0.conv1.weight",
                "layer1.0.bn1.bias",
                "layer1.1.conv1.weight",
                "layer2.0.downsample.0.weight",
                "fc.bias",
            ],
            0.5,
            &[0.0625, 0.0625, 0.125, 0.125, 0.25, 0.5, 1.0],
        );
        check(
            &[
                "bert.embeddings.LayerNorm.bias",
                "bert.encoder.layer.0.output.dense.bias",
                "bert.encoder.layer.1.output.dense.bias",
                "bert.pooler.dense.bias",
                "classifier.bias",
            ],
            0.1,
            &[1e-3, 1e-2, 1e-1, 1.0, 1.0],
        );
        check(
            &[
                "class_token",
                "encoder.layers.encoder_layer_0.ln_1.bias",
                "encoder.layers.encoder_layer_0.mlp.3.bias",
                "encoder.layers.encoder_layer_1.ln_1.bias",
                "encoder.ln.bias",
                "heads.head.bias",
            ],
            0.5,
            &[0.125, 0.25, 0.25, 0.5, 1.0, 1.0],
        );
        check(
            &["transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.ln_f.bias"],
            0.9,
            &[0.81, 0.9, 1.0],
        );
        check(&["fc1.weight", "layer1.0.conv1.weight", "fc.bias"], 1.0, &[1.0, 1.0, 1.0]);
    }

    #[test]
    fn only_matrices_decay_if_so_asked() {
        let matrices = Parameters { decay: Decays::Matrices, ..Parameters::default() };
        for (dimensions, decays) in [(0, false), (1, false), (2, true), (4, true)] {
            assert_eq!(ParamGroup::of(&matrices, "fc.bias", dimensions, 1.0).decays(), decays);
            assert!(ParamGroup::of(&Parameters::default(), "fc.bias", dimensions, 1.0).decays());
        }
    }

    #[test]
    fn the_first_group_that_names_a_parameter_counts() {
        let group = |prefix: &str, lr_factor, decay_factor| ParameterGroup {
            names: vec![prefix.to_owned()],
            lr_factor,
            decay_factor,
        };
        let groups = vec![group("fc.", 10.0, None), group("layer4.", 2.0, Some(0.0)), group("fc.bias", 3.0, Some(1.0))];
        let keys = Parameters { groups, decay: Decays::Matrices, ..Parameters::default() };
        let check = |name: &str, dimensions, rate: f64, expected: (f64, f64)| {
            let found = ParamGroup::of(&keys, name, dimensions, rate);
            assert_eq!((found.rate, found.decay), expected, "{name}");
        };
        check("fc.weight", 2, 0.5, (5.0, 1.0));
        check("fc.bias", 1, 1.0, (10.0, 0.0));
        check("layer4.0.conv1.weight", 4, 1.0, (2.0, 0.0));
        check("conv1.weight", 4, 0.25, (0.25, 1.0));
        let names = ["fc.weight", "layer4.0.conv1.weight"].map(str::to_owned);
        assert_eq!(unknown_prefix(&keys, &names), Some("fc.bias"));
        assert_eq!(unknown_prefix(&Parameters::default(), &names), None);
    }
}
