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
        self.learned(names).map_or(USUAL_LOAD, |load| load.clamp(LOADS[0], LOADS[1]))
    }

    /// Whether these were measured before.
    pub fn knows(&self, names: &[String]) -> bool {
        self.learned(names).is_some()
    }

    fn learned(&self, names: &[String]) -> Option<f64> {
        self.load.as_ref().filter(|load| load.names == names && load.cpu.is_finite()).map(|load| load.cpu)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use kelvin_analysis::{Recorded, RecordedRun, Records};
    use kelvin_catalogue::cpu::LOOP;
    use kelvin_catalogue::mem::BYTES;
    use kelvin_model::HistoryPoint;
    use kelvin_stats::Random;

    use super::*;

    /// Runs of a history in which a loop takes these times, and one of them is no other's.
    fn records(values: &[f64]) -> Records {
        let run = |at: usize| RecordedRun {
            id: format!("{at}"),
            started: format!("2026-10-{:02}T{:02}:00:00Z", 1 + at / 24, at % 24),
            chain: None,
        };
        let point = |(run, &value): (usize, &f64)| HistoryPoint { run, value };
        let points: Vec<HistoryPoint> = values.iter().enumerate().map(point).collect();
        Records {
            machine: "a".into(),
            cpu_model: None,
            mode: "watch".into(),
            runs: (0..values.len()).map(run).collect(),
            has_older: false,
            other_modes: Vec::new(),
            series: vec![Recorded {
                metric: LOOP,
                case: Case::new(),
                versions: vec![(LOOP.version, points)],
                others: Vec::new(),
            }],
        }
    }

    /// Levels of so many runs each, with a spread of about 1 %.
    fn levels(levels: &[(usize, f64)]) -> Vec<f64> {
        let all = levels.iter().flat_map(|&(runs, level)| std::iter::repeat_n(level, runs));
        let spread = [0.3, -1.2, 0.9, -0.4, 1.4, -0.8, 0.1, 0.6, -1.6, 1.1, -0.2, 0.7, -0.9].into_iter().cycle();
        all.zip(spread).map(|(level, away)| level * (1.0 + 0.01 * away)).collect()
    }

    /// The looks after which something is told, after each of the runs from one on.
    fn told(state: &mut State, values: &[f64], from: usize) -> Vec<usize> {
        let all = records(values);
        let is_news = |&runs: &usize| {
            let now = all.before(runs);
            !state.news(&now.history(), || now.before(runs - 1).history(), 0.05).is_empty()
        };
        (from..=values.len()).filter(is_news).collect()
    }

    #[test]
    fn a_change_is_told_once_however_many_looks_follow() {
        let values = levels(&[(20, 10.0), (40, 12.0)]);
        assert_eq!(told(&mut State::default(), &values, 1), [23], "with the third run after it");
        assert!(told(&mut State::default(), &levels(&[(20, 12.0), (20, 10.0)]), 1).is_empty(), "for the better");
        assert!(
            told(&mut State::default(), &levels(&[(20, 10.0), (20, 10.4)]), 1).is_empty(),
            "by less than asked for"
        );
    }

    /// Series of which nothing is told but what differs from turn to turn: by 2 %, of which a share is left at the next one.
    fn without_a_change(turns: usize, left: f64) -> Records {
        const SERIES: u64 = 70;
        let mut random = Random::new(3);
        let mut all = records(&vec![10.0; turns]);
        let like = all.series.remove(0);
        for number in 0..SERIES {
            let mut series = Recorded { case: Case::new().with(BYTES, number), ..like.clone() };
            let mut away = 0.0;
            for point in &mut series.versions[0].1 {
                away = left * away + (1.0 - left * left).sqrt() * random.normal();
                point.value *= 1.0 + 0.02 * away;
            }
            all.series.push(series);
        }
        all
    }

    #[test]
    fn without_a_change_next_to_nothing_is_told() {
        // Few runs do not tell how long states last: most of the second are told in the beginning.
        for (left, least, most) in [(0.0, 0.01, 0), (0.5, 0.05, 8)] {
            let (all, mut state) = (without_a_change(120, left), State::default());
            let news = |runs: usize| {
                let now = all.before(runs);
                state.news(&now.history(), || now.before(runs - 1).history(), least).len()
            };
            let told: usize = (1..=all.runs.len()).map(news).sum();
            assert!(told <= most, "{told} where {left} is left");
        }
    }

    #[test]
    fn what_comes_back_is_told_again() {
        let values = levels(&[(20, 10.0), (20, 13.0), (20, 10.0), (20, 13.0)]);
        let told = told(&mut State::default(), &values, 1);
        assert!(told.len() == 2 && told[0] == 23 && told[1] > 60, "{told:?}");
    }

    #[test]
    fn the_first_look_at_an_old_store_tells_what_came_with_the_last_run() {
        let values = levels(&[(20, 10.0), (10, 12.0)]);
        assert!(told(&mut State::default(), &values, 25).is_empty(), "it was known for long");
        assert_eq!(told(&mut State::default(), &values, 23), [23]);
        // A look that never came, since the program was killed before it, is made up for.
        let mut state = State::default();
        assert!(told(&mut state, &values[..22], 1).is_empty());
        assert_eq!(told(&mut state, &values, 26), [26]);
    }

    #[test]
    fn what_is_remembered_is_of_one_store_and_machine_and_survives() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite-watch.json");
        let of = |machine: &str| [String::new(), machine.to_owned()];
        let mut state = State::read(&path, of("a")).unwrap();
        assert_eq!((state.last(9), state.told.is_none()), (None, true));
        told(&mut state, &levels(&[(20, 10.0), (5, 12.0)]), 22);
        state.note(Turn { began_us: 1_000_000, cpu: 2.5 });
        state.learn(&["cpu".to_owned()], 2.0, Duration::from_secs(3));
        fs::write(&path, serde_json::to_string(&state).unwrap()).unwrap();
        let again = State::read(&path, of("a")).unwrap();
        assert_eq!(again, state);
        assert_eq!(again.told.as_ref().map(Vec::len), Some(1));
        let other = State::read(&path, of("b")).unwrap();
        assert_eq!((other.turn, other.told), (None, None));
        for wrong in ["", "{}", "[1", r#"{"format":2,"of":["","a"],"turn":null,"load":null,"told":null}"#, "\u{7f}"] {
            fs::write(&path, wrong).unwrap();
            assert!(State::read(&path, of("a")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_turn_of_another_time_or_of_nonsense_delays_nothing() {
        let last = |began_us, cpu, now| State { turn: Some(Turn { began_us, cpu }), ..State::default() }.last(now);
        let expected = LastTurn { ago: Duration::from_secs(3), cpu: Duration::from_millis(500) };
        assert_eq!(last(1_000_000, 0.5, 4_000_000), Some(expected));
        assert_eq!(last(4_000_000, 0.5, 1_000_000), None, "the clock was set back");
        assert_eq!(last(0, -1.0, 1), None);
        assert_eq!(last(0, 1e300, 1), None);
        assert_eq!(last(i64::MIN, 0.5, i64::MAX), None);
    }

    #[test]
    fn what_measuring_takes_is_learned_for_the_same_names() {
        let names = |name: &str| vec![name.to_owned()];
        let mut state = State::default();
        assert_eq!((state.load(&names("cpu")), state.knows(&names("cpu"))), (USUAL_LOAD, false));
        state.learn(&names("cpu"), 4.0, Duration::from_secs(6));
        assert_eq!((state.load(&names("cpu")), state.load(&names("os"))), (1.5, USUAL_LOAD));
        assert!(state.knows(&names("cpu")) && !state.knows(&names("os")));
        state.learn(&names("cpu"), 0.0, Duration::from_secs(6));
        assert_eq!(state.load(&names("cpu")), 1.5, "nothing was measured");
        state.learn(&names("cpu"), 1e-9, Duration::from_secs(6));
        assert_eq!(state.load(&names("cpu")), LOADS[1]);
    }
}
