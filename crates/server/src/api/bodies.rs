//! Bodies of requests: read before anything is done with them, no longer than allowed and within a time, so that nobody keeps a
//! request open for nothing.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::failure::ApiError;

/// Maximum size of a body: a job file with its overrides.
const BODY_MAX: usize = 1 << 20;

/// Maximum size of a part of an uploaded file.
pub(super) const BLOB_PART_MAX: usize = 4 << 20;

/// A body must have arrived within this.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// Reads the body of a request.
pub(super) async fn read(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let most = if parts.uri.path().starts_with("/v1/blobs/") { BLOB_PART_MAX } else { BODY_MAX };
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most as u64) {
        return too_long(most).into_response();
    }
    match whole(body, BODY_WITHIN, most).await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(refused) => refused.into_response(),
    }
}

/// All of a body, of so many bytes at most.
async fn whole(body: Body, within: Duration, most: usize) -> Result<Vec<u8>, ApiError> {
    let read = async {
        let (mut parts, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(part) = parts.next().await {
            let cut_off = |error| ApiError::new(400, format!("the body cannot be read: {error}"));
            bytes.extend_from_slice(&part.map_err(cut_off)?);
            if bytes.len() > most {
                return Err(too_long(most));
            }
        }
        Ok(bytes)
    };
    tokio::time::timeout(within, read).await.unwrap_or_else(|_| {
        let message = format!("the body has not arrived within {} s", within.as_secs());
        Err(ApiError::new(408, message).hint("send the request again"))
    })
}

fn too_long(most: usize) -> ApiError {
    let hint = match most {
        BLOB_PART_MAX => "send the file in parts, each at its `offset`",
        _ => "a job file is text; data is named by its path",
    };
    ApiError::new(413, format!("the body has more than {most} bytes")).hint(hint)
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;

    use super::*;

    #[test]
    fn a_body_is_whole_or_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let check = |body: Body, expected: Result<usize, u16>| {
            let read = runtime.block_on(whole(body, Duration::from_millis(50), BODY_MAX));
            assert_eq!(read.map(|bytes| bytes.len()).map_err(|refused| refused.status), expected);
        };
        check(Body::empty(), Ok(0));
        check(Body::from(vec![0; BODY_MAX]), Ok(BODY_MAX));
        check(Body::from(vec![0; BODY_MAX + 1]), Err(413));
        let silent = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        check(Body::from_stream(silent), Err(408));
        let broken = futures_util::stream::iter([Ok(Bytes::from("{")), Err(std::io::Error::other("reset"))]);
        check(Body::from_stream(broken), Err(400));
    }
}
