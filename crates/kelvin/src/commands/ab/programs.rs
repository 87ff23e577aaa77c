//! Two commands of the user's, each run by the shell in a process of ours that has no other child: its counters are the command's.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kelvin_catalogue::command::{ALL, CPU_SYSTEM, CPU_USER, MINOR_FAULTS, PEAK_MEMORY, SWITCHES, TIME};
use kelvin_model::{Attempt, Case, FactDiffers, Metric, Name, OverheadReading, Reading, Readings, Round};
use kelvin_sys::child::{End, Guarded, Patience};
use kelvin_sys::clock::monotonic;
use kelvin_sys::spawn::of_process;
use kelvin_sys::usage::{Who, usage};
use serde::{Deserialize, Serialize};

use super::alternation::{Limits, Sides, Thing, Turn};
use crate::fault::{Done, Fault};

/// Time limit of a command without a budget: a guard against one that waits for ever.
const MOST: Duration = Duration::from_secs(24 * 3600);
/// Maximum bytes of the answer.
const MOST_BYTES: usize = 64 << 10;

/// What one run of a command took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Taken {
    nanoseconds: u64,
    user: u64,
    system: u64,
    peak: u64,
    faults: u64,
    switches: u64,
}

/// How a command ended: what it took, or its exit status if that is not 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Ran {
    Took(Taken),
    Failed(Option<i32>),
}

/// Two commands.
pub struct Programs {
    commands: [String; 2],
    began: u64,
    /// The time that was asked for and when it is over, if it was.
    budget: Option<(Duration, Instant)>,
    /// Which of them has been run.
    has_run: [bool; 2],
}

/// How a run ended.
enum Run {
    Took(Taken),
    Interrupted,
    TimeIsOver,
}

impl Programs {
    /// These, within the time that was asked for.
    ///
    /// # Errors
    /// If signals cannot be watched for.
    pub fn new(commands: [&String; 2], limits: &Limits) -> Result<Self, Fault> {
        kelvin_sys::interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
        let budget = limits.asked.zip(limits.deadline());
        Ok(Self { commands: commands.map(Clone::clone), began: monotonic(), budget, has_run: [false; 2] })
    }

    /// Runs one of them.
    fn run(&self, side: usize) -> Result<Run, String> {
        let program = OsStr::new("/proc/self/exe");
        let mut child = Guarded::spawn(program, &["command-process"], std::iter::empty::<(&str, &str)>())
            .map_err(|error| format!("cannot start a process for it: {error}"))?;
        child.give(self.commands[side].as_bytes());
        let left = self.budget.map(|(_, deadline)| deadline.saturating_duration_since(Instant::now()));
        let ending =
            child.wait(Patience::exactly(left.unwrap_or(MOST)), MOST_BYTES).map_err(|error| error.to_string())?;
        let complaint = last_line(&ending.complaint);
        match ending.end {
            End::Interrupted => Ok(Run::Interrupted),
            End::Exited(0) => match serde_json::from_slice(&ending.output) {
                Ok(Ran::Took(taken)) => Ok(Run::Took(taken)),
                Ok(Ran::Failed(Some(status))) => Err(format!("it exited with status {status}{complaint}")),
                Ok(Ran::Failed(None)) => Err(format!("it was ended by a signal{complaint}")),
                Err(error) => Err(format!("what it took cannot be read: {error}")),
            },
            End::TimedOut => match self.budget {
                Some(_) if self.has_run[side] => Ok(Run::TimeIsOver),
                Some((budget, _)) => Err(format!(
                    "one run takes longer than --budget {budget:?} leaves for it: give a longer one, or `minimum`"
                )),
                None => Err(format!("it was still running after {} hours", MOST.as_secs() / 3600)),
            },
            _ => Err(format!("the process around it failed{complaint}")),
        }
    }
}

/// The last line of what a command complained, as the end of a sentence.
fn last_line(complaint: &str) -> String {
    complaint
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!(": {}", line.trim()))
}

impl Sides for Programs {
    fn names(&self) -> [String; 2] {
        [0, 1].map(|side| format!("{}: {}", ["A", "B"][side], self.commands[side]))
    }

    fn differences(&self) -> Vec<FactDiffers> {
        let [a, b] = self.commands.clone();
        let is_same = a == b;
        let fact = FactDiffers { group: "Setting".into(), label: "command".into(), base: Some(a), other: Some(b) };
        if is_same { Vec::new() } else { vec![fact] }
    }

    fn things(&self) -> Vec<Thing> {
        let metrics = ALL.iter().map(|metric| **metric).collect();
        vec![Thing { probe: Name::new("command"), metrics, case: Case::new() }]
    }

    fn measure(&mut self, _: usize, side: usize, index: u32) -> Result<Turn, Fault> {
        let flag = ["--a-cmd", "--b-cmd"][side];
        let begun = monotonic();
        let ran = self.run(side).map_err(|why| Fault::new(format!("{flag} '{}'", self.commands[side]), why))?;
        let taken = match ran {
            Run::Took(taken) => taken,
            Run::Interrupted => return Ok(Turn::Interrupted),
            Run::TimeIsOver => return Ok(Turn::TimeIsOver),
        };
        self.has_run[side] = true;
        Ok(Turn::Measured(Round {
            index,
            at: (begun - self.began) as f64 / 1e9,
            seconds: (monotonic() - begun) as f64 / 1e9,
            timing: None,
            cpu: 0,
            attempt: Attempt::Measured(readings(taken)),
        }))
    }
}

fn readings(taken: Taken) -> Vec<Reading> {
    let of = |metric: &Metric, value: u64| Reading {
        metric: metric.id,
        readings: Readings::Scalars(vec![value as f64]),
        overhead: OverheadReading::default(),
        notes: Vec::new(),
    };
    vec![
        of(&TIME, taken.nanoseconds),
        of(&CPU_USER, taken.user),
        of(&CPU_SYSTEM, taken.system),
        of(&PEAK_MEMORY, taken.peak),
        of(&MINOR_FAULTS, taken.faults),
        of(&SWITCHES, taken.switches),
    ]
}

/// Runs the command on standard input once, and tells on standard output what it took.
pub fn command_process() -> Done {
    let mut command = String::new();
    std::io::stdin().read_to_string(&mut command)?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = monotonic();
    let status = shell
        .spawn()
        .map_err(of_process)
        .and_then(|mut child| child.wait())
        .map_err(|error| Fault::new("/bin/sh", error))?;
    let nanoseconds = monotonic() - begun;
    let used = usage(Who::Children);
    let ran = if status.success() {
        Ran::Took(Taken {
            nanoseconds,
            user: used.user,
            system: used.system,
            peak: used.peak_resident,
            faults: used.minor_faults,
            switches: used.voluntary_switches + used.involuntary_switches,
        })
    } else {
        Ran::Failed(status.code())
    };
    let text = serde_json::to_vec(&ran).map_err(Fault::because)?;
    std::io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
