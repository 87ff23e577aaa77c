//! Files moved from one process to another over loopback, by the methods of either end: the cells of a published study.
//!
//! It shows which method of which end decides, what a connection for each file costs, and whether a window matters. It must not be
//! used to predict a transfer between two hosts, or one that is encrypted and verified.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_catalogue::transfer::{
    BUFFER, Connection, Files, Mode, RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_FAULTS, RECEIVER_SWITCHES, Receiver,
    Reply, SENDER_CALLS, SENDER_CPU, SENDER_FAULTS, SENDER_SWITCHES, Sender, TIME, WINDOW,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::mapping::page_bytes;
use kelvin_sys::usage::{Who, usage};
use kelvin_transfer::bare::{self, Limits, Receiving, Sending};
use kelvin_transfer::moving::{self, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};

use super::files::{Set, size, split};
use super::receiver::{self, Setting, Work};

pub(crate) static PROBE: Probe = Probe {
    id: TIME.id.as_str(),
    summary: "Files moved between two processes over loopback by read/write or mmap at either end, as a published study did",
    kind: ProbeKind::Study,
    method: Method {
        how: "Three sets of noise, of the published sizes: 10 files, 24,114 B together (four of 2412 B, six of 2411 B); 1 \
              file of 12,022,885 B; 2 files of 182,172,254 B each. A sender and a receiver, two processes on two CPUs, \
              move a set over TCP on loopback: for each file a header of 24 bytes, its name and its bytes, neither \
              encrypted nor verified. The method rw moves so many bytes of a buffer by a call (512 as published), mmap a \
              whole window of pages. The files are in memory; the targets are new files in the scratch directory, \
              removed after each trial. The clock runs from before the sender connects until the receiver has written \
              the last byte of the last file and cut it to its size, on a clock that both processes read. After each \
              trial, outside of the clock, every byte that arrived is compared by its BLAKE3 digest. A round is two \
              fresh processes, an untimed transfer of the small set, and 10 trials (1 of the large set); the rounds of \
              all cells are interleaved in random order. Beside the time: CPU time, system calls that move bytes, map or \
              wait, page faults and context switches of either end. The window is of no use to rw at both ends: those \
              cells are a control.",
        prediction: "None: which of two ends on two CPUs waits for the other is in no lower metric, nor is what a call of \
                     512 bytes costs at each.",
        not_for: "Transfers between two hosts, where the link decides; `kelvin send`, which verifies and encrypts; \
                  comparison with the published times as equals: those ends were in the kernel of a virtual machine.",
        pitfalls: &[
            "Bytes a call confounded with the method: 512 bytes of rw against a whole window of mmap, as published. \
             Cells with buffers of 64 KiB and 1 MiB, which is a window of 256 pages, separate the two.",
            "Targets that are written back meanwhile: they are removed at once; bytes that have reached the device \
             nevertheless count against --write-limit.",
            "A fixed cost taken for one of bytes: ten small files, one file and two large ones.",
            "Ports in TIME_WAIT after a connection for each file: some 9,000 in a whole study, of 28,000.",
        ],
        sources: &[
            "the study kernel-transfer-2020: its data sets, cells and clock",
            "tcp(7), mmap(2); Linux net/ipv4/tcp.c, mm/filemap.c",
        ],
    },
    metrics: &[
        &TIME,
        &RATE,
        &SENDER_CPU,
        &RECEIVER_CPU,
        &SENDER_CALLS,
        &RECEIVER_CALLS,
        &SENDER_FAULTS,
        &RECEIVER_FAULTS,
        &SENDER_SWITCHES,
        &RECEIVER_SWITCHES,
    ],
    inputs: &[],
    cases,
    run,
    predict,
};

/// The windows and the buffer of the published cells, and larger buffers: that of the usual copying programs, and as many bytes
/// as the larger window.
const WINDOWS: [u64; 2] = [16, 256];
const PUBLISHED_BUFFER: u64 = 512;
const LARGER_BUFFERS: [u64; 2] = [64 << 10, 1 << 20];
/// How long an end may be silent: longer than any pause of a machine that works.
const PATIENCE: Duration = Duration::from_secs(30);
/// Trials in a round. A large transfer takes as long as all else of a round.
const TRIALS: u32 = 10;

/// Trials of a round of a set.
const fn trials(set: Files) -> u32 {
    match set {
        Files::Small | Files::One => TRIALS,
        Files::Large => 1,
    }
}

/// Bytes that one round of a case of a study moves through files; none for cases of other probes.
pub fn bytes_of_a_round(case: &Case) -> u64 {
    let (_, warm) = size(Files::Small);
    Files::of(case).map_or(0, |set| warm + size(set).1 * u64::from(trials(set)))
}

/// A cell, whatever is sent.
fn cell(sender: Sender, receiver: Receiver, (connection, window): (Connection, u64)) -> Case {
    let case = Case::new().at(sender).at(receiver).at(connection).with(WINDOW, window);
    case.with(BUFFER, PUBLISHED_BUFFER).at(Mode::Blocking).at(Reply::None)
}

