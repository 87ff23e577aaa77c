//! Media types by the ends of names, as /etc/mime.types and browsers have them.

/// What a file is called whose type is not known: no browser guesses what it is, and none runs it.
pub const DEFAULT_MEDIA_TYPE: &str = "application/octet-stream";

/// In the order of their endings.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("avif", "image/avif"),
    ("bin", DEFAULT_MEDIA_TYPE),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("iso", DEFAULT_MEDIA_TYPE),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("log", "text/plain; charset=utf-8"),
    ("m4a", "audio/mp4"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rs", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("toml", "text/plain; charset=utf-8"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The type of a file by its name.
pub fn media_type(name: &[u8]) -> &'static str {
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let ending = name.iter().rposition(|&byte| byte == b'.').map(|dot| name[dot + 1..].to_ascii_lowercase());
    let found = ending
        .and_then(|ending| MEDIA_TYPES.binary_search_by_key(&ending.as_slice(), |(known, _)| known.as_bytes()).ok());
    found.map_or(DEFAULT_MEDIA_TYPE, |place| MEDIA_TYPES[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted() {
        assert!(MEDIA_TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn last_extension_decides_type() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("A.HTML", "text/html; charset=utf-8"),
            ("a.tar.gz", "application/gzip"),
            ("a", DEFAULT_MEDIA_TYPE),
            ("html", DEFAULT_MEDIA_TYPE),
            ("a.", DEFAULT_MEDIA_TYPE),
            ("a.html/b", DEFAULT_MEDIA_TYPE),
            ("a.exe", DEFAULT_MEDIA_TYPE),
        ] {
            assert_eq!(media_type(name.as_bytes()), expected, "{name}");
        }
    }
}
