//! Any bytes as the file of a network: `cargo +nightly fuzz run model fuzz/corpus/model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // A network, or what is wrong with the file; never a panic, an overflow or memory without limit.
    let _ = plan::model::read::model(bytes, &Default::default());
});
