//! A metric: its name, unit, better direction, and how its samples become a headline.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identifiers::Id;
use crate::{Axis, AxisWord, Canaries, Case, Name};

/// One quantity with a name, a unit and a better direction.
///
/// It is a static of the catalogue, copied into every run so that the run can be read without the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// Dotted id, area first: `os.syscall.null`.
    #[schemars(with = "Id")]
    pub id: Name,
    /// One sentence: what a value is.
    pub summary: Name,
    /// Unit of a value.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// Version of the method; two values are comparable only if it is the same.
    pub version: u32,
    /// The samples that make the headline. Fixed here, never chosen by the data.
    pub headline: HeadlineSamples,
    /// What is subtracted from a raw batch.
    pub overhead: Overhead,
    /// The canaries whose disturbance disturbs this metric.
    pub canaries: Canaries,
    /// Contamination tags that spoil a sample of this metric.
    pub contaminants: crate::SampleTags,
    /// The parameters it is measured over, in the order in which a table shows them.
    #[serde(with = "stored_axes")]
    #[schemars(with = "Vec<Option<Axis>>", length(min = 3, max = 8))]
    pub axes: [Option<Axis>; MAX_AXES],
    /// What it needs besides this machine's processor, memory and scratch directory, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Need>,
    /// The only axis word at which it is measured, if its probe also has cases without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restricted_to: Option<AxisWord>,
    /// The axis word at which it is not measured, if its probe also has cases with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<AxisWord>,
    /// The axis word at which no canary guards it and all samples make the headline: another CPU, which the canaries do not see,
    /// decides there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_found_where: Option<AxisWord>,
    /// Whether its own work sets the frequency of its cores, as wide vector units and many cores at once do: what is steady is then
    /// the frequency beside its case, not that of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_frequency: bool,
    /// The smallest value that is physically possible, in `unit`; anything below is invalid.
    pub floor: Option<f64>,
    /// The largest value that is physically possible, in `unit`; anything above is invalid.
    pub ceiling: Option<f64>,
    /// Whether it is a published baseline: an earlier study published a value of one of its cases.
    pub baseline: bool,
    /// Whether core cycles are a sensible second unit for it (a duration on one CPU).
    pub cycles: bool,
}

impl Metric {
    /// A duration in nanoseconds, lower is better, timed in batches on one CPU, with a headline of undisturbed batches.
    pub const fn duration(id: &'static str, summary: &'static str) -> Self {
        Self {
            id: Name::new(id),
            summary: Name::new(summary),
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            version: 1,
            headline: HeadlineSamples::Undisturbed,
            overhead: Overhead::ClockPair,
            canaries: Canaries::CORE,
            contaminants: crate::SampleTags::CONTAMINATED,
            axes: [None; MAX_AXES],
            needs: None,
            restricted_to: None,
            except: None,
            as_found_where: None,
            own_frequency: false,
            floor: Some(0.0),
            ceiling: None,
            baseline: false,
            cycles: true,
        }
    }

    /// A rate in bytes per second, higher is better, with a headline of undisturbed batches.
    pub const fn rate(id: &'static str, summary: &'static str) -> Self {
        Self { unit: Unit::BytesPerSecond, better: Better::Higher, cycles: false, ..Self::duration(id, summary) }
    }

    /// The same metric with this summary, without the blanks before it.
    pub const fn summary(self, text: &'static str) -> Self {
        Self { summary: Name::new(text.trim_ascii_start()), ..self }
    }

    /// The same metric as a published baseline: one that an earlier study published a value of.
    pub const fn baseline(self) -> Self {
        Self { baseline: true, ..self }
    }

    /// The same metric over these parameters, as many as can be stored.
    pub const fn with_axes<const N: usize>(self, axes: [Axis; N]) -> Self {
        let mut stored = [None; MAX_AXES];
        let mut i = 0;
        while i < N {
            stored[i] = Some(axes[i]);
            i += 1;
        }
        Self { axes: stored, ..self }
    }

    /// The same metric with a need.
    pub const fn needs(self, need: Need) -> Self {
        Self { needs: Some(need), ..self }
    }

