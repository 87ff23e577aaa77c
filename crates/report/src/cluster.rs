//! The results of `kelvin-cluster net`, from its file: pairs of hosts, what the other pairs predict of each, and what is slow.
//!
//! The file is outside input. It has one JSON object in each line, of which those that are not shown here are skipped.

mod html;

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use kelvin_core::cluster::{Analysis, Cell, PairMatrix, Quantity, RESULTS_FORMAT, SlowSubject, Transport};
use kelvin_stats::median;
use serde::Deserialize;

pub use self::html::write_page;

/// How a file of results begins, whatever its version.
const FORMAT_NAME: &str = "\"format\":\"kelvin-cluster ";
/// The sub-command whose results are shown. Files of the time when there was only one do not name it.
const COMMAND: &str = "net";
/// Bytes of the beginning of a file that tell what it is.
const MAX_BEGINNING: usize = 256;

/// A rank.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Rank {
    /// The name of its host.
    pub label: String,
    /// Ranks with one number run on one kernel.
    pub kernel: usize,
    /// CPUs that it may use.
    pub cpus: usize,
}

/// A job of `kelvin-cluster net`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetJob {
    /// What MPI says that it is.
    pub mpi: String,
    /// The ranks, in order.
    pub ranks: Vec<Rank>,
    /// Relative difference from which on a link or host is named.
    pub tolerance: f64,
    /// The pairs. Of a job that ended before they were compared, they have no predictions.
    pub matrices: Vec<PairMatrix>,
    /// Slow links and hosts, the slowest first.
    pub slow: Vec<SlowSubject>,
    /// Payload of all ranks to all others at once, in bytes per second.
    pub all_to_all_bytes_per_second: Option<f64>,
    /// Why it ended before its end.
    pub failure: Option<String>,
    /// Whether it came to its end.
    pub is_complete: bool,
}

/// The figures of a pair that are shown.
#[derive(Clone, Debug, Deserialize)]
struct PairFigures {
    round_trip: Option<RoundTrip>,
    bytes_per_second: [f64; 2],
}

#[derive(Clone, Debug, Deserialize)]
struct RoundTrip {
    median_ns: f64,
}

/// A line of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Start {
        format: String,
        #[serde(default)]
        command: Option<String>,
        mpi: String,
        ranks: Vec<Rank>,
        #[serde(default)]
        tolerance: f64,
    },
    Pair {
        transport: Transport,
        pair: [usize; 2],
        figures: PairFigures,
    },
    AllToAll {
        bytes: u64,
        count: u64,
        seconds: f64,
    },
    Analysis {
        analysis: Analysis,
    },
    Failure {
        reason: String,
    },
    End,
    #[serde(other)]
    Other,
}

/// The values of the passes of each pair, by sender and receiver.
type Passes = BTreeMap<(usize, usize), Vec<f64>>;
/// Those of all quantities.
type PairPasses = BTreeMap<(Transport, Quantity), Passes>;

/// Whether a file is one of results of kelvin-cluster, by its beginning.
pub fn is_cluster_file(beginning: &[u8]) -> bool {
    let beginning = String::from_utf8_lossy(&beginning[..beginning.len().min(MAX_BEGINNING)]);
    beginning.starts_with('{') && beginning.contains(FORMAT_NAME)
}

