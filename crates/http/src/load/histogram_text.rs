//! A histogram as a text in JSON: HdrHistogram's compressed V2 encoding in Base64, as its log files have it.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use kelvin_stats::Histogram;
use serde::{Deserialize, Deserializer, Serializer};

/// The first four bytes: a compressed histogram. The length of what was compressed follows in four bytes.
const COMPRESSED_COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];

/// The text of a histogram.
pub fn serialize<S: Serializer>(histogram: &Histogram, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(histogram))
}

/// The histogram of a text, whoever wrote it.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
    decode(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn encode(histogram: &Histogram) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&histogram.to_hdr_v2()).expect("a vector takes all bytes");
    let compressed = encoder.finish().expect("a vector takes all bytes");
    let length = (compressed.len() as u32).to_be_bytes();
    STANDARD.encode([&COMPRESSED_COOKIE, &length, &compressed[..]].concat())
}

/// The histogram of a text, or why it is none. However small a text is, no more is uncompressed than a histogram can have.
fn decode(text: &str) -> Result<Histogram, String> {
    const NOT_A_HISTOGRAM: &str = "a histogram must be HdrHistogram's compressed V2 encoding in Base64";
    let bytes = STANDARD.decode(text).map_err(|_| NOT_A_HISTOGRAM)?;
    let (cookie, rest) = bytes.split_first_chunk::<4>().ok_or(NOT_A_HISTOGRAM)?;
    let (length, compressed) = rest.split_first_chunk::<4>().ok_or(NOT_A_HISTOGRAM)?;
    if *cookie != COMPRESSED_COOKIE || u32::from_be_bytes(*length) as usize != compressed.len() {
        return Err(NOT_A_HISTOGRAM.into());
    }
    let max_bytes = Histogram::max_encoded_bytes();
    let mut encoded = Vec::new();
    let mut decoder = ZlibDecoder::new(compressed).take(max_bytes as u64 + 1);
    decoder.read_to_end(&mut encoded).map_err(|_| NOT_A_HISTOGRAM)?;
    if encoded.len() > max_bytes {
        return Err("a histogram has more buckets than its scale".into());
    }
    Histogram::from_hdr_v2(&encoded).map_err(|error| format!("a histogram: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of HdrHistogram's implementation for Python (hdrhistogram 0.10.8) for 0, 1000, 1000 and 3600000000000, from 1 to an hour.
    const PYTHON_TEXT: &str = "HISTFAAAACl4nJNpmSzMwMDAwQABzFCaEch0M9ixgMH+A0SA6Sw/y9FfzEwAffwG+Q==";

    #[test]
    fn text_is_that_of_other_implementations() {
        let mut histogram = Histogram::new();
        [0, 1000, 1000, 3_600_000_000_000].into_iter().for_each(|time| histogram.record(time));
        assert_eq!(decode(PYTHON_TEXT), Ok(histogram.clone()));
        assert_eq!(decode(&encode(&histogram)), Ok(histogram));
    }

    #[test]
    fn small_text_does_not_become_large() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; 100 << 20]).unwrap();
        let compressed = encoder.finish().unwrap();
        let length = (compressed.len() as u32).to_be_bytes();
        let text = STANDARD.encode([&COMPRESSED_COOKIE, &length, &compressed[..]].concat());
        assert!(text.len() < 200_000);
        assert_eq!(decode(&text), Err("a histogram has more buckets than its scale".into()));
    }

    #[test]
    fn foreign_text_is_refused() {
        let text = encode(&Histogram::new());
        for foreign in
            ["", "HISTFAAA", "!", &text[..text.len() - 4], &format!("{text}AAAA"), &text.replace("HIST", "HISS")]
        {
            let error = decode(foreign).unwrap_err();
            assert!(error.starts_with("a histogram must be "), "{foreign}: {error}");
        }
    }
}