    /// The same metric measured only at an axis word.
    pub const fn only_at(self, word: AxisWord) -> Self {
        Self { restricted_to: Some(word), ..self }
    }

    /// The same metric measured at all words of an axis but this one.
    pub const fn not_at(self, word: AxisWord) -> Self {
        Self { except: Some(word), ..self }
    }

    /// The same metric, guarded by no canary and reported as found at an axis word.
    pub const fn as_found_where(self, word: AxisWord) -> Self {
        Self { as_found_where: Some(word), ..self }
    }

    /// The same metric, whose work sets the frequency of its cores.
    pub const fn own_frequency(self) -> Self {
        Self { own_frequency: true, ..self }
    }

    /// The same metric from all samples, guarded by no canary.
    pub const fn unguarded(self) -> Self {
        Self { headline: HeadlineSamples::AsFound, canaries: Canaries::NONE, ..self }
    }

    /// The same metric from all samples as found, whatever happens meanwhile, with no overhead subtracted.
    pub const fn as_found(self) -> Self {
        self.unguarded().overhead(Overhead::None).contaminants(crate::SampleTags::NONE)
    }

    /// The same metric with another choice of headline samples.
    pub const fn headline(self, headline: HeadlineSamples) -> Self {
        Self { headline, ..self }
    }

    /// The same metric with another overhead to subtract.
    pub const fn overhead(self, overhead: Overhead) -> Self {
        Self { overhead, ..self }
    }

    /// The same metric guarded by other canaries.
    pub const fn canaries(self, canaries: Canaries) -> Self {
        Self { canaries, ..self }
    }

    /// The same metric with another method version.
    pub const fn version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The same metric in another unit; core cycles are no second one of what is no time.
    pub const fn unit(self, unit: Unit, better: Better) -> Self {
        Self { unit, better, cycles: self.cycles && matches!(unit, Unit::Nanoseconds), ..self }
    }

    /// The same metric spoiled by these tags only.
    pub const fn contaminants(self, contaminants: crate::SampleTags) -> Self {
        Self { contaminants, ..self }
    }

    /// The same metric without core cycles as a second unit (more than one CPU, or waiting, takes part).
    pub const fn not_in_cycles(self) -> Self {
        Self { cycles: false, ..self }
    }

    /// The same metric with physical bounds, in its unit.
    pub const fn bounds(self, floor: Option<f64>, ceiling: Option<f64>) -> Self {
        Self { floor, ceiling, ..self }
    }

    /// Whether a figure of it is the time of a fixed number of core cycles, so that it goes with the core's frequency and with nothing else
    /// that disturbs.
    pub fn is_core_cycle_time(&self) -> bool {
        self.headline == HeadlineSamples::CycleNormalised && self.unit == Unit::Nanoseconds
    }

    /// Whether it is measured at a case of its probe.
    pub fn is_measured_at(&self, case: &Case) -> bool {
        self.restricted_to.is_none_or(|word| word.is_in_case(case))
            && !self.except.is_some_and(|word| word.is_in_case(case))
    }

    /// The metric as it is measured at a case.
    pub fn for_case(&self, case: &Case) -> Self {
        match self.as_found_where {
            Some(word) if word.is_in_case(case) => self.unguarded(),
            _ => *self,
        }
    }

    /// The area: the first part of the id (`os`).
    pub fn area(&self) -> &'static str {
        self.id.as_str().split('.').next().unwrap_or("")
    }

    /// The axes that are set, in order.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().flatten()
    }
}

/// Most parameters of a metric.
const MAX_AXES: usize = 8;

/// Axes as they are stored: a list of three, of which those that are not there are null, and more only where there are more.
mod stored_axes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::MAX_AXES;
    use crate::Axis;

    /// Those of a metric in the first stored runs.
    const MIN_STORED_AXES: usize = 3;

    pub(super) fn serialize<S: Serializer>(axes: &[Option<Axis>; MAX_AXES], to: S) -> Result<S::Ok, S::Error> {
        let used = axes.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        axes[..used.max(MIN_STORED_AXES)].serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Option<Axis>; MAX_AXES], D::Error> {
        let stored = Vec::<Option<Axis>>::deserialize(from)?;
        let mut axes = [None; MAX_AXES];
        if stored.len() > MAX_AXES {
            return Err(D::Error::invalid_length(stored.len(), &"at most eight axes"));
        }
        axes[..stored.len()].copy_from_slice(&stored);
        Ok(axes)
    }
}