impl NetJob {
    /// The job whose file this is. A last line that was not written whole is left out, as of a job that was killed.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` of a file of another format or sub-command, or of a line that cannot be.
    pub fn read(mut file: impl BufRead) -> io::Result<Self> {
        let mut job = Self::default();
        let mut passes = PairPasses::new();
        let (mut line, mut number) = (String::new(), 0);
        while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
            number += 1;
            let event: Event = kelvin_core::json::from_str(&line).map_err(|error| invalid(number, error))?;
            match (number, &event) {
                (1, Event::Start { .. }) => {}
                (1, _) | (_, Event::Start { .. }) => {
                    return Err(invalid(number, "a job starts in the first line alone"));
                }
                _ => {}
            }
            job.add(event, &mut passes).map_err(|problem| invalid(number, problem))?;
            line.clear();
        }
        if number == 0 {
            return Err(invalid(1, "it has no whole line"));
        }
        if job.matrices.is_empty() {
            job.matrices = matrices_of(passes);
        }
        Ok(job)
    }

    fn add(&mut self, event: Event, passes: &mut PairPasses) -> Result<(), String> {
        match event {
            Event::Start { format, command, mpi, ranks, tolerance } => {
                let command = command.as_deref().unwrap_or(COMMAND);
                if format != RESULTS_FORMAT {
                    return Err(format!("its format is {format:?}, and this program reads {RESULTS_FORMAT:?}"));
                }
                if command != COMMAND {
                    return Err(format!(
                        "it is of kelvin-cluster {command}, and {COMMAND} alone has a page: `kelvin-cluster report` prints it"
                    ));
                }
                (self.mpi, self.ranks, self.tolerance) = (mpi, ranks, tolerance);
            }
            Event::Pair { transport, pair: [first, second], figures } => {
                self.check_ranks([first, second])?;
                let [there, back] = figures.bytes_per_second;
                let round_trip = figures.round_trip.map_or(f64::NAN, |round_trip| round_trip.median_ns);
                for (quantity, ends, value) in [
                    (Quantity::RoundTripNs, (first, second), round_trip),
                    (Quantity::BytesPerSecond, (first, second), there),
                    (Quantity::BytesPerSecond, (second, first), back),
                ] {
                    if value.is_finite() && value > 0.0 {
                        passes.entry((transport, quantity)).or_default().entry(ends).or_default().push(value);
                    }
                }
            }
            Event::AllToAll { bytes, count, seconds } => {
                let ranks = self.ranks.len() as f64;
                let rate = ranks * (ranks - 1.0) * bytes as f64 * count as f64 / seconds;
                self.all_to_all_bytes_per_second = rate.is_finite().then_some(rate);
            }
            Event::Analysis { analysis } => {
                for matrix in &analysis.matrices {
                    matrix.cells.iter().try_for_each(|cell| self.check_cell(cell))?;
                }
                analysis.findings.iter().try_for_each(|slow| self.check_ranks(slow.subject.ranks()))?;
                analysis.findings.iter().try_for_each(|slow| check_values([slow.value, slow.expected.value]))?;
                (self.matrices, self.slow) = (analysis.matrices, analysis.findings);
            }
            Event::Failure { reason } => self.failure = Some(reason),
            Event::End => self.is_complete = true,
            Event::Other => {}
        }
        Ok(())
    }

    fn check_cell(&self, cell: &Cell) -> Result<(), String> {
        self.check_ranks([cell.from, cell.to])?;
        check_values([cell.value])?;
        cell.expected.map_or(Ok(()), |expected| check_values([expected.value, expected.low, expected.high]))
    }

    fn check_ranks(&self, ranks: impl IntoIterator<Item = usize>) -> Result<(), String> {
        match ranks.into_iter().find(|&rank| rank >= self.ranks.len()) {
            Some(rank) => Err(format!("it names rank {rank}, of {} ranks", self.ranks.len())),
            None => Ok(()),
        }
    }
}

fn check_values(values: impl IntoIterator<Item = f64>) -> Result<(), String> {
    match values.into_iter().find(|value| !(value.is_finite() && *value > 0.0)) {
        Some(value) => Err(format!("it has the value {value}, and a positive one is needed")),
        None => Ok(()),
    }
}

/// The medians of the passes.
fn matrices_of(passes: PairPasses) -> Vec<PairMatrix> {
    let matrix = |((transport, quantity), pairs): ((Transport, Quantity), Passes)| {
        let cell = |((from, to), values): ((usize, usize), Vec<f64>)| Cell {
            from,
            to,
            value: median(&values),
            expected: None,
            is_disturbed: false,
        };
        PairMatrix { transport, quantity, cells: pairs.into_iter().map(cell).collect(), deviation: None }
    };
    passes.into_iter().map(matrix).collect()
}

fn invalid(line: usize, problem: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {problem}"))
}
