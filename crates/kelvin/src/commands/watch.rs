//! `kelvin watch`: every so often a short run within a share of one CPU, and what it shows that became worse for good.

mod pace;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kelvin_analysis::words::history::in_one_line;
use kelvin_analysis::{Outcome, alarming};
use kelvin_catalogue::file::METADATA;
use kelvin_catalogue::mem::{BANDWIDTH, FAULT_MINOR, LATENCY};
use kelvin_catalogue::net::RTT_TCP;
use kelvin_catalogue::{cpu, os};
use kelvin_harness::Effort;
use kelvin_machine::hardware;
use kelvin_model::units::{percent, seconds};
use kelvin_model::{History, RunStatus, SeriesHistory};
use kelvin_store::{Store, Watching, labels};
use kelvin_sys::interrupt;
use kelvin_sys::ready::readable_of;
use kelvin_sys::usage::{Who, usage};

use self::pace::Pace;
use self::state::{State, Turn};
use super::history::{kept, told_of};
use super::run::{Destination, Text, blocks, fitted, supervised};
use super::{local_store, open_store};
use crate::budget::Fitted;
use crate::cli::{HistoryArgs, MINIMUM, MeasureArgs, WatchArgs};
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::measure::{Finished, Wishes, effort_defaults};
use crate::output;
use crate::place::Here;
use crate::private::Told;
use crate::selection::Selection;

/// The mode of these runs: shorter than others, they are compared with each other alone.
const MODE: &str = "watch";
/// Between two turns, unless asked otherwise.
const USUAL: Duration = Duration::from_secs(3600);
/// A signal that comes between a look at it and the wait is seen so much later.
const LOOK: Duration = Duration::from_secs(1);

/// What is measured unless names are given: what tells most of a machine, takes less than 20 s of CPU time in all, and writes next to
/// nothing.
fn usual_names() -> Vec<String> {
    let areas = [&cpu::FREQUENCY, &os::SYSCALL_NULL].map(|metric| metric.area());
    let ids = [LATENCY.id, FAULT_MINOR.id, BANDWIDTH, METADATA, RTT_TCP.id];
    areas.into_iter().chain(ids.iter().map(|id| id.as_str())).map(str::to_owned).collect()
}

/// `kelvin watch`.
pub fn watch(args: &WatchArgs) -> Done {
    interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
    let mut watch = Watch::new(args)?;
    // A mistake is told now, and not after a wait.
    watch.planned()?;
    watch.announce()?;
    loop {
        let due = watch.due_in()?;
        if args.once && !due.is_zero() {
            output::remark(format_args!(
                "kelvin: no turn: {} of one CPU pays for the last one in {}",
                percent(args.cpu_share),
                seconds(due.as_secs_f64())
            ));
            return Ok(ExitCode::SUCCESS);
        }
        if !slept(due)? {
            return Ok(ExitCode::SUCCESS);
        }
        match watch.turn() {
            Ok(Seen::Interrupted(signal)) => {
                output::remark(format_args!("kelvin: interrupted by {signal}: the run is stored as far as it came"));
                return Ok(ExitCode::SUCCESS);
            }
            Ok(Seen::News(news)) if args.once => {
                return Ok(if news { ExitCode::from(WITH_FAILURES) } else { ExitCode::SUCCESS });
            }
            // What is wrong from the beginning is a mistake; what comes later may go again.
            Err(fault) if args.once || watch.turns == 0 => return Err(fault),
            Err(fault) => output::remark(format_args!("kelvin: this turn: {fault}")),
            Ok(Seen::News(_)) => {}
        }
        watch.turns += 1;
        let next = watch.due_in()?;
        output::remark(format_args!(
            "kelvin: {}; the next turn is in {}",
            watch.took_in_words(),
            seconds(next.as_secs_f64())
        ));
    }
}

/// Waits; false where a signal asked to stop.
fn slept(time: Duration) -> Result<bool, Fault> {
    let begun = Instant::now();
    while interrupt::requested().is_none() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(true);
        }
        readable_of(&[], left.min(LOOK))?;
    }
    Ok(false)
}

/// What a turn has shown.
enum Seen {
    /// Whether something became worse.
    News(bool),
    /// It was interrupted by this signal.
    Interrupted(&'static str),
}

/// A watch.
struct Watch<'a> {
    args: &'a WatchArgs,
    names: Vec<String>,
    pace: Pace,
    /// The flags of each run, whose time is planned unless it is the least.
    measure: MeasureArgs,
    state: State,
    file: PathBuf,
    /// CPU time of this process and its children that was counted.
    counted: Duration,
    turns: u64,
    _only: Watching,
}

