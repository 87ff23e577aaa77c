//! The encoding of values in the database: JSON compressed with zstd.

use std::io::Read;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// zstd's default level: readings compress about fivefold at hundreds of megabytes a second, so that storing a round takes less
/// time than starting the next one.
const ZSTD_LEVEL: i32 = 3;

/// Maximum unpacked bytes of a payload: no round comes near it, a damaged or hostile file may.
const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// A value as compressed JSON.
///
/// # Panics
/// If the value cannot be JSON, which is a bug of this program: all stored types have names as keys.
pub(crate) fn pack(value: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("values of the model are JSON");
    zstd::encode_all(json.as_slice(), ZSTD_LEVEL).expect("compressing from memory to memory does not fail")
}

/// The value of compressed JSON, or what is wrong with it.
pub(crate) fn unpack<T: DeserializeOwned>(packed: &[u8]) -> Result<T, String> {
    let mut json = Vec::new();
    let decoder = zstd::Decoder::with_buffer(packed).map_err(|error| error.to_string())?;
    let read = decoder.take(MAX_PAYLOAD_BYTES + 1).read_to_end(&mut json).map_err(|error| error.to_string())?;
    if read as u64 > MAX_PAYLOAD_BYTES {
        return Err(format!("it unpacks to more than {MAX_PAYLOAD_BYTES} bytes"));
    }
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_round_trips_and_damage_is_error() {
        let value: Vec<f64> = (0..1000).map(|i| 1.0 / f64::from(i + 1)).collect();
        let packed = pack(&value);
        assert_eq!(unpack::<Vec<f64>>(&packed).unwrap(), value);
        assert!(unpack::<Vec<f64>>(&packed[..packed.len() / 2]).is_err());
        assert!(unpack::<Vec<f64>>(b"not compressed").is_err());
        assert!(unpack::<String>(&packed).is_err());
    }
}