/// A need that not every machine meets, or that a user has to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A second CPU that this process may use.
    SecondCpu,
    /// Another host with `kelvin agent`.
    Agent,
    /// A mounted directory of another machine.
    RemoteDirectory,
    /// Other programs that measure the same.
    Rivals,
    /// Time in which nothing touches what its first round made: that round comes first in a run, and the others last.
    IdleTime,
}

/// Unit of a metric's values; base units only, scaled to ns/us/ms or MB/s for reading by the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Core clock cycles.
    Cycles,
    /// Hertz.
    Hertz,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Operations per second.
    PerSecond,
    /// A pure number.
    Ratio,
    /// A count.
    Count,
}

impl Unit {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Cycles => "cycles",
            Self::Hertz => "hertz",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::PerSecond => "per_second",
            Self::Ratio => "ratio",
            Self::Count => "count",
        }
    }
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better.
    Lower,
    /// Higher is better.
    Higher,
    /// Neither: a fact about the machine.
    Neither,
}

impl Better {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Neither => "neither",
        }
    }
}

/// Which samples make the headline of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadlineSamples {
    /// All samples: what a user of this machine gets.
    AsFound,
    /// Samples whose neighbouring canaries were at their reference and that have no cause tag: what the machine does
    /// when left alone.
    #[default]
    Undisturbed,
    /// Undisturbed samples, each scaled by the neighbouring frequency canary over its reference: for quantities that are a
    /// fixed number of core cycles, where normalising beats discarding.
    CycleNormalised,
}

impl HeadlineSamples {
    /// Whether figures made by the two are of one quantity: of the machine left alone, or of what was found.
    pub fn is_comparable_with(self, other: Self) -> bool {
        (self == Self::AsFound) == (other == Self::AsFound)
    }
}

/// What analysis subtracts from a raw batch before dividing by its iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overhead {
    /// Nothing: the raw time.
    None,
    /// The empty clock pair, once a batch.
    ClockPair,
    /// The clock pair once a batch, and a minimal counted loop once an iteration.
    ClockPairAndLoop,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisScale;

    const AXIS: Axis = Axis::new("size", "size", AxisScale::Bytes);

    fn serialized_axes(metric: Metric) -> serde_json::Value {
        let json = serde_json::to_value(metric).unwrap();
        assert_eq!(serde_json::from_value::<Metric>(json.clone()).unwrap(), metric);
        json["axes"].clone()
    }

    #[test]
    fn names_match_json() {
        let units = [Unit::Nanoseconds, Unit::Cycles, Unit::Hertz, Unit::Bytes];
        let rates = [Unit::BytesPerSecond, Unit::PerSecond, Unit::Ratio, Unit::Count];
        for unit in units.into_iter().chain(rates) {
            assert_eq!(serde_json::to_value(unit).unwrap(), unit.name());
        }
        for better in [Better::Lower, Better::Higher, Better::Neither] {
            assert_eq!(serde_json::to_value(better).unwrap(), better.name());
        }
    }

    #[test]
    fn axes_stored_as_at_least_three() {
        let metric = Metric::duration("test.metric", "A metric of a test");
        let axis = serde_json::to_value(AXIS).unwrap();
        assert_eq!(serialized_axes(metric), serde_json::json!([null, null, null]));
        assert_eq!(serialized_axes(metric.with_axes([AXIS])), serde_json::json!([axis, null, null]));
        assert_eq!(serialized_axes(metric.with_axes([AXIS; 5])), serde_json::json!([axis, axis, axis, axis, axis]));
        let mut oversized = serde_json::to_value(metric.with_axes([AXIS; MAX_AXES])).unwrap();
        oversized["axes"].as_array_mut().unwrap().push(axis);
        assert!(serde_json::from_value::<Metric>(oversized).is_err());
    }
}
