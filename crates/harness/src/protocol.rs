//! The supervisor's request to a probe's process, and the answer.
//!
//! The request is one JSON object on standard input. The answer on standard output is [`MAGIC`], a line with the number
//! of bytes that follow, and that many bytes of JSON; anything else on that stream, before or after, is garbage and
//! fails the round, so a stray print can never pass for a reading.

use kelvin_core::{Case, CoreSteadyState, RoundOutcome};
use serde::{Deserialize, Serialize};

use crate::setup::Setup;

/// First bytes of an answer.
pub(crate) const MAGIC: &[u8] = b"kelvin-readings-1\n";

/// One round of one probe at one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RoundRequest {
    pub probe: String,
    pub case: Case,
    pub round: u32,
    /// Nanoseconds for timing, warm-up included.
    pub slice: u64,
    /// How far it may go on beyond that.
    pub extension: Option<Extension>,
    /// Nanoseconds after which the round is given up.
    pub time_limit: u64,
    pub seed: u64,
    /// The process that asks; the probe dies with it.
    pub parent_pid: u32,
    pub setup: Setup,
}

/// How far a round may go on beyond its time, until it has undisturbed samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extension {
    /// Nanoseconds, of all its metrics together.
    pub max_nanoseconds: u64,
    /// How the core reads that is left alone.
    pub core: CoreSteadyState,
}

/// What came of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundResponse {
    pub outcome: RoundOutcome,
    /// Nanoseconds by which it went on beyond its time.
    pub extended_by: u64,
}

impl From<RoundOutcome> for RoundResponse {
    /// Of a round that took no more than its time.
    fn from(outcome: RoundOutcome) -> Self {
        Self { outcome, extended_by: 0 }
    }
}

/// The bytes of an answer.
pub(crate) fn encode_response(answer: &RoundResponse) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_vec(answer)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(format!("{}\n", body.len()).as_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads an answer, or describes what came instead.
pub(crate) fn decode_response(bytes: &[u8]) -> Result<RoundResponse, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| describe_garbage(bytes))?;
    let line = rest.iter().position(|&byte| byte == b'\n').ok_or_else(|| describe_garbage(rest))?;
    let length: usize = std::str::from_utf8(&rest[..line])
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| describe_garbage(rest))?;
    let body = &rest[line + 1..];
    if body.len() != length {
        return Err(format!("it announced {length} bytes of readings but sent {}", body.len()));
    }
    serde_json::from_slice(body).map_err(|error| format!("its readings cannot be parsed: {error}"))
}

fn describe_garbage(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "it ended without readings".into();
    }
    let start: String = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).escape_debug().collect();
    format!("it printed \"{start}\" instead of readings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::SkipReason;

    #[test]
    fn response_round_trips() {
        let answer = RoundResponse { outcome: RoundOutcome::Skipped(SkipReason::new("no second CPU")), extended_by: 7 };
        assert_eq!(decode_response(&encode_response(&answer).unwrap()), Ok(answer));
    }

    #[test]
    fn garbage_is_quoted_in_error() {
        assert_eq!(decode_response(b"").unwrap_err(), "it ended without readings");
        assert_eq!(decode_response(b"hello\n").unwrap_err(), "it printed \"hello\\n\" instead of readings");
        let mut bytes = encode_response(&RoundOutcome::Failed("x".into()).into()).unwrap();
        bytes.push(b'!');
        assert!(decode_response(&bytes).unwrap_err().starts_with("it announced"));
        bytes.truncate(bytes.len() - 4);
        assert!(decode_response(&bytes).unwrap_err().starts_with("it announced"));
    }
}
