//! Documents as token ids: tokenized once, when they are packed, and divided into rows of one length when they are
//! opened.
//!
//! A shard of token ids is an ordinary shard whose samples are documents: 2 bytes per token if the vocabulary allows
//! it, else 4. How documents share rows is computed from their lengths when the shards are opened (`fit`), so one pack
//! serves every length. Read on in `documents` (which text is packed) and `crate::texts` (rows of it).

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
            return Err(format!("token {token} is outside the vocabulary of {vocabulary}"));
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
    match shards.places().iter().find(|entry| entry.codec != SampleCodec::Tokens) {
        None => Ok(shards),
        Some(entry) => {
            let why = format!("sample {} is not text", entry.id);
            Err(Error::Layout { path: folder.into(), why, hint: "pack the text again".into() })
        }
    }
}
