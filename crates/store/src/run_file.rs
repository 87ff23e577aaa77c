//! A run as one file: JSON in the published format, out and in.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use kelvin_core::{Explanation, KeptHeadline, Measurement, PredictionRecord, RUN_FORMAT, Run, RunHeader, RunStatus};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::check::{check, parse_started};
use crate::error::InvalidField;
use crate::error::{ExportError, ImportError};
use crate::json_limits::LimitedJson;
use crate::json_path::error_path;

/// Maximum bytes of the file of a run: 1 GiB. The longest studies stay far below; a larger file is a
/// mistake, and reading it would take the machine's memory.
pub const IMPORT_LIMIT: u64 = 1 << 30;

/// The day on which format 1 was fixed. Exports of before have its number, and lack fields.
const FIRST_FORMAT_DATE: &str = "2026-11-29";

/// Writes a run as one JSON object and a line feed.
///
/// # Errors
/// If the run is inconsistent or has a text that is too long, so that it could not be read back, or it cannot be written.
pub fn export(run: &Run, mut writer: impl Write) -> Result<(), ExportError> {
    check(run)?;
    let mut json = kelvin_core::json::to_string(run).map_err(io::Error::from)?;
    if let Some((field, problem)) = first_field_error::<LimitedJson>(json.as_bytes()) {
        return Err(InvalidField { field, problem }.into());
    }
    json.push('\n');
    writer.write_all(json.as_bytes())?;
    writer.flush()?;
    Ok(())
}

/// Reads a run from a file that [`export`] wrote, or from a report in JSON with samples, which has the run in it, and checks it with
/// [`check`](crate::check()).
///
/// Fields that this program does not know are ignored: a format gains fields without becoming another one, but never
/// loses one or changes its meaning. A format that is newer than [`RUN_FORMAT`] is refused.
///
/// # Errors
/// If the file cannot be read, is too large, is no run, or an inconsistent one; the error names the field.
pub fn import(reader: impl Read) -> Result<Run, ImportError> {
    import_limited(reader, IMPORT_LIMIT)
}

fn import_limited(reader: impl Read, limit: u64) -> Result<Run, ImportError> {
    let mut json = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut json)?;
    if json.len() as u64 > limit {
        return Err(ImportError::TooLarge(limit));
    }
    let json = match check_format(&json) {
        // A report has no format of a run, but the run in it has.
        Err(ImportError::NotARun) => {
            let json = embedded_run(&json).ok_or(ImportError::NotARun)?;
            check_format(json)?;
            json
        }
        result => result.map(|()| json.as_slice())?,
    };
    let run: Run = serde_json::from_slice(json).map_err(|error| field_error::<RunHeader>(json, &error))?;
    check(&run)?;
    if run.lacks_samples() { Err(ImportError::WithoutSamples) } else { Ok(run) }
}

/// The part of a report that is its run; `None` of any other file.
fn embedded_run(json: &[u8]) -> Option<&[u8]> {
    #[derive(Deserialize)]
    struct Report<'a> {
        #[expect(dead_code, reason = "it tells a report from other files")]
        report_format: u64,
        #[serde(borrow)]
        run: &'a RawValue,
    }
    let Report { run, .. } = serde_json::from_slice(json).ok().filter(|_| is_object(json))?;
    Some(run.get().as_bytes())
}

/// Whether it is an object: a struct may also be read from an array.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'{')
}

/// Refuses what is no run of a known format, before reading anything else.
fn check_format(json: &[u8]) -> Result<(), ImportError> {
    #[derive(Deserialize)]
    struct FormatHeader {
        format: u64,
    }
    serde_json::from_slice::<LimitedJson>(json).map_err(|error| match error.classify() {
        Category::Data => field_error::<LimitedJson>(json, &error),
        _ => ImportError::NotJson(error),
    })?;
    if !is_object(json) {
        return Err(ImportError::NotARun);
    }
    match serde_json::from_slice::<FormatHeader>(json) {
        Ok(FormatHeader { format: 0 }) => Err(ImportError::UnknownFormat(0)),
        Ok(FormatHeader { format }) if format > u64::from(RUN_FORMAT) => Err(ImportError::Newer(format)),
        Ok(_) => Ok(()),
        Err(_) => Err(ImportError::NotARun),
    }
}

