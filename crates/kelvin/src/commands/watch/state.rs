//! What a watch remembers from turn to turn, in a file beside the store: what the last turn took, and which changes were told.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use kelvin_analysis::alarming;
use kelvin_model::{Case, History, HistoryChange, Name, SeriesHistory};
use serde::{Deserialize, Serialize};

/// Version of this format.
const FORMAT: u32 = 1;
/// Largest file that is read.
const MOST_BYTES: u64 = 16 << 20;
/// Bounds of what a second of measuring takes, whatever a file says.
const LOADS: [f64; 2] = [0.05, 1000.0];
/// The same, while no turn has shown it: most probes keep one CPU busy.
const USUAL_LOAD: f64 = 1.0;

/// What a watch remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    format: u32,
    /// Of which store and which machine it tells.
    of: [String; 2],
    /// The last turn.
    turn: Option<Turn>,
    /// What measuring takes, as the last turn that came so far has shown.
    load: Option<Load>,
    /// The changes that were told, by metric and case; none before the first look.
    told: Option<Vec<Told>>,
}

/// What a turn took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its beginning, in microseconds since 1970.
    pub began_us: i64,
    /// Seconds of CPU time, of all its processes.
    pub cpu: f64,
}

/// What measuring takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Load {
    /// Seconds of CPU time in a second.
    cpu: f64,
    /// Of what.
    names: Vec<String>,
}

/// A change that was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    metric: Name,
    version: u32,
    case: Case,
    rises: bool,
    /// When the first and the last run began that it may have come with.
    places: [String; 2],
}

impl State {
    /// What is remembered of a store and a machine: nothing where there is no file, or one of others.
    ///
    /// # Errors
    /// A file that cannot be read, or is something else.
    pub fn read(path: &Path, of: [String; 2]) -> io::Result<Self> {
        let new = Self { format: FORMAT, of: of.clone(), turn: None, load: None, told: None };
        let mut text = String::new();
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            opened => opened?.take(MOST_BYTES).read_to_string(&mut text)?,
        };
        let state: Self = serde_json::from_str(&text)?;
        if state.format != FORMAT {
            return Err(io::Error::other(format!("it is of format {}, this kelvin's is {FORMAT}", state.format)));
        }
        Ok(if state.of == of { state } else { new })
    }

    /// Notes what a turn takes.
    pub fn note(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// Notes that measuring these for so long took so much CPU time.
    pub fn learn(&mut self, names: &[String], time: f64, cpu: Duration) {
        if time > 0.0 {
            self.load = Some(Load { cpu: cpu.as_secs_f64() / time, names: names.to_vec() });
        }
    }

    /// The last turn, unless it is still to come: the clock was set back.
    pub fn last(&self, now_us: i64) -> Option<LastTurn> {
        let Turn { began_us, cpu } = self.turn?;
        let ago = u64::try_from(now_us.checked_sub(began_us)?).ok().map(Duration::from_micros)?;
        Some(LastTurn { ago, cpu: Duration::try_from_secs_f64(cpu).ok()? })
    }

    /// Seconds of CPU time that each second of measuring these takes.
    pub fn load(&self, names: &[String]) -> f64 {
        let known = self.load.as_ref().filter(|load| load.names == names && load.cpu.is_finite());
        known.map_or(USUAL_LOAD, |load| load.cpu.clamp(LOADS[0], LOADS[1]))
    }

    /// The metrics and cases whose last change for the worse was not told yet, which then counts as told. The first look tells what a
    /// look before the last run would not have told.
    pub fn news(&mut self, now: &History, before: impl FnOnce() -> History, least: f64) -> Vec<(Name, Case)> {
        let told = self.told.take().unwrap_or_else(|| {
            let before = before();
            alarming(&before, least).map(|(series, change)| Told::of(series, change, &before)).collect()
        });
        let mut told: BTreeMap<Key, Told> = told.into_iter().map(|told| (told.key(), told)).collect();
        let mut news = Vec::new();
        for (series, change) in alarming(now, least) {
            let change = Told::of(series, change, now);
            // Where it may lie becomes clearer with each run: what is remembered follows.
            if !told.insert(change.key(), change.clone()).is_some_and(|known| known.is_the_same(&change)) {
                news.push((series.metric.id, series.case.clone()));
            }
        }
        self.told = Some(told.into_values().collect());
        news
    }
}

/// What a change is remembered by: metric, version, case.
type Key = (Name, u32, Case);

/// The last turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastTurn {
    /// How long ago it began.
    pub ago: Duration,
    /// Its CPU time.
    pub cpu: Duration,
}

impl Told {
    fn of(series: &SeriesHistory, change: &HistoryChange, history: &History) -> Self {
        Self {
            metric: series.metric.id,
            version: series.newest().version,
            case: series.case.clone(),
            rises: change.after > change.before,
            places: change.places.map(|run| history.runs[run].started.clone()),
        }
    }

    fn key(&self) -> Key {
        (self.metric, self.version, self.case.clone())
    }

    /// Whether both are one change: in one direction, and where both may be. Times of one form and one zone sort as texts.
    fn is_the_same(&self, other: &Self) -> bool {
        self.rises == other.rises && self.places[0] <= other.places[1] && other.places[0] <= self.places[1]
    }
}