/// The published cells, and then those that vary the other factors one at a time.
fn cells(effort: Effort) -> Vec<Case> {
    let [narrow, wide] = WINDOWS;
    let connections = [(Connection::PerFile, narrow), (Connection::PerFile, wide), (Connection::Persistent, wide)];
    let ends = || Sender::ALL.iter().flat_map(|&sender| Receiver::ALL.iter().map(move |&receiver| (sender, receiver)));
    let published = connections.iter().flat_map(|&at| ends().map(move |(sender, receiver)| cell(sender, receiver, at)));
    let mut cells: Vec<Case> = published.collect();
    if effort > Effort::Quick {
        let persistent = (Connection::Persistent, wide);
        let copying = cell(Sender::ReadWrite, Receiver::ReadWrite, persistent);
        cells.extend(LARGER_BUFFERS.map(|bytes| copying.clone().with(BUFFER, bytes)));
        cells.push(cell(Sender::Mmap, Receiver::Mmap, persistent).at(Reply::PerFile));
    }
    cells
}

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let cells = cells(effort);
    Files::ALL.iter().flat_map(|&set| cells.iter().map(move |cell| cell.clone().at(set))).collect()
}

/// A case as it is carried out.
#[derive(Clone, Copy, Debug)]
struct Cell {
    set: Files,
    sending: Sending,
    receiving: Receiving,
}

impl Cell {
    fn of(case: &Case) -> Result<Self, Stop> {
        let unknown = || Stop::fail(format!("no such transfer: {case}"));
        let set = Files::of(case).ok_or_else(unknown)?;
        let (sender, receiver) = Sender::of(case).zip(Receiver::of(case)).ok_or_else(unknown)?;
        let (window, buffer) = WINDOW.of(case).zip(BUFFER.of(case)).ok_or_else(unknown)?;
        let Some(Mode::Blocking) = Mode::of(case) else { return Err(unknown()) };
        let connection = match Connection::of(case).ok_or_else(unknown)? {
            Connection::PerFile => bare::Connection::PerFile,
            Connection::Persistent => bare::Connection::Persistent,
        };
        let reply = Reply::of(case).ok_or_else(unknown)? == Reply::PerFile;
        let (window, buffer) = (window as usize, buffer as usize);
        let setup = send_setup(sender, window, buffer);
        let (files, bytes) = size(set);
        Ok(Self {
            set,
            sending: Sending { setup, connection, reply, digest: false },
            receiving: Receiving {
                setup: receive_setup(receiver, window, buffer),
                connection,
                limits: Limits { files: files.max(size(Files::Small).0), bytes: bytes.max(size(Files::Small).1) },
            },
        })
    }
}

fn send_setup(sender: Sender, window: usize, buffer: usize) -> SendSetup {
    let (method, buffer) = match sender {
        Sender::ReadWrite => (SendMethod::ReadWrite, buffer),
        Sender::Mmap => (SendMethod::Mmap, window * page_bytes()),
    };
    SendSetup { method, mode: moving::Mode::Blocking, buffer, window, patience: PATIENCE }
}

fn receive_setup(receiver: Receiver, window: usize, buffer: usize) -> ReceiveSetup {
    let (method, buffer) = match receiver {
        Receiver::ReadWrite => (ReceiveMethod::ReadWrite, buffer),
        Receiver::Mmap => (ReceiveMethod::Mmap, window * page_bytes()),
    };
    ReceiveSetup { method, mode: moving::Mode::Blocking, buffer, window, patience: PATIENCE }
}

/// One transfer as it was measured.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Nanoseconds.
    time: f64,
    sender: Work,
    receiver: Work,
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let cell = Cell::of(case)?;
    let partner = bench.partner_cpu()?;
    let set = Set::ready(bench, cell.set)?;
    let small = if cell.set == Files::Small { None } else { Some(Set::ready(bench, Files::Small)?) };
    let target = Target::make(bench)?;
    let (directory, clock) = (target.0.clone(), bench.clock());
    let receiver = receiver::Receiver::start(Setting { how: cell.receiving, directory, clock, cpu: partner })?;
    let mut ends = Ends { bench, cell: &cell, receiver: &receiver, target: &target.0, written: 0 };
    ends.trial(small.as_ref().unwrap_or(&set))?;
    let trials = (0..trials(cell.set)).map(|_| ends.trial(&set)).collect::<Result<Vec<Trial>, Stop>>()?;
    let written = ends.written;
    receiver.end()?;
    record(bench, &trials, set.bytes);
    bench.note_on_last(format!(
        "{} files of {} bytes; every trial's bytes were compared; {written} bytes of the targets reached the device",
        set.paths.len(),
        lengths(cell.set),
    ));
    Ok(())
}

