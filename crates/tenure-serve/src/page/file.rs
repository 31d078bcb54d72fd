//! One file of the page, and how it is sent.

use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const JS: &str = "text/javascript; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";

/// A file that is part of the program.
pub(crate) struct File {
    pub(crate) name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Compressed on first use, then kept.
    forms: OnceLock<Forms>,
}

/// A file, plain or compressed. The bytes differ, so the tags differ.
struct Forms {
    plain: Form,
    packed: Form,
}

struct Form {
    bytes: Bytes,
    tag: String,
}

impl File {
    pub(crate) const fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self {
            name,
            kind,
            bytes,
            forms: OnceLock::new(),
        }
    }

    /// Sends it, unless the browser already has it. Browsers ask every time: a new version of the
    /// program has a new page, and an old one must not be used.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        let forms = self.forms.get_or_init(|| Forms::of(self.bytes));
        let is_packed = accepts_gzip(headers);
        let form = if is_packed {
            &forms.packed
        } else {
            &forms.plain
        };
        let common: [(HeaderName, &str); 3] = [
            (header::ETAG, &form.tag),
            (header::CACHE_CONTROL, "no-cache"),
            (header::VARY, "accept-encoding"),
        ];
        if has(headers, &form.tag) {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let kind = [(header::CONTENT_TYPE, self.kind)];
        let bytes = form.bytes.clone();
        if is_packed {
            let encoding = [(header::CONTENT_ENCODING, "gzip")];
            return (common, kind, encoding, bytes).into_response();
        }
        (common, kind, bytes).into_response()
    }
}

impl Forms {
    fn of(bytes: &'static [u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let hash = format!("{:016x}-{:x}", hasher.finish(), bytes.len());
        let plain = Form {
            bytes: Bytes::from_static(bytes),
            tag: format!("\"{hash}\""),
        };
        let packed = Form {
            bytes: pack(bytes),
            tag: format!("\"{hash}-gzip\""),
        };
        Self { plain, packed }
    }
}

/// Writes to memory, which does not fail.
fn pack(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let refuses = |parameters: &str| {
        let quality = parameters.trim().strip_prefix("q=");
        quality.and_then(|quality| quality.parse::<f32>().ok()) == Some(0.0)
    };
    listed(headers, &header::ACCEPT_ENCODING).any(|encoding| {
        let (name, parameters) = encoding.split_once(';').unwrap_or((encoding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && !refuses(parameters)
    })
}

fn has(headers: &HeaderMap, tag: &str) -> bool {
    listed(headers, &header::IF_NONE_MATCH)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}
