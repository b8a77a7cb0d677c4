//! Text as numbers: documents of any form become tokens once, when they are packed, and rows of one length when they are
//! opened.
//!
//! A shard of tokens is a shard like any other, whose samples are documents: 2 bytes a token where the vocabulary allows
//! it, else 4. How documents share rows is worked out from their lengths when the shards are opened (`fit`), so one pack
//! serves every length. Read on in `documents` (what text is packed) and `crate::texts` (rows of it).

use std::path::Path;

use crate::Error;
use crate::shard::manifest::{ShardManifest, TokenFormat};
use crate::shard::{SampleCodec, Shards};

/// The name of the tokenizer in a folder of shards.
pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// The tokens of some bytes, `width` each, all below `vocabulary`.
pub(crate) fn widen(bytes: &[u8], width: u32, vocabulary: u32, into: &mut Vec<u32>) -> Result<(), String> {
    if !bytes.len().is_multiple_of(width as usize) {
        return Err(format!("{} bytes are no tokens of {width}", bytes.len()));
    }
    for token in bytes.chunks_exact(width as usize) {
        let token = token.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        if token >= vocabulary {
            return Err(format!("token {token} is none of the {vocabulary} of the vocabulary"));
        }
        into.push(token);
    }
    Ok(())
}

/// The tokens that lie in a folder of shards, with the manifest; `None` if it holds something else.
pub(crate) fn find(folder: &Path) -> Result<Option<(ShardManifest, TokenFormat)>, Error> {
    let Some(manifest) = ShardManifest::read(folder)? else { return Ok(None) };
    let Some(tokens) = manifest.recipe.tokens.clone() else { return Ok(None) };
    if !matches!(tokens.width, 2 | 4) {
        let why = format!("its tokens are of {} bytes", tokens.width);
        return Err(Error::Layout { path: folder.into(), why, hint: "pack the text again".into() });
    }
    Ok(Some((manifest, tokens)))
}

/// Opens the shards of such a folder, which must hold tokens only.
pub(crate) fn shards(folder: &Path, manifest: &ShardManifest) -> Result<Shards, Error> {
    let shards = Shards::open(folder, manifest)?;
    match shards.places().iter().find(|place| place.codec != SampleCodec::Tokens) {
        None => Ok(shards),
        Some(place) => {
            let why = format!("sample {} is no text", place.id);
            Err(Error::Layout { path: folder.into(), why, hint: "pack the text again".into() })
        }
    }
}
