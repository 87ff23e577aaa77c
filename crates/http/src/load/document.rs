//! The JSON of `kelvin load`: loads with the host that measured them, and how far its clock may be off.

use std::collections::BTreeMap;

use kelvin_sys::clock_discipline::ClockDiscipline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::load::measured_load::MeasuredLoad;

/// The version of the format of what one generator measured.
pub const LOAD_FORMAT: u32 = 1;
/// The field that has it.
const FORMAT_FIELD: &str = "load_format";
/// The field that has the version of the format of merged loads.
pub(crate) const MERGE_FORMAT_FIELD: &str = "load_merge_format";

/// Which generator measured loads, and by which clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorOrigin {
    /// The version of the format: [`LOAD_FORMAT`].
    pub load_format: u32,
    /// A random number, which no other result has.
    pub id: String,
    /// The version of kelvin.
    pub kelvin_version: String,
    /// The hash of the host's machine id, if it has one.
    pub host: Option<String>,
    /// What the user says of it, such as `node`.
    pub tags: BTreeMap<String, String>,
    /// The clock of `start`, before the first load.
    pub clock: ClockState,
}

/// The clock that times of day are read from, and what the kernel knows of its error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockState {
    /// The kernel's source of time, such as `tsc`.
    pub source: Option<String>,
    /// Whether the kernel takes the clock for synchronised; none where a sandbox hides it.
    pub synchronized: Option<bool>,
    /// Its largest error in nanoseconds, of a synchronised clock.
    pub max_error: Option<f64>,
    /// Its expected error in nanoseconds, of a synchronised clock.
    pub estimated_error: Option<f64>,
}

impl ClockState {
    /// That of this host now.
    pub fn read() -> Self {
        const SOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = std::fs::read_to_string(SOURCE_FILE).ok().map(|source| source.trim().to_owned());
        let discipline = ClockDiscipline::read().ok();
        let error = |error: fn(&ClockDiscipline) -> std::time::Duration| {
            let synchronized = discipline.as_ref().filter(|discipline| discipline.is_synchronized)?;
            Some(error(synchronized).as_nanos() as f64)
        };
        Self {
            source,
            synchronized: discipline.map(|discipline| discipline.is_synchronized),
            max_error: error(|discipline| discipline.max_error),
            estimated_error: error(|discipline| discipline.estimated_error),
        }
    }
}

/// What one generator measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "{T}Document")]
pub struct LoadDocument<T> {
    /// Which one it is.
    #[serde(flatten)]
    pub origin: GeneratorOrigin,
    /// A load, several, or a search.
    #[serde(flatten)]
    pub loads: T,
}

/// Several loads on one server, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoadSequence {
    /// In the order in which they were measured.
    pub loads: Vec<MeasuredLoad>,
}

/// The highest rate that keeps an objective, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RateSearch {
    /// The objective, in words.
    pub objective: String,
    /// The highest rate that kept it, in requests a second.
    pub highest_passing: Option<f64>,
    /// The lowest rate that missed it.
    pub lowest_failing: Option<f64>,
    /// Whether the search ended because the generator, and not the server, was the limit.
    pub is_generator_limit: bool,
    /// The load at each rate that was tried, in the order of the tries.
    pub tries: Vec<MeasuredLoad>,
}

/// Why a file holds no loads that can be merged.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is something else.
    #[error("it is no result of kelvin load --json")]
    Foreign,
    /// It has no histograms.
    #[error("it was written by a kelvin whose results have no histograms: measure again")]
    WithoutHistograms,
    /// It is of a later version.
    #[error("its format {0} is newer than this kelvin, which reads up to {LOAD_FORMAT}: use a newer kelvin")]
    Newer(u64),
    /// It is no result of a single generator.
    #[error("it is merged already: give the results of its generators")]
    Merged,
    /// It is the search of a rate.
    #[error("it is a search (--slo), whose rates follow from its own host: give results at a --rate or with --users")]
    Search,
    /// A field is missing or wrong.
    #[error("it is no valid result of kelvin load --json: {0}")]
    Invalid(#[from] serde_json::Error),
}

impl LoadDocument<LoadSequence> {
    /// The loads of a file, whoever wrote it.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut value: Value = serde_json::from_slice(bytes).map_err(|_| DocumentError::Foreign)?;
        if value.get(MERGE_FORMAT_FIELD).is_some() {
            return Err(DocumentError::Merged);
        }
        match value.get(FORMAT_FIELD).map(Value::as_u64) {
            Some(Some(format)) if format > u64::from(LOAD_FORMAT) => return Err(DocumentError::Newer(format)),
            Some(Some(1)) => {}
            None if value.get("answer_seconds").is_some() || value.get("loads").is_some() => {
                return Err(DocumentError::WithoutHistograms);
            }
            _ => return Err(DocumentError::Foreign),
        }
        if value.get("tries").is_some() {
            return Err(DocumentError::Search);
        }
        let origin = GeneratorOrigin::deserialize(&value)?;
        let loads = match value.get_mut("loads").map(Value::take) {
            Some(loads) => serde_json::from_value(loads)?,
            None => vec![serde_json::from_value(value)?],
        };
        Ok(Self { origin, loads: LoadSequence { loads } })
    }
}
