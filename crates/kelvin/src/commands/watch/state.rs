//! What a watch remembers from turn to turn, in a file next to the store: what the last turn took, and which changes were reported.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use kelvin_analysis::alarming_changes;
use kelvin_core::{Case, History, HistoryChange, Name, SeriesHistory};
use serde::{Deserialize, Serialize};

/// Version of this format.
const FORMAT: u32 = 1;
/// Largest file that is read.
const MAX_STATE_BYTES: u64 = 16 << 20;
/// Bounds of the CPU time of a second of measuring, for values from a file.
const LOAD_RANGE: [f64; 2] = [0.05, 1000.0];
/// Like `LOAD_RANGE`, while no turn has shown it: most probes keep one CPU busy.
const DEFAULT_LOAD: f64 = 1.0;

/// What a watch remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchState {
    format: u32,
    /// The store and the machine that it is of.
    watched: [String; 2],
    /// The last turn.
    last_cycle: Option<Cycle>,
    /// What measuring takes, as the last turn that came so far has shown.
    load: Option<CpuLoad>,
    /// The changes that were reported, by metric and case; none before the first look.
    reported: Option<Vec<ReportedChange>>,
}

/// What a turn took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cycle {
    /// Its beginning, in microseconds since 1970.
    pub began_us: i64,
    /// Seconds of CPU time, of all its processes.
    pub cpu: f64,
}

/// What measuring takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CpuLoad {
    /// Seconds of CPU time in a second.
    cpu: f64,
    /// Of what.
    names: Vec<String>,
}

/// A change that was reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ReportedChange {
    metric: Name,
    version: u32,
    case: Case,
    rises: bool,
    /// When the first and the last run began that it may have come with.
    between_runs: [String; 2],
}

impl WatchState {
    /// What is remembered of a store and a machine: nothing where there is no file, or one of others.
    ///
    /// # Errors
    /// A file that cannot be read, or is something else.
    pub fn read(path: &Path, subject: [String; 2]) -> io::Result<Self> {
        let new = Self { format: FORMAT, watched: subject.clone(), last_cycle: None, load: None, reported: None };
        let mut text = String::new();
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(new),
            opened => opened?.take(MAX_STATE_BYTES).read_to_string(&mut text)?,
        };
        let state: Self = kelvin_core::json::from_str(&text)?;
        if state.format != FORMAT {
            return Err(io::Error::other(format!("it is of format {}, this kelvin's is {FORMAT}", state.format)));
        }
        Ok(if state.watched == subject { state } else { new })
    }

    /// Notes what a turn takes.
    pub fn record_cycle(&mut self, turn: Cycle) {
        self.last_cycle = Some(turn);
    }

    /// Notes that measuring these for so long took so much CPU time.
    pub fn record_load(&mut self, names: &[String], time: f64, cpu: Duration) {
        if time > 0.0 {
            self.load = Some(CpuLoad { cpu: cpu.as_secs_f64() / time, names: names.to_vec() });
        }
    }

    /// The last turn, unless it is still to come: the clock was set back.
    pub fn last_cycle(&self, now_us: i64) -> Option<LastCycle> {
        let Cycle { began_us, cpu } = self.last_cycle?;
        let age = u64::try_from(now_us.checked_sub(began_us)?).ok().map(Duration::from_micros)?;
        Some(LastCycle { age, cpu: Duration::try_from_secs_f64(cpu).ok()? })
    }

    /// Seconds of CPU time that each second of measuring these takes.
    pub fn load(&self, names: &[String]) -> f64 {
        self.measured_load(names).map_or(DEFAULT_LOAD, |load| load.clamp(LOAD_RANGE[0], LOAD_RANGE[1]))
    }

    /// Whether these were measured before.
    pub fn has_load(&self, names: &[String]) -> bool {
        self.measured_load(names).is_some()
    }

    fn measured_load(&self, names: &[String]) -> Option<f64> {
        self.load.as_ref().filter(|load| load.names == names && load.cpu.is_finite()).map(|load| load.cpu)
    }

    /// The metrics and cases whose last change for the worse was not reported yet, which then counts as reported. The first look
    /// reports what a look before the last run would not have reported.
    pub fn new_changes(
        &mut self,
        history: &History,
        previous: impl FnOnce() -> History,
        threshold: f64,
    ) -> Vec<(Name, Case)> {
        let reported = self.reported.take().unwrap_or_else(|| {
            let previous_history = previous();
            alarming_changes(&previous_history, threshold)
                .map(|(series, change)| ReportedChange::new(series, change, &previous_history))
                .collect()
        });
        let mut reported: BTreeMap<ChangeKey, ReportedChange> =
            reported.into_iter().map(|reported| (reported.key(), reported)).collect();
        let mut news = Vec::new();
        for (series, change) in alarming_changes(history, threshold) {
            let change = ReportedChange::new(series, change, history);
            // Where it may lie becomes clearer with each run: what is remembered follows.
            if !reported
                .insert(change.key(), change.clone())
                .is_some_and(|previous_change| previous_change.is_same_change(&change))
            {
                news.push((series.metric.id, series.case.clone()));
            }
        }
        self.reported = Some(reported.into_values().collect());
        news
    }
}

