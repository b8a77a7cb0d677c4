//! Families of image models: the kind of blocks behind a table's word for a model.
//!
//! Tables name models after who trained them as often as after what they are: `tf_efficientnet_b0`, `swsl_resnet50`.
//! What a network costs follows its blocks, so those are looked for, the more particular word first.

/// Parts of names, and the kind of blocks that they mean; the first that occurs counts.
const KINDS: &[(&str, &str)] = &[
    // Normalisations that are slow in every network.
    ("_evo", "evonorm"),
    ("_gn", "groupnorm"),
    ("iabn", "tresnet"),
    ("efficientnetv2", "efficientnetv2"),
    ("efficientnet_em", "efficientnet_edge"),
    ("efficientnet_es", "efficientnet_edge"),
    ("efficientnet_el", "efficientnet_edge"),
    ("efficientnet_lite", "efficientnet_edge"),
    ("efficientnet_cc", "efficientnet_edge"),
    ("efficientnet", "efficientnet"),
    ("mixnet", "mixnet"),
    ("mobilenetv3", "mobilenetv3"),
    ("mobilenetv2", "mobilenetv2"),
    ("mnasnet", "mnasnet"),
    ("fbnet", "efficientnet"),
    ("hardcorenas", "mobilenetv3"),
    ("lcnet", "lcnet"),
    ("tinynet", "efficientnet"),
    ("rexnet", "rexnet"),
    ("mobilevit", "mobilevit"),
    ("nf_regnet", "nfresnet"),
    ("regnetx", "regnetx"),
    ("regnety", "regnety"),
    ("regnetz", "regnetz"),
    ("nfnet", "nfnet"),
    ("nf_resnet", "nfresnet"),
    ("nf_ecaresnet", "nfresnet"),
    ("nf_seresnet", "nfresnet"),
    ("resnest", "resnest"),
    ("resnetv2", "resnetv2"),
    ("seresnext", "seresnext"),
    ("senet", "seresnext"),
    ("resnext", "resnext"),
    ("ecaresnet", "ecaresnet"),
    ("seresnet", "seresnet"),
    ("resnetrs", "resnetrs"),
    ("skres", "skresnet"),
    ("res2n", "res2net"),
    ("resnetblur", "resnetblur"),
    ("resnetaa", "resnetblur"),
    ("gcres", "gcresnet"),
    ("tresnet", "tresnet"),
    ("wide_resnet", "resnet"),
    ("halo", "halo"),
    ("bot", "halo"),
    ("lambda", "halo"),
    ("xception", "xception"),
    ("inception", "inception"),
    ("dense", "densenet"),
    ("dla", "dla"),
    ("dpn", "dpn"),
    ("hrnet", "hrnet"),
    ("vovnet", "vovnet"),
    ("repvgg", "repvgg"),
    ("vgg", "vgg"),
    ("darknet", "darknet"),
    ("cs3", "darknet"),
    ("csp", "darknet"),
    ("gernet", "gernet"),
    ("selecsls", "selecsls"),
    ("convnext", "convnext"),
    ("convmixer", "convmixer"),
    ("edgenext", "edgenext"),
    ("swinv2", "swinv2"),
    ("swin", "swin"),
    ("xcit", "xcit"),
    ("cait", "cait"),
    ("crossvit", "crossvit"),
    ("twins", "twins"),
    ("volo", "volo"),
    ("pit", "pit"),
    ("coat", "coat"),
    ("levit", "levit"),
    ("poolformer", "poolformer"),
    ("beit", "vit"),
    ("deit", "vit"),
    ("tnt", "tnt"),
    ("nest", "nest"),
    ("convit", "vit"),
    ("visformer", "visformer"),
    ("sequencer", "sequencer"),
    ("gmixer", "mixer"),
    ("mixer", "mixer"),
    ("gmlp", "mixer"),
    ("resmlp", "resmlp"),
    ("vit", "vit"),
    ("resnet", "resnet"),
];

/// The kind of blocks of a model that a table calls `model` of `family`.
pub fn family(model: &str, family: &str) -> String {
    let word = model.to_lowercase().replace("se_res", "seres");
    match KINDS.iter().find(|(part, _)| word.contains(part)) {
        Some((_, kind)) => (*kind).to_owned(),
        None => family.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::family;

    #[test]
    fn who_trained_a_model_is_not_its_family() {
        for (model, stated, expected) in [
            ("tf_efficientnet_b0_ns", "tf", "efficientnet"),
            ("swsl_resnet50", "swsl", "resnet"),
            ("gluon_seresnext101_64x4d", "gluon", "seresnext"),
            ("deit_small_patch16_224", "deit", "vit"),
            ("repvgg_b2", "repvgg", "repvgg"),
            ("resnetv2_50d_gn", "resnetv2", "groupnorm"),
            ("brandnew_x", "brandnew", "brandnew"),
        ] {
            assert_eq!(family(model, stated), expected, "{model}");
        }
    }
}
