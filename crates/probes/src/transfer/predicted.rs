//! The predictions of a transfer: the unit costs of [`super::expected`] as this run measured them, and words for the result.

use kelvin_catalogue::Placement;
use kelvin_catalogue::file::{BLOCK, DirectoryCount, ENGINES, FILES, FilledBy, METADATA_OPEN, NEW, ReadEngine};
use kelvin_catalogue::mem::{CORE_TO_CORE, FAULT_MINOR, FaultPage};
use kelvin_catalogue::net::{
    self, BANDWIDTH_TCP_WAY, CLOSE, CONNECT, MESSAGE, RTT_TCP, STACK_TCP, STREAM_TCP, STREAM_TCP_RECEIVE, WAKE_TCP,
};
use kelvin_catalogue::os::{SWITCH_CROSS_CPU, SYSCALL_MMAP_MUNMAP, TokenMeans};
use kelvin_catalogue::transfer::{
    RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_FAULTS, SENDER_CALLS, SENDER_CPU, SENDER_FAULTS, TIME,
};
use kelvin_harness::Facts;
use kelvin_model::units::plain;
use kelvin_model::{Basis, Case, Input, Metric, NoPrediction, Prediction, Unit};
use kelvin_transfer::moving::{Mode, ReceiveMethod, SendMethod};

use super::cells::Cell;
use super::expected::{Costs, Curve, Expected, Grown, Transfer};
use super::files::split;
use crate::file::new::{self, filled};
use crate::memory::{core_to_core, fault};
use crate::predict::Predicting;

/// The probes that measure the costs.
pub(super) const INPUTS: &[&str] = &[
    CONNECT.id.as_str(),
    SWITCH_CROSS_CPU.id.as_str(),
    WAKE_TCP.id.as_str(),
    RTT_TCP.id.as_str(),
    STACK_TCP.id.as_str(),
    STREAM_TCP.id.as_str(),
    BANDWIDTH_TCP_WAY.id.as_str(),
    CORE_TO_CORE.id.as_str(),
    FAULT_MINOR.id.as_str(),
    SYSCALL_MMAP_MUNMAP.id.as_str(),
    kelvin_catalogue::file::METADATA.as_str(),
    ENGINES.id.as_str(),
    NEW.id.as_str(),
];

/// The predicted range as a factor either way: of transfers each of whose steps is measured, of the CPU time of one end of those (of
/// which more depends on which end does the kernel's work), and of others: methods that are
/// predicted by what is most like them, and transfers so short that most of their steps are first ones, which no cache holds, and a
/// wake-up or two more make half of the time.
const FACTOR: f64 = 1.35;
const FACTOR_OF_CPU: f64 = 1.5;
const FACTOR_OF_OTHERS: f64 = 2.0;
const SHORT: f64 = 1e6;
const FILL_BUFFERS: &str =
    "Intel 64 and IA-32 Architectures Optimization Reference Manual: 10 line fill buffers, from Nehalem to Skylake";
/// What the kernel knows of CPU time between two of its timer ticks is too little for less than some of them.
const TICKS: f64 = 10e6;
/// Tolerance of a count, for what is not the transfer's own: a page that is faulted in twice, an interrupted call.
const COUNTED: f64 = 1.1;

/// Why there is none for an end in the kernel.
const IN_KERNEL: &str = "what a call of the kernel module costs is in no lower metric";

/// Message sizes of net.stream.tcp.
const MESSAGES: [u64; 3] = [64, 4 << 10, 64 << 10];
/// Requests of file.engines that show the cost of a call and of a byte.
const REQUESTS: [u64; 5] = [100, 1000, 4096, 64 << 10, 1 << 20];
/// The request of file.engines that every run measures for all engines.
const BETWEEN: u64 = 10_000;
/// The message of net.bandwidth.tcp.way that every run measures.
const WAY_MESSAGE: u64 = 64 << 10;

