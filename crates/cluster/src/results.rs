//! The results of a job: the file to which each event is appended as it comes, and what the events add up to.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use kelvin_core::cluster::RESULTS_FORMAT;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::{Event, RankFacts, Start};

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
    pub fn append(&mut self, event: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// What a sub-command measured, as the lines of its file add up.
pub trait Measured {
    /// The sub-command.
    const COMMAND: &'static str;
    /// What it measures.
    type Plan: Clone + Serialize + DeserializeOwned;
    /// A line of its own in the file of results.
    type Event: Clone + Serialize + DeserializeOwned;

    /// Nothing so far.
    fn new(plan: Self::Plan) -> Self;

    /// Adds what an event of a job of so many ranks says.
    fn add(&mut self, event: Self::Event, ranks: usize);
}

/// A line of the file of a sub-command.
pub type EventOf<M> = Event<<M as Measured>::Plan, <M as Measured>::Event>;

/// What is known of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Results<M> {
    /// What MPI says that it is.
    pub mpi: String,
    /// All ranks, in order.
    pub ranks: Vec<RankFacts>,
    /// What the sub-command measured.
    pub measured: M,
    /// Why the job ended before its end.
    pub failure: Option<String>,
    /// Whether the job came to its end.
    pub is_complete: bool,
}

impl<M: Measured> Results<M> {
    /// Those of a job that begins.
    pub fn new(start: Start<M::Plan>) -> Self {
        let Start { mpi, ranks, plan, .. } = start;
        Self { mpi, ranks, measured: M::new(plan), failure: None, is_complete: false }
    }

    /// Adds what an event says.
    pub fn add(&mut self, event: EventOf<M>) {
        match event {
            Event::Start(start) => *self = Self::new(start),
            Event::Failure { reason, .. } => self.failure = Some(reason),
            Event::End => self.is_complete = true,
            Event::Measured(event) => self.measured.add(event, self.ranks.len()),
        }
    }

    /// Those of a file. A last line that was not written whole is left out, as of a job that was killed.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` of a file of another format, or of a line that is no event.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut lines = Lines::open(path)?;
        let first = lines.next()?.ok_or_else(|| invalid("it has no whole line".into()))?;
        let mut results = Self::new(lines.parse(&first)?);
        while let Some(line) = lines.next()? {
            results.add(lines.parse(&line)?);
        }
        Ok(results)
    }
}

/// The sub-command that a file of results is of.
///
/// # Errors
/// Those of reading; `InvalidData` of a file of another format.
pub fn command_of(path: &Path) -> io::Result<String> {
    let mut lines = Lines::open(path)?;
    let first = lines.next()?.ok_or_else(|| invalid("it has no whole line".into()))?;
    let start: serde_json::Value = lines.parse(&first)?;
    if start["event"] != "start" {
        return Err(invalid("its first line is no start of a job".into()));
    }
    match start["format"].as_str() {
        Some(RESULTS_FORMAT) => {}
        format => {
            let format = format.unwrap_or_default();
            return Err(invalid(format!("its format is {format:?}, and this program reads {RESULTS_FORMAT:?}")));
        }
    }
    let start: Start<serde_json::Value> = lines.parse(&first)?;
    Ok(start.command)
}

/// The whole lines of a file.
struct Lines {
    reader: BufReader<File>,
    number: usize,
}

impl Lines {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { reader: BufReader::new(File::open(path)?), number: 0 })
    }

    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        self.number += 1;
        let bytes = self.reader.read_line(&mut line)?;
        Ok((bytes > 0 && line.ends_with('\n')).then_some(line))
    }

    /// The line that was read last.
    fn parse<T: DeserializeOwned>(&self, line: &str) -> io::Result<T> {
        serde_json::from_str(line).map_err(|error| invalid(format!("line {}: {error}", self.number)))
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of what events say.
    #[derive(Debug, PartialEq)]
    struct Sum(u64);

    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    struct SumPlan {
        first: u64,
    }

    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    #[serde(tag = "event", rename_all = "snake_case")]
    enum SumEvent {
        Term { value: u64 },
    }

    impl Measured for Sum {
        const COMMAND: &'static str = "sum";
        type Plan = SumPlan;
        type Event = SumEvent;

        fn new(plan: SumPlan) -> Self {
            Self(plan.first)
        }

        fn add(&mut self, SumEvent::Term { value }: SumEvent, ranks: usize) {
            self.0 += value * ranks as u64;
        }
    }

    fn start() -> Start<SumPlan> {
        Start {
            format: RESULTS_FORMAT.into(),
            command: Sum::COMMAND.into(),
            program: crate::protocol::PROGRAM.into(),
            mpi: "a test".into(),
            time_s: 1.0,
            ranks: (0..3).map(|rank| RankFacts { clock_error_s: 1e-5, ..RankFacts::made(rank) }).collect(),
            plan: SumPlan { first: 4 },
        }
    }

    #[test]
    fn killed_job_leaves_all_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut file = ResultsFile::create(&path).unwrap();
        let term = |value| Event::Measured(SumEvent::Term { value });
        let failure = Event::Failure { rank: Some(1), reason: "rank 1 (n1) has died".into() };
        let events: [EventOf<Sum>; 4] = [Event::Start(start()), term(5), term(7), failure];
        events.iter().for_each(|event| file.append(event).unwrap());
        file.file.write_all(b"{\"event\":\"term\",\"val").unwrap();
        assert_eq!(command_of(&path).unwrap(), "sum");
        let read = Results::<Sum>::read(&path).unwrap();
        let expected = Results {
            mpi: "a test".into(),
            ranks: start().ranks,
            // Each of three ranks adds each term to the first value.
            measured: Sum(4 + 3 * (5 + 7)),
            failure: Some("rank 1 (n1) has died".into()),
            is_complete: false,
        };
        assert_eq!(read, expected);
        assert_eq!(ResultsFile::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn complete_job_is_known_by_its_end() {
        let mut results = Results::<Sum>::new(start());
        results.add(Event::End);
        assert!(results.is_complete && results.failure.is_none());
    }

    #[test]
    fn other_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let first_line = serde_json::to_string(&EventOf::<Sum>::Start(start())).unwrap() + "\n";
        let other_format = first_line.replace(RESULTS_FORMAT, "kelvin-cluster 9");
        for (text, expected) in [
            (other_format.as_str(), "its format is \"kelvin-cluster 9\", and this program reads"),
            ("{\"event\":\"end\"}\n", "its first line is no start of a job"),
            ("", "it has no whole line"),
            ("words\n", "line 1: expected value"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = command_of(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        std::fs::write(&path, first_line + "{\"event\":\"other\"}\n").unwrap();
        let error = Results::<Sum>::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("line 2: "), "{error}");
    }
}