/// The lengths of a set's files in words.
fn lengths(set: Files) -> String {
    let mut lengths = split(set);
    lengths.dedup();
    lengths.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ")
}

/// The directory that files arrive in, removed on drop.
struct Target(PathBuf);

impl Target {
    fn make(bench: &Bench<'_>) -> Result<Self, Stop> {
        let path = bench.scratch().join(format!("kelvin-arrives-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| Stop::fail(format!("cannot make {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The scratch directory is removed in any case.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Both ends of the transfers of a round.
struct Ends<'a, 'b> {
    bench: &'a Bench<'b>,
    cell: &'a Cell,
    receiver: &'a receiver::Receiver,
    target: &'a Path,
    /// Bytes of the targets that have been written to their device.
    written: u64,
}

impl Ends<'_, '_> {
    /// One transfer of a set, compared and removed.
    fn trial(&mut self, set: &Set) -> Result<Trial, Stop> {
        let trial = self.transfer(set)?;
        let written = set.written_back(self.target)?;
        self.written += written;
        set.compare(self.target)?;
        self.bench.may_write(written)?;
        Ok(trial)
    }

    fn transfer(&self, set: &Set) -> Result<Trial, Stop> {
        self.receiver.accept()?;
        let before = usage(Who::Thread);
        let start = self.bench.clock().start();
        let sent = bare::send(&set.paths, self.receiver.address, &self.cell.sending);
        let used = usage(Who::Thread).since(before);
        let moved = match sent {
            Ok(moved) => moved,
            Err(error) => return self.receiver.check().and(Err(Stop::fail(format!("the sender: {error}")))),
        };
        let (end, receiver) = self.receiver.finished()?;
        if end <= start {
            return Err(Stop::fail("the clocks of the two CPUs differ by more than a transfer takes"));
        }
        Ok(Trial { time: self.bench.nanoseconds(end - start), sender: Work::of(&moved, used), receiver })
    }
}

/// A figure of a trial, in the unit of its metric.
type Figure = fn(&Trial) -> f64;

fn record(bench: &mut Bench<'_>, trials: &[Trial], bytes: u64) {
    let figures: [(&Metric, Figure); 9] = [
        (&TIME, |trial| trial.time),
        (&SENDER_CPU, |trial| trial.sender.cpu as f64),
        (&RECEIVER_CPU, |trial| trial.receiver.cpu as f64),
        (&SENDER_CALLS, |trial| trial.sender.calls as f64),
        (&RECEIVER_CALLS, |trial| trial.receiver.calls as f64),
        (&SENDER_FAULTS, |trial| trial.sender.faults as f64),
        (&RECEIVER_FAULTS, |trial| trial.receiver.faults as f64),
        (&SENDER_SWITCHES, |trial| trial.sender.switches as f64),
        (&RECEIVER_SWITCHES, |trial| trial.receiver.switches as f64),
    ];
    for (metric, figure) in figures {
        bench.record(metric, trials.iter().map(figure).collect());
    }
    bench.record(&RATE, trials.iter().map(|trial| bytes as f64 * 1e9 / trial.time).collect());
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "which of two ends on two CPUs waits for the other, and what a call of 512 bytes costs at each, is in no lower metric",
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::machine;

    #[test]
    fn a_quick_study_has_the_published_cells_and_a_whole_one_varies_the_rest_one_at_a_time() {
        let quick = cases(&machine(), Effort::Quick);
        assert_eq!(quick.len(), 3 * 12);
        assert!(quick.iter().all(|case| BUFFER.of(case) == Some(512) && Reply::of(case) == Some(Reply::None)));
        let whole = cases(&machine(), Effort::Default);
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 3 * 15);
        assert!(whole.iter().all(|case| {
            Cell::of(case).is_ok_and(|cell| cell.sending.setup.check().is_ok() && cell.receiving.setup.check().is_ok())
        }));
    }

    #[test]
    fn a_window_is_moved_by_one_call_and_a_buffer_as_it_is_given() {
        let of =
            |sender, receiver| Cell::of(&cell(sender, receiver, (Connection::PerFile, 16)).at(Files::One)).unwrap();
        let page = page_bytes();
        let mixed = of(Sender::Mmap, Receiver::ReadWrite);
        assert_eq!((mixed.sending.setup.buffer, mixed.sending.setup.window), (16 * page, 16));
        assert_eq!(mixed.receiving.setup.buffer, 512);
        assert_eq!(of(Sender::ReadWrite, Receiver::Mmap).receiving.setup.buffer, 16 * page);
    }

    #[test]
    fn a_round_moves_its_trials_and_the_small_set_once_more() {
        let of = |set: Files| bytes_of_a_round(&Case::new().at(set));
        assert_eq!([of(Files::Small), of(Files::Large)], [11 * 24_114, 364_344_508 + 24_114]);
        assert_eq!(bytes_of_a_round(&Case::new()), 0);
    }
}