/// The prediction of a metric of a cell.
pub(super) fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let cell = Cell::of(case).map_err(|_| NoPrediction::because(format!("there is no formula for the case {case}")))?;
    let lengths = split(cell.set);
    let (sending, receiving) = cell.of_processes().ok_or_else(|| NoPrediction::because(IN_KERNEL))?;
    let transfer = Transfer { lengths: &lengths, sending, receiving };
    if let Some(counted) = counted(&transfer, metric) {
        return counted;
    }
    let (costs, inputs) = Asked::of(facts, &transfer)?;
    let expected = transfer.expected(&costs);
    let bytes: u64 = lengths.iter().sum();
    let (value, unit) = match () {
        () if *metric == TIME => (expected.time, Unit::Nanoseconds),
        () if *metric == RATE => (bytes as f64 * 1e9 / expected.time, Unit::BytesPerSecond),
        () if *metric == SENDER_CPU => (of_cpu(expected.sender)?, Unit::Nanoseconds),
        () if *metric == RECEIVER_CPU => (of_cpu(expected.receiver)?, Unit::Nanoseconds),
        () => {
            return Err(NoPrediction::because(
                "when the scheduler switches, and what is written back meanwhile, is in no lower metric",
            ));
        }
    };
    let is_time = [TIME, RATE].contains(metric);
    let (factor, name) = match is_measured_step_by_step(&transfer) && expected.time >= SHORT {
        true if is_time => (FACTOR, "measured steps"),
        true => (FACTOR_OF_CPU, "measured steps"),
        false => (FACTOR_OF_OTHERS, "other steps"),
    };
    let predicting =
        Predicting::within_factor(Basis::Derived, value, factor).formula(name, FORMULA).source(FILL_BUFFERS);
    let derivation = format!("{}; {}", derivation(&expected), plain(value, unit));
    Ok(predicting.inputs(inputs).derived_as(derivation))
}

const FORMULA: &str = "connecting + waking the receiver and clearing buffers + the longer of (sender: files x (open + packet) + calls x (read + send), or \
                       windows + faults + bytes; and a wake for each segment where it is the slower end) and (receiver: new files \
                       + calls x receive), either with cache lines from the other CPU + the other end's part of a segment";

fn derivation(expected: &Expected) -> String {
    let time = |nanoseconds| plain(nanoseconds, Unit::Nanoseconds);
    let Expected { sender, receiver, wakes, alone, time: all } = *expected;
    format!(
        "{} that do not overlap + the longer of {} at the sender, with {wakes:.0} wakes within the stream, and {} at the receiver = {}",
        time(alone),
        time(sender),
        time(receiver),
        time(all)
    )
}

/// A CPU time that the kernel's accounting can show.
fn of_cpu(nanoseconds: f64) -> Result<f64, NoPrediction> {
    if nanoseconds >= TICKS {
        return Ok(nanoseconds);
    }
    Err(NoPrediction::because("it is shorter than a few of the timer ticks by which the kernel accounts for CPU time"))
}

/// The prediction of a count; `None` for another metric.
fn counted(transfer: &Transfer<'_>, metric: &Metric) -> Option<Result<Prediction, NoPrediction>> {
    let unknown = "how many calls it takes is not fixed by this method in this mode";
    let unmapped = "the method maps no file: there should be none";
    let (range, none, formula) = match () {
        () if *metric == SENDER_CALLS => (
            transfer.sender_calls().map(|calls| (calls, calls)),
            unknown,
            "the calls of the method for the bytes of each file, and framing",
        ),
        () if *metric == RECEIVER_CALLS => {
            (transfer.receiver_calls(), unknown, "the calls of the method, and more for what is left of a segment")
        }
        () if *metric == SENDER_FAULTS => {
            (transfer.sender_faults(), unmapped, "between one for each window and one for each 16 pages")
        }
        () if *metric == RECEIVER_FAULTS => (
            transfer.receiver_pages().map(|pages| (pages / 2.0, pages)),
            unmapped,
            "one for each page, or fewer where the kernel maps its neighbours too",
        ),
        () => return None,
    };
    Some(range.map(|range| count(transfer, range, formula)).ok_or_else(|| NoPrediction::because(none)))
}

