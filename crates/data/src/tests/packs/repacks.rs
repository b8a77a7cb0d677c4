//! Packs that ended at a damaged sample, and are called again.

use std::fs;

use super::super::{Files, scratch};
use super::{contents, options, packed};
use crate::{Error, PackFormat, PackOptions, pack};

/// Where a pack of damaged data stops, the same folder is packed on with `skip`, as its hint says.
#[test]
fn a_pack_that_ended_at_damage_continues_with_skip() {
    for format in [PackFormat::Shards, PackFormat::Webdataset] {
        let root = scratch();
        let source = Files::of(&[""], &["a", "b"], 20).with("a/bad.png", "no image").folder(root.path());
        let [out, fresh] = ["out", "fresh"].map(|name| root.path().join(name));
        let strict = PackOptions { format, ..options() };
        let skip = PackOptions { skip: true, ..strict.clone() };
        let error = pack(&source, &out, &strict, &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Image { .. }), "{error}");
        let summary = packed(&source, &out, &skip);
        assert_eq!((summary.manifest.samples, summary.manifest.skipped.len()), (40, 1));
        packed(&source, &fresh, &skip);
        assert_eq!(contents(&out), contents(&fresh));

        // What was left out is damage again where nothing may be.
        let error = pack(&source, &out, &strict, &mut |_| {}).unwrap_err();
        assert!(matches!(error, Error::Image { .. }), "{error}");
        // Sound data is packed once, whatever may be skipped.
        fs::remove_file(source.join("a/bad.png")).unwrap();
        let sound = root.path().join("sound");
        packed(&source, &sound, &strict);
        assert!(packed(&source, &sound, &skip).nothing_to_do);
    }
}