/// The parts of a [`Run`] that are not in its [`RunHeader`].
#[derive(Deserialize)]
#[expect(dead_code, reason = "read only to find the field that cannot be")]
struct RunBody {
    measurements: Vec<Measurement>,
    predictions: Vec<PredictionRecord>,
    #[serde(default)]
    kept_headlines: Vec<KeptHeadline>,
    #[serde(default)]
    explanations: Vec<Explanation>,
    status: RunStatus,
    seconds: f64,
    notes: Vec<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    note: Option<String>,
}

/// Reads an invalid run once more, in parts, to find the field.
fn field_error<T: DeserializeOwned>(json: &[u8], error: &serde_json::Error) -> ImportError {
    let (field, problem) = first_field_error::<T>(json)
        .or_else(|| first_field_error::<RunBody>(json))
        .unwrap_or_else(|| (format!("at line {} column {}", error.line(), error.column()), error.to_string()));
    match started_before_formats(json).filter(|_| problem.starts_with("missing field")) {
        Some(started) => ImportError::BeforeFirstFormat { started, problem },
        None => InvalidField { field, problem }.into(),
    }
}

/// When a run began, if that was before any format was fixed.
fn started_before_formats(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Start {
        started: String,
    }
    let Start { started } = serde_json::from_slice(json).ok()?;
    // RFC 3339 sorts by time as text, as far as the day.
    (started.as_str() < FIRST_FORMAT_DATE && parse_started(&started).is_some()).then_some(started)
}

/// Path and problem of the first field of a `T` that cannot be read.
fn first_field_error<T: DeserializeOwned>(json: &[u8]) -> Option<(String, String)> {
    let error = serde_json::from_slice::<T>(json).err()?;
    Some((error_path(json, &error), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_read_from_report() {
        let run = crate::common::sample_run();
        let mut file = Vec::new();
        export(&run, &mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        let import = |text: &str| super::import(text.as_bytes());
        let analysis = r#""analysis": {"run": 1, "results": []}"#;
        assert_eq!(import(&format!(r#"{{"report_format": 1, "run": {text}, {analysis}}}"#)).unwrap(), run);
        assert_eq!(import(&format!(r#"{{{analysis}, "run": {text}, "report_format": 7}}"#)).unwrap(), run);
        // Neither as a report nor cut out of one.
        let json_without_samples = serde_json::to_string(&run.without_samples()).unwrap();
        for file in [
            format!(r#"{{"report_format": 2, "samples": false, "run": {json_without_samples}}}"#),
            json_without_samples,
        ] {
            let error = import(&file).unwrap_err();
            assert!(matches!(error, ImportError::WithoutSamples), "{error}");
            let message = error.to_string();
            assert!(message.contains("`kelvin runs export`") && message.contains("--with-samples"), "{message}");
        }
        // Where nothing was measured, nothing is lost.
        let mut empty_run = run.without_samples();
        empty_run.measurements.iter_mut().for_each(|measurement| measurement.rounds.clear());
        assert_eq!(import(&serde_json::to_string(&empty_run).unwrap()).unwrap(), empty_run);
        for other in [
            format!(r#"{{"run": {text}}}"#),
            r#"{"report_format": 1}"#.to_owned(),
            r#"{"report_format": 1, "run": [1]}"#.to_owned(),
            format!(r#"[1, {text}]"#),
        ] {
            assert!(matches!(import(&other), Err(ImportError::NotARun)), "{other}");
        }
        let newer = text.replacen(&format!(r#""format":{RUN_FORMAT}"#), r#""format":99"#, 1);
        let error = import(&format!(r#"{{"report_format": 1, "run": {newer}}}"#)).unwrap_err();
        assert!(matches!(error, ImportError::Newer(99)), "{error}");
        let json_without_status = text.replacen(r#""status":"#, r#""state":"#, 1);
        let error = import(&format!(r#"{{"report_format": 1, "run": {json_without_status}}}"#)).unwrap_err();
        assert!(error.to_string().contains("status"), "{error}");
    }

    #[test]
    fn import_limit_is_exact() {
        let run = crate::common::sample_run();
        let mut file = Vec::new();
        export(&run, &mut file).unwrap();
        let size = file.len() as u64;
        assert_eq!(import_limited(file.as_slice(), size).unwrap(), run);
        let error = import_limited(file.as_slice(), size - 1).unwrap_err();
        assert!(matches!(error, ImportError::TooLarge(limit) if limit == size - 1), "{error}");
    }
}
