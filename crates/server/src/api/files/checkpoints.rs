//! The checkpoints in the folder of a run, according to their manifests.

use std::fs;
use std::path::Path as FilePath;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::super::Api;
use super::super::failure::ApiError;
use super::super::reading::{blocking, known};

/// A manifest is no larger than this.
const MANIFEST_MAX: u64 = 64 << 20;

/// Lists the checkpoints of a run, by step. Whether their files are sound is seen when one is resumed from.
pub(in crate::api) async fn checkpoints(
    State(api): State<Api>,
    Path(run): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let id = known(&api, &run).await?;
    let folder = api.home.run(&id).join("checkpoints");
    let listed = blocking(move || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut listed: Vec<(u64, Value)> = entries.filter_map(|entry| checkpoint(&entry.path())).collect();
        listed.sort_by_key(|(step, _)| *step);
        Ok(listed.into_iter().map(|(_, checkpoint)| checkpoint).collect::<Vec<Value>>())
    });
    Ok(Json(json!({ "checkpoints": listed.await? })))
}

/// Reads a manifest; `None` for another file, or one that is being replaced.
fn checkpoint(path: &FilePath) -> Option<(u64, Value)> {
    let name = path.file_name()?.to_str()?;
    let step: u64 = name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()?;
    let meta = fs::metadata(path).ok().filter(|meta| meta.len() <= MANIFEST_MAX)?;
    let saved = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_micros() as i64;
    let manifest: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let size = |files: &Value| -> u64 {
        files.as_array().into_iter().flatten().filter_map(|file| file["bytes"].as_u64()).sum()
    };
    let chain = manifest["chain"].as_array();
    let builds_on: Vec<&Value> = chain.into_iter().flatten().map(|link| &link["step"]).collect();
    let files = manifest["files"].as_array().map_or(0, Vec::len);
    let checkpoint = json!({
        "step": step, "attempt": manifest["attempt"], "saved": saved, "files": files,
        "bytes": size(&manifest["files"]), "builds_on": builds_on,
    });
    Some((step, checkpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_told_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            checkpoint(&path)
        };
        let text = r#"{"attempt":"r-a1","files":[{"bytes":3},{"bytes":4}],"chain":[{"step":5}]}"#;
        let (step, told) = write("manifest-7.json", text).unwrap();
        assert_eq!((step, &told["attempt"], &told["bytes"]), (7, &json!("r-a1"), &json!(7)));
        assert_eq!((&told["builds_on"], &told["files"]), (&json!([5]), &json!(2)));
        assert_eq!(write("manifest-8.json", "{"), None);
        assert_eq!(write("manifest-x.json", "{}"), None);
        assert_eq!(write("fence", "{}"), None);
    }
}