/// What a change is remembered by: metric, version, case.
type ChangeKey = (Name, u32, Case);

/// The last turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastCycle {
    /// How long ago it began.
    pub age: Duration,
    /// Its CPU time.
    pub cpu: Duration,
}

impl ReportedChange {
    fn new(series: &SeriesHistory, change: &HistoryChange, history: &History) -> Self {
        Self {
            metric: series.metric.id,
            version: series.newest().version,
            case: series.case.clone(),
            rises: change.after > change.before,
            between_runs: change.run_interval.map(|run| history.runs[run].started.clone()),
        }
    }

    fn key(&self) -> ChangeKey {
        (self.metric, self.version, self.case.clone())
    }

    /// Whether both are one change: in one direction, and where both may be. Times of one form and one zone sort as texts.
    fn is_same_change(&self, other: &Self) -> bool {
        self.rises == other.rises
            && self.between_runs[0] <= other.between_runs[1]
            && other.between_runs[0] <= self.between_runs[1]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kelvin_analysis::{HistoryInput, HistoryInputRun, HistoryInputSeries};
    use kelvin_core::HistoryPoint;
    use kelvin_core::catalogue::cpu::LOOP;
    use kelvin_core::catalogue::mem::BYTES;
    use kelvin_stats::Random;

    use super::*;

    /// Runs of a history in which a loop takes these times, and one of them is no other's.
    fn records(values: &[f64]) -> HistoryInput {
        let run = |index: usize| HistoryInputRun {
            id: format!("{index}"),
            started: format!("2026-10-{:02}T{:02}:00:00Z", 1 + index / 24, index % 24),
            chain: None,
        };
        let point = |(run, &value): (usize, &f64)| HistoryPoint { run, value };
        let points: Vec<HistoryPoint> = values.iter().enumerate().map(point).collect();
        HistoryInput {
            machine: "a".into(),
            cpu_model: None,
            mode: "watch".into(),
            runs: (0..values.len()).map(run).collect(),
            has_older: false,
            other_modes: Vec::new(),
            series: vec![HistoryInputSeries {
                metric: LOOP,
                case: Case::new(),
                versions: vec![(LOOP.version, points)],
                peer_values: Vec::new(),
            }],
        }
    }

    /// Levels of this many runs each, with a spread of about 1 %.
    fn levels(levels: &[(usize, f64)]) -> Vec<f64> {
        let run_levels = levels.iter().flat_map(|&(runs, level)| std::iter::repeat_n(level, runs));
        let spread = [0.3, -1.2, 0.9, -0.4, 1.4, -0.8, 0.1, 0.6, -1.6, 1.1, -0.2, 0.7, -0.9].into_iter().cycle();
        run_levels.zip(spread).map(|(level, deviation)| level * (1.0 + 0.01 * deviation)).collect()
    }

    /// The numbers of runs after which a change is reported, looking after each run from one on.
    fn runs_with_news(state: &mut WatchState, values: &[f64], from: usize) -> Vec<usize> {
        let input = records(values);
        let is_news = |&runs: &usize| {
            let current = input.before_run(runs);
            !state.new_changes(&current.history(), || current.before_run(runs - 1).history(), 0.05).is_empty()
        };
        (from..=values.len()).filter(is_news).collect()
    }

    #[test]
    fn change_is_reported_once() {
        let values = levels(&[(20, 10.0), (40, 12.0)]);
        assert_eq!(runs_with_news(&mut WatchState::default(), &values, 1), [23], "with the third run after it");
        assert!(
            runs_with_news(&mut WatchState::default(), &levels(&[(20, 12.0), (20, 10.0)]), 1).is_empty(),
            "for the better"
        );
        assert!(
            runs_with_news(&mut WatchState::default(), &levels(&[(20, 10.0), (20, 10.4)]), 1).is_empty(),
            "by less than asked for"
        );
    }

    /// Series without a change, with deviations of 2 % from turn to turn that are autocorrelated.
    fn unchanged_records(turns: usize, correlation: f64) -> HistoryInput {
        const SERIES: u64 = 70;
        let mut random = Random::new(3);
        let mut input = records(&vec![10.0; turns]);
        let template = input.series.remove(0);
        for number in 0..SERIES {
            let mut series = HistoryInputSeries { case: Case::new().with_number(BYTES, number), ..template.clone() };
            let mut deviation = 0.0;
            for point in &mut series.versions[0].1 {
                deviation = correlation * deviation + (1.0 - correlation * correlation).sqrt() * random.normal();
                point.value *= 1.0 + 0.02 * deviation;
            }
            input.series.push(series);
        }
        input
    }

    #[test]
    fn unchanged_history_reports_almost_nothing() {
        // Few runs do not show how long states last: most of the second are reported in the beginning.
        for (correlation, threshold, max_news) in [(0.0, 0.01, 0), (0.5, 0.05, 8)] {
            let (input, mut state) = (unchanged_records(120, correlation), WatchState::default());
            let news = |runs: usize| {
                let current = input.before_run(runs);
                state.new_changes(&current.history(), || current.before_run(runs - 1).history(), threshold).len()
            };
            let reported: usize = (1..=input.runs.len()).map(news).sum();
            assert!(reported <= max_news, "{reported} where {correlation} is left");
        }
    }

    #[test]
    fn recurring_change_is_reported_again() {
        let values = levels(&[(20, 10.0), (20, 13.0), (20, 10.0), (20, 13.0)]);
        let runs = runs_with_news(&mut WatchState::default(), &values, 1);
        assert!(runs.len() == 2 && runs[0] == 23 && runs[1] > 60, "{runs:?}");
    }

    #[test]
    fn first_cycle_reports_changes_of_last_run() {
        let values = levels(&[(20, 10.0), (10, 12.0)]);
        assert!(runs_with_news(&mut WatchState::default(), &values, 25).is_empty(), "it was known for long");
        assert_eq!(runs_with_news(&mut WatchState::default(), &values, 23), [23]);
        // A look that never came, since the program was killed before it, is made up for.
        let mut state = WatchState::default();
        assert!(runs_with_news(&mut state, &values[..22], 1).is_empty());
        assert_eq!(runs_with_news(&mut state, &values, 26), [26]);
    }

    #[test]
    fn state_is_of_one_store_and_machine() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite-watch.json");
        let subject = |machine: &str| [String::new(), machine.to_owned()];
        let mut state = WatchState::read(&path, subject("a")).unwrap();
        assert_eq!((state.last_cycle(9), state.reported.is_none()), (None, true));
        runs_with_news(&mut state, &levels(&[(20, 10.0), (5, 12.0)]), 22);
        state.record_cycle(Cycle { began_us: 1_000_000, cpu: 2.5 });
        state.record_load(&["cpu".to_owned()], 2.0, Duration::from_secs(3));
        fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
        let reloaded = WatchState::read(&path, subject("a")).unwrap();
        assert_eq!(reloaded, state);
        assert_eq!(reloaded.reported.as_ref().map(Vec::len), Some(1));
        let unrelated = WatchState::read(&path, subject("b")).unwrap();
        assert_eq!((unrelated.last_cycle, unrelated.reported), (None, None));
        for text in ["", "{}", "[1", "\u{7f}"] {
            fs::write(&path, text).unwrap();
            assert!(WatchState::read(&path, subject("a")).is_err(), "{text}");
        }
        let newer = WatchState { format: FORMAT + 1, ..state };
        fs::write(&path, serde_json::to_string(&newer).unwrap()).unwrap();
        let error = WatchState::read(&path, subject("a")).unwrap_err();
        assert!(error.to_string().contains("it is of format 2, this kelvin's is 1"), "{error}");
    }