/// A count between two, the one that the method fixes first.
fn count(transfer: &Transfer<'_>, (least, most): (f64, f64), formula: &'static str) -> Prediction {
    let (files, bytes) = (transfer.lengths.len(), transfer.lengths.iter().sum::<u64>());
    let value = if formula.starts_with("one") { most } else { least };
    Predicting::between(
        Basis::Derived,
        value,
        least - 0.5,
        (most + 0.5).max(most * if least < most { COUNTED } else { 1.0 }),
    )
    .formula(formula, formula)
    .constant("files", files as f64, Unit::Count, "the data set")
    .constant("bytes", bytes as f64, Unit::Bytes, "the data set")
    .derived_as(format!("{least:.0} to {most:.0} for {files} files of {bytes} B together"))
}

/// Whether each step of both ends is measured by itself.
fn is_measured_step_by_step(transfer: &Transfer<'_>) -> bool {
    let (sending, receiving) = (transfer.sending.setup, transfer.receiving.setup);
    let is_ring = sending.mode == Mode::Uring || receiving.mode == Mode::Uring;
    matches!(sending.method, SendMethod::ReadWrite | SendMethod::Mmap)
        && receiving.method != ReceiveMethod::Uring
        && !is_ring
}

/// Inputs that were asked for, each once.
struct Asked<'a, 'f> {
    facts: &'a Facts<'f>,
    inputs: Vec<Input>,
}

impl<'a, 'f> Asked<'a, 'f> {
    /// The costs that a transfer may meet, and the inputs that they rest on.
    fn of(facts: &'a Facts<'f>, transfer: &Transfer<'_>) -> Result<(Costs, Vec<Input>), NoPrediction> {
        let mut asked = Self { facts, inputs: Vec::new() };
        let costs = asked.costs(transfer)?;
        Ok((costs, asked.inputs))
    }

    fn get(&mut self, metric: &Metric, case: Case) -> Result<f64, NoPrediction> {
        let input = self.facts.measured(metric, &case)?;
        let value = input.value;
        if self.inputs.iter().all(|known| known.name != input.name) {
            self.inputs.push(input);
        }
        Ok(value)
    }

    fn costs(&mut self, transfer: &Transfer<'_>) -> Result<Costs, NoPrediction> {
        let small = || Case::new().with(MESSAGE, MESSAGES[0]);
        let one_cpu = || Case::new().at(Placement::SameCpu);
        let send = self.messages(&STREAM_TCP)?;
        let (create, block) = self.blocks()?;
        Ok(Costs {
            connect: self.get(&CONNECT, Case::new().at(Placement::TwoCpus))?,
            reconnect: self.get(&CONNECT, one_cpu())? + self.get(&CLOSE, one_cpu())?,
            wake: self.get(&SWITCH_CROSS_CPU, Case::new().at(TokenMeans::Futex))?,
            waking: (self.get(&WAKE_TCP, Case::new())? - send.at(0.0)).max(0.0),
            round_trip: self.get(&RTT_TCP, small().at(Placement::TwoCpus))?,
            open: self.get(&METADATA_OPEN, Case::new().with(FILES, 1000).at(DirectoryCount::One))?,
            packet: self.get(&STACK_TCP, small())?,
            receive: self.messages(&STREAM_TCP_RECEIVE)?,
            line: self.line()?,
            read: self.reads()?,
            from_memory: self.engine(ReadEngine::Mmap, BETWEEN)? / BETWEEN as f64,
            window: self.get(&SYSCALL_MMAP_MUNMAP, Case::new())?,
            fault: self.get(&FAULT_MINOR, Case::new().at(FaultPage::FileAround))?,
            written_window: self.written_window()?,
            grown: self.grown()?,
            cleared: self.cleared()?,
            mapped: self.mapped()?,
            mapped_window: new::WINDOW as f64,
            referred: self.referred(transfer.sending.setup.method)?,
            request: self.request(transfer.sending.setup.mode)?,
            send,
            create,
            block,
        })
    }

    fn messages(&mut self, metric: &Metric) -> Result<Curve, NoPrediction> {
        let of = |&bytes: &u64| Ok((bytes as f64, self.get(metric, Case::new().with(MESSAGE, bytes))?));
        Ok(Curve::through(MESSAGES.iter().map(of).collect::<Result<_, NoPrediction>>()?))
    }

