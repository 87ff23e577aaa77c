//! The report of a fleet as data: groups of hosts that should be alike, their figures, and the hosts that are out.

use kelvin_core::{Case, Metric, Name, PValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the format of a report of a fleet. A format is never edited, only followed by the next one.
pub const FLEET_FORMAT: u32 = 1;

/// Hosts against their peers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetReport {
    /// Version of this format, [`FLEET_FORMAT`].
    pub fleet_format: u32,
    /// The runs that were selected, as they were named; empty for all of a store.
    pub selection: Vec<String>,
    /// The reference hosts, as they were named, if hosts were accepted against others.
    pub like: Option<Vec<String>>,
    /// The mode of the runs: `quick`, `default`, `thorough` or `watch`.
    pub mode: String,
    /// The tag that narrows groups, if one was named.
    pub by: Option<String>,
    /// Hosts of all groups, without those that others are accepted against.
    pub hosts: usize,
    /// Their runs.
    pub runs: usize,
    /// Share by which a figure must differ from its peers' median for its host to be out.
    pub threshold: f64,
    /// What was left out of the selection, and how hosts were told apart, in sentences.
    pub notes: Vec<String>,
    /// Groups of hosts that should be alike, the ones with hosts that are out first.
    pub groups: Vec<FleetGroup>,
    /// Hosts that have too few peers, and why.
    pub not_compared: Vec<SmallGroup>,
}

/// Hosts that cannot be compared with peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmallGroup {
    /// What they should be alike in, in words.
    pub name: String,
    /// Labels of the hosts.
    pub hosts: Vec<String>,
    /// Why they are not compared.
    pub reason: String,
}

/// Hosts that should be alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetGroup {
    /// What they are alike in, in words: processor, number of CPUs, memory, hypervisor, and the tag that was named.
    pub name: String,
    /// Number of hosts.
    pub hosts: usize,
    /// The fewest, the median and the most runs of a host.
    pub runs_of_host: [usize; 3],
    /// Figures of hosts that were tested, those of whole metrics and areas included.
    pub tests: usize,
    /// The share of hosts that are named without being out, on average at most.
    pub false_discovery_rate: f64,
    /// How many times the spread between hosts a single figure must be off before its host is out, with these hosts, runs and tails; with
    /// one run of each host a whole metric or area. `None` where so few figures show no tails, so that no host can be out by one.
    pub least_distance: Option<f64>,
    /// What can be told with so many hosts and runs, in sentences.
    pub power: String,
    /// Hosts that are out, the worst first.
    pub outliers: Vec<OutlierHost>,
    /// What a reference group says of each host, if there is one.
    pub acceptance: Vec<HostAcceptance>,
    /// Facts that go with being out.
    pub associations: Vec<FactAssociation>,
    /// Facts that differ between the hosts: how many hosts have each value.
    pub differing_facts: Vec<DifferingFact>,
    /// The distribution of each series over the hosts.
    pub series: Vec<SeriesDistribution>,
    /// Series that were not tested, and why, in sentences.
    pub not_tested: Vec<String>,
    /// How far each host is from its peers in each metric; not in JSON, for its size.
    #[serde(skip)]
    #[schemars(skip)]
    pub deviations: Deviations,
}

/// How far hosts are from their peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deviations {
    /// Labels of the hosts, those that are out first, the worst first.
    pub hosts: Vec<String>,
    /// How many of them are out.
    pub outliers: usize,
    /// Ids of the metrics.
    pub metrics: Vec<Name>,
    /// For each host and metric by which share it is worse than the median of its peers, below zero where it is better; the median over the
    /// cases of the metric. Not a number where it was not measured.
    pub worse_by: Vec<Vec<f32>>,
}