    #[test]
    fn invalid_cycle_time_delays_nothing() {
        let last = |began_us, cpu, now| {
            WatchState { last_cycle: Some(Cycle { began_us, cpu }), ..WatchState::default() }.last_cycle(now)
        };
        let expected = LastCycle { age: Duration::from_secs(3), cpu: Duration::from_millis(500) };
        assert_eq!(last(1_000_000, 0.5, 4_000_000), Some(expected));
        assert_eq!(last(4_000_000, 0.5, 1_000_000), None, "the clock was set back");
        assert_eq!(last(0, -1.0, 1), None);
        assert_eq!(last(0, 1e300, 1), None);
        assert_eq!(last(i64::MIN, 0.5, i64::MAX), None);
    }

    #[test]
    fn cpu_load_is_remembered_for_same_names() {
        let names = |name: &str| vec![name.to_owned()];
        let mut state = WatchState::default();
        assert_eq!((state.load(&names("cpu")), state.has_load(&names("cpu"))), (DEFAULT_LOAD, false));
        state.record_load(&names("cpu"), 4.0, Duration::from_secs(6));
        assert_eq!((state.load(&names("cpu")), state.load(&names("os"))), (1.5, DEFAULT_LOAD));
        assert!(state.has_load(&names("cpu")) && !state.has_load(&names("os")));
        state.record_load(&names("cpu"), 0.0, Duration::from_secs(6));
        assert_eq!(state.load(&names("cpu")), 1.5, "nothing was measured");
        state.record_load(&names("cpu"), 1e-9, Duration::from_secs(6));
        assert_eq!(state.load(&names("cpu")), LOAD_RANGE[1]);
    }
}
