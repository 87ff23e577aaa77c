//! What a generator printed, with its times on the clock of rank 0.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The fields of a load that are times of day.
const TIME_FIELDS: [&str; 2] = ["start", "scheduled_start"];

/// How the clock of a rank differs from that of rank 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockDifference {
    /// Its clock less that of rank 0, in seconds.
    pub offset_s: f64,
    /// The offset is wrong by at most this, in seconds.
    pub error_s: f64,
}

/// The result of `kelvin load --json`.
///
/// # Errors
/// It is none.
pub fn parse_document(output: &[u8]) -> Result<Value, String> {
    let document: Value =
        serde_json::from_slice(output).map_err(|error| format!("kelvin load printed no JSON: {error}"))?;
    if document.get("load_format").is_some() {
        Ok(document)
    } else {
        Err("kelvin load printed no result of a load".into())
    }
}

/// Has the times of a result be those of rank 0's clock, and its clock as far off as the difference of the two may be wrong.
///
/// # Errors
/// A time that is none.
pub fn put_on_clock(document: &mut Value, difference: ClockDifference) -> Result<(), String> {
    // The source of time is what it was.
    let clock = document.pointer("/clock/source").cloned();
    document["clock"] = json!({
        "source": clock,
        "synchronized": true,
        "max_error": 1e9 * difference.error_s,
        "estimated_error": null,
    });
    match document.get_mut("loads").and_then(Value::as_array_mut) {
        Some(loads) => loads.iter_mut().try_for_each(|load| shift_times(load, difference.offset_s)),
        None => shift_times(document, difference.offset_s),
    }
}

fn shift_times(load: &mut Value, offset_s: f64) -> Result<(), String> {
    for field in TIME_FIELDS {
        if let Some(Value::String(text)) = load.get(field) {
            let shifted = shift(text, offset_s).map_err(|error| format!("{field} {text}: {error}"))?;
            load[field] = shifted.to_string().into();
        }
    }
    Ok(())
}

fn shift(time: &str, offset_s: f64) -> Result<Timestamp, jiff::Error> {
    time.parse::<Timestamp>()?.checked_sub(SignedDuration::try_from_secs_f64(offset_s)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFFERENCE: ClockDifference = ClockDifference { offset_s: 2.5, error_s: 2e-5 };

    #[test]
    fn times_are_those_of_rank_0() {
        let mut document = json!({
            "load_format": 1,
            "clock": {"source": "tsc", "synchronized": false, "max_error": null, "estimated_error": null},
            "start": "2026-11-30T08:00:02.75Z",
            "scheduled_start": null,
        });
        put_on_clock(&mut document, DIFFERENCE).unwrap();
        let expected = json!({
            "load_format": 1,
            "clock": {"source": "tsc", "synchronized": true, "max_error": 20_000.0, "estimated_error": null},
            "start": "2026-11-30T08:00:00.25Z",
            "scheduled_start": null,
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn each_of_several_loads_is_shifted() {
        let load = |seconds: &str| json!({"start": format!("2026-11-30T08:00:{seconds}Z"), "scheduled_start": "2026-11-30T08:00:09Z"});
        let mut document = json!({"loads": [load("10"), load("20")]});
        put_on_clock(&mut document, ClockDifference { offset_s: -1.0, ..DIFFERENCE }).unwrap();
        assert_eq!(document["loads"][0]["start"], "2026-11-30T08:00:11Z");
        assert_eq!(document["loads"][1]["start"], "2026-11-30T08:00:21Z");
        assert_eq!(document["loads"][1]["scheduled_start"], "2026-11-30T08:00:10Z");
        assert!(document["start"].is_null());
    }

    #[test]
    fn other_output_is_no_result() {
        assert!(parse_document(b"{\"load_format\":1}").is_ok());
        assert!(parse_document(b"{}").unwrap_err().contains("no result of a load"));
        assert!(parse_document(b"words").unwrap_err().contains("no JSON"));
        let mut document = json!({"start": "yesterday"});
        assert!(put_on_clock(&mut document, DIFFERENCE).unwrap_err().starts_with("start yesterday: "));
    }
}