    /// A line from the other CPU.
    fn line(&mut self) -> Result<f64, NoPrediction> {
        self.get(&CORE_TO_CORE, core_to_core::of_every_run(self.facts.machine()))
    }

    /// A byte of a buffer that is cleared: by the kernel when it is first touched, or by the allocator when it is used again.
    fn cleared(&mut self) -> Result<f64, NoPrediction> {
        let (page, bytes) = fault::cleared_page(self.facts.machine());
        Ok(self.get(&FAULT_MINOR, page)? / bytes as f64)
    }

    /// What each window of 64 KiB of a new file takes longer than its part of one of 1 MiB.
    fn written_window(&mut self) -> Result<f64, NoPrediction> {
        let of = |window: u64| (new::MIDDLE / window) as f64;
        let small = self.made(FilledBy::MmapRandom, new::SMALL_WINDOW, new::MIDDLE)?;
        let large = self.made(FilledBy::MmapRandom, new::WINDOW, new::MIDDLE)?;
        Ok((small - large).max(0.0) / (of(new::SMALL_WINDOW) - of(new::WINDOW)))
    }

    fn engine(&mut self, engine: ReadEngine, bytes: u64) -> Result<f64, NoPrediction> {
        self.get(&ENGINES, Case::new().at(engine).with(BLOCK, bytes))
    }

    fn reads(&mut self) -> Result<Curve, NoPrediction> {
        let of = |&bytes: &u64| Ok((bytes as f64, self.engine(ReadEngine::Pread, bytes)?));
        Ok(Curve::through(REQUESTS.iter().map(of).collect::<Result<_, NoPrediction>>()?))
    }

    fn made(&mut self, by: FilledBy, block: u64, bytes: u64) -> Result<f64, NoPrediction> {
        self.get(&NEW, filled(by, block, bytes))
    }

    /// Creating and closing a file, which is what a small one takes beyond its block; and blocks.
    fn blocks(&mut self) -> Result<(f64, Curve), NoPrediction> {
        let small = self.made(FilledBy::Write, new::SMALL, new::SMALL)?;
        let of = |&block: &u64| {
            let blocks = new::MIDDLE / block;
            Ok((block as f64, self.made(FilledBy::Write, block, new::MIDDLE)? / blocks as f64))
        };
        let block = Curve::through(new::BLOCKS.iter().map(of).collect::<Result<_, NoPrediction>>()?);
        Ok(((small - block.at(new::SMALL as f64)).max(0.0), block))
    }

    /// What blocks of a long file take longer; one of no bytes takes no longer.
    fn grown(&mut self) -> Result<Grown, NoPrediction> {
        let mut more = vec![(0.0, 0.0)];
        for block in new::GROWN {
            let mut each = |bytes: u64| Ok(self.made(FilledBy::Write, block, bytes)? * block as f64 / bytes as f64);
            let (short, long) = (each(new::MIDDLE)?, each(new::LARGE)?);
            more.push((block as f64, (long - short).max(0.0)));
        }
        Ok(Grown { lengths: [new::MIDDLE, new::LARGE].map(|bytes| bytes as f64), more: Curve::through(more) })
    }

    fn mapped(&mut self) -> Result<Curve, NoPrediction> {
        let of = |bytes: u64| Ok((bytes as f64, self.made(FilledBy::MmapRandom, new::WINDOW, bytes)?));
        Ok(Curve::through(
            [new::SMALL, new::MIDDLE, new::LARGE].map(of).into_iter().collect::<Result<_, NoPrediction>>()?,
        ))
    }

    /// A byte of a stream that is sent so, which a receiver takes too.
    fn referred(&mut self, method: SendMethod) -> Result<Option<f64>, NoPrediction> {
        let way = match method {
            SendMethod::Sendfile => net::SendMethod::Sendfile,
            SendMethod::Splice => net::SendMethod::Splice,
            SendMethod::ZeroCopy => net::SendMethod::ZeroCopy,
            SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Uring => return Ok(None),
        };
        let case = Case::new().with(MESSAGE, WAY_MESSAGE).at(way).at(Placement::TwoCpus);
        Ok(Some(1e9 / self.get(&BANDWIDTH_TCP_WAY, case)?))
    }