impl<'a> Watch<'a> {
    /// Opens the store, of which no other program may watch this machine.
    fn new(args: &'a WatchArgs) -> Result<Self, Fault> {
        let store = open_store(&args.store)?;
        // A file is that beside which this one lies, whatever it is called.
        let of = store.key().unwrap_or_default().to_owned();
        let beside = if store.key().is_some() { local_store()? } else { store };
        let file = PathBuf::from(format!("{}-watch.json", beside.name()));
        let state = State::read(&file, [of, hardware(&kelvin_machine::read(Path::new("/")))]);
        Ok(Self {
            names: if args.names.is_empty() { usual_names() } else { args.names.clone() },
            pace: Pace { every: args.every.unwrap_or(USUAL), share: args.cpu_share },
            measure: MeasureArgs {
                budget: args.measure.budget.filter(|&asked| asked == MINIMUM),
                ..args.measure.clone()
            },
            state: state.map_err(|error| {
                Fault::new(format!("{}: not what a watch remembers; remove it to begin anew", file.display()), error)
            })?,
            file,
            counted: Duration::ZERO,
            turns: 0,
            _only: alone(&beside)?,
            args,
        })
    }

    /// The time until the next turn may begin.
    fn due_in(&self) -> Result<Duration, Fault> {
        let Some(last) = self.state.last(now_us()) else { return Ok(Duration::ZERO) };
        // Whoever starts a turn, or the watch, sees to the interval of it; the share is kept all the same.
        let starts = self.args.once || self.turns == 0;
        let after = if starts { self.pace.paid_after(last.cpu) } else { self.pace.next_after(last.cpu) };
        Ok(after.saturating_sub(last.ago))
    }

    /// Says what is watched, and at which price.
    fn announce(&self) -> Result<(), Fault> {
        let by_default = if self.args.names.is_empty() { " by default" } else { "" };
        let allowance = seconds(self.pace.allowance().as_secs_f64());
        let share = percent(self.pace.share);
        let every = seconds(self.pace.every.as_secs_f64());
        let due = self.due_in()?;
        let first = if due.is_zero() || self.args.once {
            String::new()
        } else {
            format!("; the first turn is in {}, when the last one is paid for", seconds(due.as_secs_f64()))
        };
        output::remark(format_args!(
            "kelvin: watching {}{by_default}, every {every} within {share} of one CPU: {allowance} of CPU time a turn{first}",
            self.names.join(" ")
        ));
        Ok(())
    }

    /// Measures, stores, and tells what became worse.
    fn turn(&mut self) -> Result<Seen, Fault> {
        let began_us = now_us();
        let planned = self.planned()?;
        // Whatever kills it: what it may take is charged.
        self.remember(Turn { began_us, cpu: self.pace.allowance().as_secs_f64() })?;
        let measured = self.measured(planned);
        let seen = match &measured {
            Ok(Measured { interrupted: Some(signal), .. }) => Ok(Seen::Interrupted(signal)),
            Ok(_) => self.look().map(Seen::News),
            Err(_) => Ok(Seen::News(false)),
        };
        let all = cpu_time();
        let cpu = all.saturating_sub(std::mem::replace(&mut self.counted, all));
        if let Ok(Measured { time, interrupted: None }) = measured {
            self.state.learn(&self.names, time, cpu);
        }
        self.remember(Turn { began_us, cpu: cpu.as_secs_f64() })?;
        measured.and(seen)
    }

    /// The plan of a turn that begins now, which fits into the interval.
    fn planned(&mut self) -> Result<Planned, Fault> {
        let here = Here::read()?;
        here.placement(self.measure.cpu)?;
        let load = self.state.load(&self.names);
        let plan = Selection::of(&self.names, "kelvin study")?.plan(&self.measure, &here, Effort::Quick)?;
        let budget = self.time(blocks(&plan), load)?.as_secs_f64();
        let fitted = fitted(plan, &self.wishes(budget), &here, &self.destination())?;
        self.make_room(&fitted, load)?;
        Ok(Planned { here, fitted, budget })
    }

    fn measured(&self, Planned { here, fitted, budget }: Planned) -> Result<Measured, Fault> {
        supervised(here, &fitted, &self.wishes(budget), &self.destination(), |finished, _, _| Measured::of(finished))
    }

