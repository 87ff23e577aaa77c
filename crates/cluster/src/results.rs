//! The results of a job: the file to which each event is appended as it comes, and what the events add up to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::event::{Event, FORMAT, RankFacts};
use crate::protocol::{PairFigures, PairPlan, Transport};
use crate::schedule::Pair;

/// A file of results that is being written. Each line is written at once, so that a job that is killed leaves all that it measured.
#[derive(Debug)]
pub struct ResultsFile {
    file: File,
    path: PathBuf,
}

impl ResultsFile {
    /// A new file at this path.
    ///
    /// # Errors
    /// Those of creating it; `AlreadyExists` where there is one.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::options().append(true).create_new(true).open(path)?, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event.
    ///
    /// # Errors
    /// Those of writing.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// What MPI says that it is.
    pub mpi: String,
    /// All ranks, in order.
    pub ranks: Vec<RankFacts>,
    /// What each pair measures, one for each transport.
    pub plans: Vec<PairPlan>,
    /// Relative difference from which on a link or host is named.
    pub tolerance: f64,
    /// All passes of each pair.
    pub pairs: BTreeMap<(Transport, Pair), Vec<PairFigures>>,
    /// Pairs that could not be measured, with the reason.
    pub failed_pairs: BTreeMap<(Transport, Pair), String>,
    /// Pairs across the middle, at the same time.
    pub bisection: BTreeMap<(Transport, Pair), PairFigures>,
    /// Payload that each rank sent to all others at once, all together, in bytes per second.
    pub all_to_all_bytes_per_second: Option<f64>,
    /// Why the job ended before its end.
    pub failure: Option<String>,
    /// Whether the job came to its end.
    pub is_complete: bool,
}

impl Results {
    /// Adds what an event says.
    pub fn add(&mut self, event: &Event) {
        match event.clone() {
            Event::Start { mpi, ranks, plans, tolerance, .. } => {
                *self = Self { mpi, ranks, plans, tolerance, ..Self::default() };
            }
            Event::Pair { transport, pair, figures, .. } => {
                self.pairs.entry((transport, pair)).or_default().push(figures);
            }
            Event::PairFailed { transport, pair, reason } => {
                self.failed_pairs.insert((transport, pair), reason);
            }
            Event::Bisection { transport, pair, figures } => {
                self.bisection.insert((transport, pair), figures);
            }
            Event::AllToAll { bytes, count, seconds } => {
                let ranks = self.ranks.len() as f64;
                let total = ranks * (ranks - 1.0) * bytes as f64 * count as f64;
                self.all_to_all_bytes_per_second = Some(total / seconds);
            }
            Event::Failure { reason, .. } => self.failure = Some(reason),
            Event::Analysis { .. } => {}
            Event::End => self.is_complete = true,
        }
    }

    /// Those of a file. A last line that was not written whole is left out, as of a job that was killed.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` of a file of another format, or of a line that is no event.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut reader = BufReader::new(File::open(path)?);
        let mut results = Self::default();
        let mut line = String::new();
        let mut number = 0;
        while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
            number += 1;
            let event: Event =
                serde_json::from_str(&line).map_err(|error| invalid(format!("line {number}: {error}")))?;
            match &event {
                Event::Start { format, .. } if number == 1 && format != FORMAT => {
                    return Err(invalid(format!("its format is {format:?}, and this program reads {FORMAT:?}")));
                }
                Event::Start { .. } if number == 1 => {}
                _ if number == 1 => return Err(invalid("its first line is no start of a job".into())),
                _ => {}
            }
            results.add(&event);
            line.clear();
        }
        if number == 0 { Err(invalid("it has no whole line".into())) } else { Ok(results) }
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Event {
        let rank = |rank| RankFacts { clock_error_s: 1e-5, ..RankFacts::made(rank) };
        Event::Start {
            format: FORMAT.into(),
            program: crate::protocol::PROGRAM.into(),
            mpi: "a test".into(),
            time_s: 1.0,
            ranks: (0..3).map(rank).collect(),
            plans: Vec::new(),
            tolerance: 0.1,
        }
    }

    fn pair(pair: Pair, rate: f64) -> Event {
        let figures = PairFigures {
            round_trip: None,
            bytes_per_second: [rate, rate],
            sent_bytes: 1,
            interface_bytes: 2,
            cpu_wait: 0.0,
        };
        Event::Pair { transport: Transport::Tcp, pass: 1, pair, figures }
    }

    #[test]
    fn killed_job_leaves_all_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut file = ResultsFile::create(&path).unwrap();
        let events =
            [start(), pair([0, 1], 5.0), pair([0, 1], 7.0), Event::AllToAll { bytes: 10, count: 4, seconds: 2.0 }];
        let mut expected = Results::default();
        for event in &events {
            file.append(event).unwrap();
            expected.add(event);
        }
        file.file.write_all(b"{\"event\":\"pair\",\"tran").unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!(read, expected);
        assert_eq!(read.pairs[&(Transport::Tcp, [0, 1])].len(), 2);
        // Three ranks send 10 bytes to two others, four times, in 2 s.
        assert_eq!((read.all_to_all_bytes_per_second, read.is_complete), (Some(120.0), false));
        assert_eq!(ResultsFile::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let other_format = serde_json::to_string(&start()).unwrap().replace(FORMAT, "kelvin-cluster 9") + "\n";
        for (text, expected) in [
            (other_format.as_str(), "its format is \"kelvin-cluster 9\", and this program reads"),
            ("{\"event\":\"end\"}\n", "its first line is no start of a job"),
            ("", "it has no whole line"),
            ("words\n", "line 1: expected value"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Results::read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