    /// What a request of a ring takes longer than the same call.
    fn request(&mut self, mode: Mode) -> Result<Option<f64>, NoPrediction> {
        if mode != Mode::Uring {
            return Ok(None);
        }
        let (ring, call) = (self.engine(ReadEngine::Uring1, BETWEEN)?, self.engine(ReadEngine::Pread, BETWEEN)?);
        Ok(Some((ring - call).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use kelvin_catalogue::transfer::{Files, Receiver, SENDER_SWITCHES, Sender, has_kernel_end};
    use kelvin_harness::{Effort, MeasuredValue};
    use kelvin_model::Fact;

    use super::*;
    use crate::testing::machine;
    use crate::transfer::cells::hot;

    /// The cells without an end in the kernel.
    fn of_processes(effort: Effort) -> Vec<Case> {
        hot(effort).into_iter().filter(|case| !has_kernel_end(case)).collect()
    }

    #[test]
    fn an_end_in_the_kernel_has_no_prediction_and_a_reason() {
        look(|facts| {
            for case in hot(Effort::Quick).iter().filter(|case| has_kernel_end(case)) {
                let metrics = [&TIME, &RATE, &SENDER_CPU, &SENDER_CALLS, &RECEIVER_FAULTS];
                let none = |metric| predict(facts, metric, case).unwrap_err().0;
                assert!(metrics.into_iter().map(none).all(|why| why.contains("kernel module")), "{case}");
            }
        });
    }

    /// Facts in which every time is 100 ns, and every rate 10 GB/s.
    fn look<R>(look: impl FnOnce(&Facts<'_>) -> R) -> R {
        let mut machine = machine();
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        let measured = |id: &str, _: &Case| {
            let value = if BANDWIDTH_TCP_WAY.id == *id { 10e9 } else { 100.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        look(&Facts::new(&machine, &measured))
    }

    #[test]
    fn every_cell_has_a_time_and_the_rate_that_follows_from_it() {
        look(|facts| {
            for case in of_processes(Effort::Thorough) {
                let [time, rate] = [&TIME, &RATE].map(|metric| predict(facts, metric, &case).unwrap());
                let bytes: u64 = split(Cell::of(&case).unwrap().set).iter().sum();
                assert!((time.value * rate.value / 1e9 / bytes as f64 - 1.0).abs() < 1e-9, "{case}");
                let factor = time.high / time.value;
                assert!(
                    (factor - rate.high / rate.value).abs() < 1e-9
                        && [FACTOR, FACTOR_OF_OTHERS].iter().any(|one| (factor - one).abs() < 1e-9)
                );
            }
        });
    }

    #[test]
    fn counts_need_no_measurement_and_switches_are_not_predicted() {
        let nothing = machine();
        let facts = Facts::new(&nothing, &|_, _| None);
        let published = of_processes(Effort::Quick);
        for case in &published {
            let calls = predict(&facts, &SENDER_CALLS, case).unwrap();
            assert_eq!((calls.value - calls.low, calls.high - calls.value), (0.5, 0.5), "{case}");
            let is_mapped = Sender::of(case) == Some(Sender::Mmap);
            let finds_what_arrived =
                !is_mapped && Receiver::of(case) == Some(Receiver::Mmap) && Files::of(case) != Some(Files::Small);
            let received = predict(&facts, &RECEIVER_CALLS, case).map(|calls| calls.low > 0.0);
            assert_eq!(received.ok(), (!finds_what_arrived).then_some(true), "{case}");
            assert_eq!(predict(&facts, &SENDER_FAULTS, case).is_ok(), is_mapped, "{case}");
            assert!(predict(&facts, &TIME, case).is_err(), "{case}");
        }
        look(|facts| assert!(predict(facts, &SENDER_SWITCHES, &published[0]).is_err()));
    }

    #[test]
    fn a_cpu_time_of_a_few_ticks_is_none() {
        assert_eq!(of_cpu(20e6), Ok(20e6));
        assert!(of_cpu(1e6).is_err());
    }
}