    fn wishes(&self, budget: f64) -> Wishes<'_> {
        let (_, _, rounds) = effort_defaults(Effort::Quick, 1);
        Wishes {
            mode: MODE,
            most: None,
            budget,
            rounds,
            causes: 0.0,
            args: &self.measure,
            told: Told::with(self.args.with_private),
            members: None,
        }
    }

    fn destination(&self) -> Destination<'_> {
        Destination {
            store: Some(&self.args.store),
            labels: labels(&self.args.tags, None),
            page: None,
            json: None,
            text: Text::Screen,
            references: Vec::new(),
        }
    }

    /// The time of a turn as far as its share allows it, at most that of a default run: more narrows no figure of it much.
    fn time(&self, blocks: usize, load: f64) -> Result<Duration, Fault> {
        let room = self.pace.room(load);
        let (_, most, _) = effort_defaults(Effort::Default, blocks);
        match self.args.measure.budget {
            None => Ok(room.min(Duration::from_secs_f64(most))),
            Some(asked) if asked != MINIMUM && self.turns == 0 && !self.pace.holds(asked, load) => {
                Err(Fault::because(format!(
                    "--budget {}: {} of one CPU pays for {} every {}; give --every {} or more of --cpu-share",
                    seconds(asked.as_secs_f64()),
                    percent(self.pace.share),
                    seconds(room.as_secs_f64()),
                    seconds(self.pace.every.as_secs_f64()),
                    as_argument(self.pace.least_every(asked, load))
                )))
            }
            Some(asked) => Ok(room.min(asked)),
        }
    }

    /// Sees to it that the minimum of rounds fits into the interval: one that was asked for is refused at the beginning, any other grows.
    /// What a timer starts began with the first turn: were a later one refused, no run would ever show that the machine is quicker again.
    fn make_room(&mut self, fitted: &Fitted, load: f64) -> Result<(), Fault> {
        // What the share allows fits, so that what does not is what is needed.
        let needed = Duration::from_secs_f64(fitted.budget.seconds);
        if self.pace.holds(needed, load) {
            return Ok(());
        }
        let least = self.pace.least_every(needed, load);
        let said = format!(
            "the minimum of rounds takes {}, {} of CPU time; {} of one CPU pays for that every {}",
            seconds(needed.as_secs_f64()),
            seconds(needed.as_secs_f64() * load),
            percent(self.pace.share),
            seconds(least.as_secs_f64())
        );
        let begins = self.turns == 0 && !(self.args.once && self.state.knows(&self.names));
        if let Some(every) = self.args.every.filter(|_| begins) {
            return Err(Fault::because(format!(
                "--every {}: {said}; give --every {}, more of --cpu-share, or fewer names",
                as_argument(every),
                as_argument(least)
            )));
        }
        output::remark(format_args!("kelvin: {said}: so long is an interval now"));
        self.pace.every = least;
        Ok(())
    }

    /// Looks at the course of all figures, and prints what became worse for good and was not told yet.
    fn look(&mut self) -> Result<bool, Fault> {
        let mut args = HistoryArgs::following(self.names.clone(), MODE, self.args.store.clone());
        args.with_private = self.args.with_private;
        let (store, kept) = kept(&args)?;
        let records = &kept.records;
        let now = records.history();
        let before = || records.before(records.runs.len() - 1).history();
        let new = self.state.news(&now, before, self.args.alert);
        if new.is_empty() {
            return Ok(false);
        }
        let now: History = told_of(&store, now, &args)?;
        let is_new =
            |series: &SeriesHistory| new.iter().any(|(id, case)| *id == series.metric.id && *case == series.case);
        let lines = alarming(&now, self.args.alert).filter(|(series, _)| is_new(series));
        let lines: Vec<String> = lines.filter_map(|(series, _)| in_one_line(series, &now)).collect();
        output::print(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        Ok(true)
    }

    fn remember(&mut self, turn: Turn) -> Result<(), Fault> {
        self.state.note(turn);
        output::write_file(&self.file, |out| Ok(serde_json::to_writer(out, &self.state)?))
    }

    /// What the last turn took, beside what it may take.
    fn took_in_words(&self) -> String {
        let took = self.state.last(now_us()).map_or(Duration::ZERO, |last| last.cpu);
        format!(
            "that took {} of CPU time, of {}",
            seconds(took.as_secs_f64()),
            seconds(self.pace.allowance().as_secs_f64())
        )
    }
}

/// The share of the program that watches this machine, which there is one of.
fn alone(beside: &Store) -> Result<Watching, Fault> {
    let cannot = |error| Fault::new("cannot tell whether another `kelvin watch` is running", error);
    beside.watching().map_err(cannot)?.ok_or_else(|| {
        Fault::because(format!(
            "another `kelvin watch` is running with {}: two would measure each other; name all in one, or stop that one",
            beside.name()
        ))
    })
}

/// The plan of a turn.
struct Planned {
    here: Here,
    fitted: Fitted,
    /// Seconds that its share allows.
    budget: f64,
}

/// What a turn has measured.
struct Measured {
    /// Seconds of its run.
    time: f64,
    /// The signal that ended it early.
    interrupted: Option<&'static str>,
}

impl Measured {
    fn of(Finished { run, analysis, trouble }: Finished) -> Result<Self, Fault> {
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let failed = analysis.results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_))).count();
        if failed > 0 {
            output::remark(format_args!(
                "kelvin: {failed} figures failed: `kelvin report {}` says why",
                run.outline.id
            ));
        }
        let is_whole = run.status == RunStatus::Complete;
        let interrupted = (!is_whole).then(|| interrupt::requested().unwrap_or("a signal"));
        Ok(Self { time: run.seconds, interrupted })
    }
}

/// CPU time of this process and all its children that have ended.
fn cpu_time() -> Duration {
    let of = |who| {
        let usage = usage(who);
        Duration::from_nanos(usage.user + usage.system)
    };
    of(Who::Process) + of(Who::Children)
}

/// Microseconds since 1970.
fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// A time as `--every` takes it.
fn as_argument(time: Duration) -> String {
    match time.as_secs() {
        whole if time.subsec_nanos() > 0 => format!("{}s", whole as f64 + time.subsec_millis() as f64 / 1000.0),
        whole if whole > 0 && whole % 3600 == 0 => format!("{}h", whole / 3600),
        whole if whole > 0 && whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    }
}