/// A host that is out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlierHost {
    /// What people call it.
    pub label: String,
    /// Its id, if its runs have one.
    pub host: Option<String>,
    /// Its runs.
    pub runs: usize,
    /// Its peers: the other hosts of the group.
    pub peers: usize,
    /// One line for people.
    pub line: String,
    /// Its single figures that are out, the farthest first.
    pub figures: Vec<OutlierFigure>,
    /// Metrics and areas of which it is out as a whole, the farthest first.
    pub families: Vec<OutlierFamily>,
    /// Facts in which it alone, or nearly alone, differs from its peers.
    pub facts: Vec<OddFact>,
}

/// A figure of a host that is out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlierFigure {
    /// The metric.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// The median of its runs, in the metric's unit.
    pub value: f64,
    /// Its lowest and highest run.
    pub range: [f64; 2],
    /// The median of its peers.
    pub peers: f64,
    /// The value over the median of its peers.
    pub ratio: f64,
    /// How many times the spread between hosts it is off.
    pub distance: f64,
    /// The chance of its distance by the tails of all other hosts; the adjusted one is corrected for all tests of the group.
    pub p_value: PValue,
    /// The chance that its runs lie so far out among all runs of the group, by counting; it bounds noise of any shape.
    pub counted_chance: f64,
}

/// A metric or area of a host that is out as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlierFamily {
    /// Id of the metric, or name of the area: `mem.latency`, `mem`.
    pub family: Name,
    /// Series of it that the host has.
    pub figures: usize,
    /// Those that are off by the threshold in the same direction.
    pub shifted: usize,
    /// Median share by which those are worse; below zero where they are better.
    pub worse_by: f64,
    /// How many times the spread between hosts the whole is off.
    pub distance: f64,
    /// Its chance, as of a figure.
    pub p_value: PValue,
    /// As of a figure.
    pub counted_chance: f64,
}

/// A fact in which a host differs from its peers, which agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OddFact {
    /// Its group: `CPU`.
    pub group: String,
    /// Its label: `Frequency governor`.
    pub label: String,
    /// What the host has.
    pub value: String,
    /// What its peers have.
    pub peers: String,
    /// How many peers have that.
    pub peers_with: usize,
    /// Of how many peers it is known.
    pub known_by: usize,
}

/// A fact that differs between the hosts of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DifferingFact {
    /// Its group.
    pub group: String,
    /// Its label.
    pub label: String,
    /// Its values, the most frequent first, each with the number of hosts that have it.
    pub values: Vec<(String, usize)>,
}

/// A fact that goes with being out. Nothing is said of what causes what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactAssociation {
    /// Its group.
    pub group: String,
    /// Its label.
    pub label: String,
    /// The value.
    pub value: String,
    /// Hosts that are out and have it.
    pub outliers_with: usize,
    /// Hosts that are out.
    pub outliers: usize,
    /// Other hosts that have it.
    pub others_with: usize,
    /// Other hosts.
    pub others: usize,
    /// Fisher's exact test, one-sided; the adjusted chance is corrected for all facts and values of the group.
    pub p_value: PValue,
}

/// What a reference group says of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAcceptance {
    /// What people call it.
    pub label: String,
    /// Whether it shows what the reference hosts show.
    pub is_accepted: bool,
    /// Why not, in sentences; of an accepted host, what differs without harm.
    pub reasons: Vec<String>,
}

/// A metric at a case over the hosts of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesDistribution {
    /// The metric, with the unit of all values.
    pub metric: Metric,
    /// The case.
    pub case: Case,
    /// Hosts that have it.
    pub hosts: usize,
    /// Runs that have it.
    pub runs: usize,
    /// The median over hosts, each by the median of its runs.
    pub median: f64,
    /// First and third quartile over hosts.
    pub quartiles: [f64; 2],
    /// The lowest host and its value.
    pub lowest: (String, f64),
    /// The highest host and its value.
    pub highest: (String, f64),
    /// Robust spread between hosts: the median absolute deviation of logarithms as a standard deviation, a share. It contains what repeats of
    /// a run differ by.
    pub between_hosts: f64,
    /// Robust spread between repeats of a run on one host, pooled over hosts, as a share; `None` where no host has two runs.
    pub between_runs: Option<f64>,
}
