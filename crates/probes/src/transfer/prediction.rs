//! The predictions of a transfer: the unit costs of [`super::cost_model`] as this run measured them, and words for the result.

use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::file::{
    BLOCK, DirectoryCount, ENGINES, FILES, FillMethod, METADATA_OPEN, NEW_FILE, ReadEngine,
};
use kelvin_core::catalogue::mem::{CORE_TO_CORE, FAULT_MINOR, FaultPage};
use kelvin_core::catalogue::net::{
    self, BANDWIDTH_TCP_METHOD, CLOSE, CONNECT, MESSAGE, RTT_TCP, STACK_TCP, STREAM_TCP, STREAM_TCP_RECEIVE, WAKE_TCP,
};
use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_CROSS_CPU, SYSCALL_MMAP_MUNMAP};
use kelvin_core::catalogue::transfer::{
    RATE, RECEIVER_CALLS, RECEIVER_CPU, RECEIVER_FAULTS, SENDER_CALLS, SENDER_CPU, SENDER_FAULTS, TIME,
};
use kelvin_core::units::value_text;
use kelvin_transfer::datapath::{Mode, ReceiveMethod, SendMethod};

use super::cells::Cell;
use super::cost_model::{CostCurve, ExpectedTransfer, LongFileCost, TransferCosts, TransferShape};
use super::file_sets::file_lengths;
use crate::file::new_file::{self, filled_case};
use crate::memory::{core_to_core, fault};
use crate::prelude::*;

/// The predicted range as a factor either way: of transfers each of whose steps is measured; of the CPU time of one end
/// of those, of which more depends on which end does the kernel's work; and of others. Others are methods that are
/// predicted by what is most like them, and very short transfers. Most steps of these are first ones, which no cache
/// holds, and a wake-up or two more make half of the time.
const TIME_RANGE_FACTOR: f64 = 1.35;
const CPU_RANGE_FACTOR: f64 = 1.5;
const OTHER_RANGE_FACTOR: f64 = 2.0;
const SHORT_NANOSECONDS: f64 = 1e6;
const FILL_BUFFERS_TEXT: &str =
    "Intel 64 and IA-32 Architectures Optimization Reference Manual: 10 line fill buffers, from Nehalem to Skylake";
/// What the kernel knows of CPU time between two of its timer ticks is too little for less than some of them.
const MIN_CPU_NANOSECONDS: f64 = 10e6;
/// Tolerance of a count, for what is not the transfer's own: a page that is faulted in twice, an interrupted call.
const COUNT_RANGE_FACTOR: f64 = 1.1;

/// Why there is none for an end in the kernel.
const KERNEL_END_REASON: &str = "what a call of the kernel module costs is in no lower metric";

/// Message sizes of net.stream.tcp.
const MESSAGE_SIZES: [u64; 3] = [64, 4 << 10, 64 << 10];
/// Requests of file.engines that show the cost of a call and of a byte.
const REQUEST_SIZES: [u64; 5] = [100, 1000, 4096, 64 << 10, 1 << 20];
/// Files of file.new that are written through a mapping.
const FILE_SIZES: [u64; 3] = [new_file::SMALL_FILE, new_file::MIDDLE_FILE, new_file::LARGE_FILE];
/// The request of file.engines that every run measures for all engines.
const DEFAULT_REQUEST_SIZE: u64 = 10_000;
/// The message of net.bandwidth.tcp.way that every run measures.
const SEND_METHOD_MESSAGE: u64 = 64 << 10;

/// The prediction of a metric of a cell.
pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let cell = Cell::from_case(case)?;
    let lengths = file_lengths(cell.set);
    let (sending, receiving) = cell.process_ends().or_unpredicted(KERNEL_END_REASON)?;
    let transfer = TransferShape { lengths: &lengths, sending, receiving };
    if let Some(count) = predict_count(&transfer, metric) {
        return count;
    }
    let mut cost_inputs = CostInputs { facts, inputs: Expr::from(0.0) };
    let costs = cost_inputs.costs(&transfer)?;
    let inputs = cost_inputs.inputs;
    let expected = transfer.expected_transfer(&costs);
    let time = |name, nanoseconds| quantity(name, nanoseconds, Unit::Nanoseconds).with_input(&inputs);
    let bytes = quantity("bytes", lengths.iter().sum::<u64>() as f64, Unit::Bytes);
    let predicted = match () {
        () if *metric == TIME => time(FORMULA, expected.time),
        () if *metric == RATE => bytes / time(FORMULA, expected.time),
        () if *metric == SENDER_CPU => time(SENDER_FORMULA, check_cpu_time(expected.sender)?),
        () if *metric == RECEIVER_CPU => time(RECEIVER_FORMULA, check_cpu_time(expected.receiver)?),
        () => {
            return Err(NoPrediction::new(
                "when the scheduler switches, and what is written back meanwhile, is in no lower metric",
            ));
        }
    };
    let is_time = [TIME, RATE].contains(metric);
    // Whether each step of both ends is measured by itself.
    let is_measured = matches!(sending.setup.method, SendMethod::ReadWrite | SendMethod::Mmap)
        && receiving.setup.method != ReceiveMethod::Uring
        && ![sending.setup.mode, receiving.setup.mode].contains(&Mode::Uring);
    let (factor, name) = match is_measured && expected.time >= SHORT_NANOSECONDS {
        true if is_time => (TIME_RANGE_FACTOR, "measured steps"),
        true => (CPU_RANGE_FACTOR, "measured steps"),
        false => (OTHER_RANGE_FACTOR, "other steps"),
    };
    let predicted = predicted.widen(factor).source(FILL_BUFFERS_TEXT);
    Ok(predicted.explained(PredictionBasis::Derived, name, &describe_steps(&expected)))
}

const SENDER_FORMULA: &str = "files x (open + packet) + calls x (read + send), or windows + faults + bytes; and a wake for each segment \
                              where it is the slower end";
const RECEIVER_FORMULA: &str = "new files + calls x receive";
const FORMULA: &str = "connecting + waking the receiver and clearing buffers + the longer of (sender: files x (open + packet) + calls x (read + send), or \
                       windows + faults + bytes; and a wake for each segment where it is the slower end) and (receiver: new files \
                       + calls x receive), either with cache lines from the other CPU + the other end's part of a segment";

fn describe_steps(expected: &ExpectedTransfer) -> String {
    let time = |nanoseconds| value_text(nanoseconds, Unit::Nanoseconds);
    let ExpectedTransfer { sender, receiver, wakes, serial, time: total_time } = *expected;
    format!(
        "{} that do not overlap + the longer of {} at the sender, with {wakes:.0} wakes within the stream, and {} at the receiver = {}",
        time(serial),
        time(sender),
        time(receiver),
        time(total_time)
    )
}

/// A CPU time that the kernel's accounting can show.
fn check_cpu_time(nanoseconds: f64) -> Predicted<f64> {
    let reason = "it is shorter than a few of the timer ticks by which the kernel accounts for CPU time";
    unpredicted_if(nanoseconds < MIN_CPU_NANOSECONDS, reason).map(|()| nanoseconds)
}

/// The prediction of a count; `None` for another metric.
fn predict_count(transfer: &TransferShape<'_>, metric: &Metric) -> Option<Predicted> {
    let unfixed_calls = "how many calls it takes is not fixed by this method in this mode";
    let no_mapping = "the method maps no file: there should be none";
    let (range, reason, formula) = match () {
        () if *metric == SENDER_CALLS => (
            transfer.sender_calls().map(|calls| (calls, calls)),
            unfixed_calls,
            "the calls of the method for the bytes of each file, and framing",
        ),
        () if *metric == RECEIVER_CALLS => (
            transfer.receiver_calls(),
            unfixed_calls,
            "the calls of the method, and more for what is left of a segment",
        ),
        () if *metric == SENDER_FAULTS => {
            (transfer.sender_faults(), no_mapping, "between one for each window and one for each 16 pages")
        }
        () if *metric == RECEIVER_FAULTS => (
            transfer.receiver_pages().map(|pages| (pages / 2.0, pages)),
            no_mapping,
            "one for each page, or fewer where the kernel maps its neighbours too",
        ),
        () => return None,
    };
    Some(range.map(|range| count_prediction(transfer, range, formula)).or_unpredicted(reason))
}

/// A count between two, the one that the method fixes first.
fn count_prediction(transfer: &TransferShape<'_>, (minimum, maximum): (f64, f64), formula: &'static str) -> Prediction {
    let (files, bytes) = (transfer.lengths.len(), transfer.lengths.iter().sum::<u64>());
    let value = if formula.starts_with("one") { maximum } else { minimum };
    let range =
        (minimum - 0.5, (maximum + 0.5).max(maximum * if minimum < maximum { COUNT_RANGE_FACTOR } else { 1.0 }));
    let remark = format!("{minimum:.0} to {maximum:.0} for {files} files of {bytes} B together");
    quantity(formula, value, Unit::Count)
        .with_input(&fact("files", files as f64, Unit::Count, "the data set"))
        .with_input(&fact("bytes", bytes as f64, Unit::Bytes, "the data set"))
        .with_interval(range)
        .explained(PredictionBasis::Derived, formula, &remark)
}

/// Inputs that were requested.
struct CostInputs<'a, 'f> {
    facts: &'a PredictionInputs<'f>,
    inputs: Expr,
}

impl CostInputs<'_, '_> {
    fn get(&mut self, metric: &Metric, case: Case) -> Predicted<f64> {
        let input = measured(self.facts, metric, &case)?;
        self.inputs = self.inputs.clone().with_input(&input);
        Ok(input.value())
    }

    fn costs(&mut self, transfer: &TransferShape<'_>) -> Predicted<TransferCosts> {
        let small_case = || Case::new().with_number(MESSAGE, MESSAGE_SIZES[0]);
        let one_cpu = || Case::new().with_word(PairPlacement::SameCpu);
        let message = |bytes| Case::new().with_number(MESSAGE, bytes);
        let send = self.curve(&MESSAGE_SIZES, |costs, bytes| costs.get(&STREAM_TCP, message(bytes)))?;
        let (create, block) = self.block_times()?;
        // By the kernel when it is first touched, or by the allocator when it is used again.
        let (cleared_page, cleared_bytes) = fault::largest_anonymous_case(self.facts.machine());
        Ok(TransferCosts {
            connect: self.get(&CONNECT, Case::new().with_word(PairPlacement::TwoCpus))?,
            reconnect: self.get(&CONNECT, one_cpu())? + self.get(&CLOSE, one_cpu())?,
            wake: self.get(&SWITCH_CROSS_CPU, Case::new().with_word(HandoffMechanism::Futex))?,
            wake_surcharge: (self.get(&WAKE_TCP, Case::new())? - send.cost_at(0.0)).max(0.0),
            round_trip: self.get(&RTT_TCP, small_case().with_word(PairPlacement::TwoCpus))?,
            open: self.get(&METADATA_OPEN, Case::new().with_number(FILES, 1000).with_word(DirectoryCount::One))?,
            packet: self.get(&STACK_TCP, small_case())?,
            receive: self.curve(&MESSAGE_SIZES, |costs, bytes| costs.get(&STREAM_TCP_RECEIVE, message(bytes)))?,
            line: self.get(&CORE_TO_CORE, core_to_core::default_pair(self.facts.machine()))?,
            read: self.curve(&REQUEST_SIZES, |costs, bytes| costs.engine_time(ReadEngine::Pread, bytes))?,
            from_memory: self.engine_time(ReadEngine::Mmap, DEFAULT_REQUEST_SIZE)? / DEFAULT_REQUEST_SIZE as f64,
            window: self.get(&SYSCALL_MMAP_MUNMAP, Case::new())?,
            fault: self.get(&FAULT_MINOR, Case::new().with_word(FaultPage::FileAround))?,
            written_window: self.window_write_time()?,
            long_file: self.long_file_cost()?,
            clear_byte: self.get(&FAULT_MINOR, cleared_page)? / cleared_bytes as f64,
            mapped_file: self.curve(&FILE_SIZES, |costs, bytes| {
                costs.new_file_time(FillMethod::MmapRandom, new_file::MMAP_WINDOW, bytes)
            })?,
            mapped_window: new_file::MMAP_WINDOW as f64,
            byte_by_reference: self.by_reference_time(transfer.sending.setup.method)?,
            request: self.request_time(transfer.sending.setup.mode)?,
            send,
            create,
            block,
        })
    }

    /// A cost at these sizes in bytes.
    fn curve(&mut self, sizes: &[u64], cost: impl Fn(&mut Self, u64) -> Predicted<f64>) -> Predicted<CostCurve> {
        let points = sizes.iter().map(|&bytes| Ok((bytes as f64, cost(self, bytes)?)));
        Ok(CostCurve::new(points.collect::<Predicted<_>>()?))
    }

    /// What each window of 64 KiB of a new file takes longer than its part of one of 1 MiB.
    fn window_write_time(&mut self) -> Predicted<f64> {
        let window_count = |window: u64| (new_file::MIDDLE_FILE / window) as f64;
        let small_windows =
            self.new_file_time(FillMethod::MmapRandom, new_file::SMALL_MMAP_WINDOW, new_file::MIDDLE_FILE)?;
        let large_windows = self.new_file_time(FillMethod::MmapRandom, new_file::MMAP_WINDOW, new_file::MIDDLE_FILE)?;
        Ok((small_windows - large_windows).max(0.0)
            / (window_count(new_file::SMALL_MMAP_WINDOW) - window_count(new_file::MMAP_WINDOW)))
    }

    fn engine_time(&mut self, engine: ReadEngine, bytes: u64) -> Predicted<f64> {
        self.get(&ENGINES, Case::new().with_word(engine).with_number(BLOCK, bytes))
    }

    fn new_file_time(&mut self, method: FillMethod, block: u64, bytes: u64) -> Predicted<f64> {
        self.get(&NEW_FILE, filled_case(method, block, bytes))
    }

    /// Creating and closing a file, which is what a small one takes beyond its block; and blocks.
    fn block_times(&mut self) -> Predicted<(f64, CostCurve)> {
        let small_file = self.new_file_time(FillMethod::Write, new_file::SMALL_FILE, new_file::SMALL_FILE)?;
        let block = self.curve(&new_file::WRITE_BLOCKS, |costs, block| {
            let blocks = new_file::MIDDLE_FILE / block;
            Ok(costs.new_file_time(FillMethod::Write, block, new_file::MIDDLE_FILE)? / blocks as f64)
        })?;
        Ok(((small_file - block.cost_at(new_file::SMALL_FILE as f64)).max(0.0), block))
    }

    /// What blocks of a long file take longer; one of no bytes takes no longer.
    fn long_file_cost(&mut self) -> Predicted<LongFileCost> {
        let lengths = [new_file::MIDDLE_FILE, new_file::LARGE_FILE];
        let mut extra_costs = vec![(0.0, 0.0)];
        for block in new_file::LARGE_FILE_BLOCKS {
            let [short_time, long_time] = lengths.map(|bytes| {
                self.new_file_time(FillMethod::Write, block, bytes).map(|time| time * block as f64 / bytes as f64)
            });
            let short_time = short_time?;
            extra_costs.push((block as f64, (long_time? - short_time).max(0.0)));
        }
        Ok(LongFileCost { lengths: lengths.map(|bytes| bytes as f64), extra_cost: CostCurve::new(extra_costs) })
    }

    /// A byte of a stream that is sent so, which a receiver takes too.
    fn by_reference_time(&mut self, method: SendMethod) -> Predicted<Option<f64>> {
        let method = match method {
            SendMethod::Sendfile => net::SendMethod::Sendfile,
            SendMethod::Splice => net::SendMethod::Splice,
            SendMethod::ZeroCopy => net::SendMethod::ZeroCopy,
            SendMethod::ReadWrite | SendMethod::Mmap | SendMethod::Uring => return Ok(None),
        };
        let case =
            Case::new().with_number(MESSAGE, SEND_METHOD_MESSAGE).with_word(method).with_word(PairPlacement::TwoCpus);
        Ok(Some(1e9 / self.get(&BANDWIDTH_TCP_METHOD, case)?))
    }

    /// What a request of a ring takes longer than the same call.
    fn request_time(&mut self, mode: Mode) -> Predicted<Option<f64>> {
        if mode != Mode::Uring {
            return Ok(None);
        }
        let (ring, call) = (
            self.engine_time(ReadEngine::Uring1, DEFAULT_REQUEST_SIZE)?,
            self.engine_time(ReadEngine::Pread, DEFAULT_REQUEST_SIZE)?,
        );
        Ok(Some((ring - call).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::Fact;
    use kelvin_core::catalogue::transfer::{
        ReceiverMethod, SENDER_SWITCHES, SenderMethod, TransferFiles, has_kernel_end,
    };
    use kelvin_harness::{Effort, MeasuredValue};

    use super::*;
    use crate::testing::machine;
    use crate::transfer::cells::hot_cells;

    /// The cells without an end in the kernel.
    fn process_cells(effort: Effort) -> Vec<Case> {
        hot_cells(effort).into_iter().filter(|case| !has_kernel_end(case)).collect()
    }

    #[test]
    fn kernel_end_has_reason_without_prediction() {
        with_facts(|facts| {
            for case in hot_cells(Effort::Quick).iter().filter(|case| has_kernel_end(case)) {
                let metrics = [&TIME, &RATE, &SENDER_CPU, &SENDER_CALLS, &RECEIVER_FAULTS];
                let reason_of = |metric| predict(facts, metric, case).unwrap_err().0;
                assert!(metrics.into_iter().map(reason_of).all(|reason| reason.contains("kernel module")), "{case}");
            }
        });
    }

    /// Facts in which every time is 100 ns, and every rate 10 GB/s.
    fn with_facts<R>(f: impl FnOnce(&PredictionInputs<'_>) -> R) -> R {
        let mut machine = machine();
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        let measured = |id: &str, _: &Case| {
            let value = if BANDWIDTH_TCP_METHOD.id == *id { 10e9 } else { 100.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        f(&PredictionInputs::new(&machine, &measured))
    }

    #[test]
    fn every_cell_has_time_and_rate() {
        with_facts(|facts| {
            for case in process_cells(Effort::Thorough) {
                let [time, rate] = [&TIME, &RATE].map(|metric| predict(facts, metric, &case).unwrap());
                let bytes: u64 = file_lengths(Cell::from_case(&case).unwrap().set).iter().sum();
                assert!((time.value * rate.value / 1e9 / bytes as f64 - 1.0).abs() < 1e-9, "{case}");
                let factor = time.high / time.value;
                assert!(
                    (factor - rate.high / rate.value).abs() < 1e-9
                        && [TIME_RANGE_FACTOR, OTHER_RANGE_FACTOR]
                            .iter()
                            .any(|range_factor| (factor - range_factor).abs() < 1e-9)
                );
            }
        });
    }

    #[test]
    fn counts_need_no_inputs() {
        let bare_machine = machine();
        let facts = PredictionInputs::new(&bare_machine, &|_, _| None);
        let published = process_cells(Effort::Quick);
        for case in &published {
            let calls = predict(&facts, &SENDER_CALLS, case).unwrap();
            assert_eq!((calls.value - calls.low, calls.high - calls.value), (0.5, 0.5), "{case}");
            let is_mapped = SenderMethod::of(case) == Some(SenderMethod::Mmap);
            let has_partial_receives = !is_mapped
                && ReceiverMethod::of(case) == Some(ReceiverMethod::Mmap)
                && TransferFiles::of(case) != Some(TransferFiles::Small);
            let received = predict(&facts, &RECEIVER_CALLS, case).map(|calls| calls.low > 0.0);
            assert_eq!(received.ok(), (!has_partial_receives).then_some(true), "{case}");
            assert_eq!(predict(&facts, &SENDER_FAULTS, case).is_ok(), is_mapped, "{case}");
            assert!(predict(&facts, &TIME, case).is_err(), "{case}");
        }
        with_facts(|facts| assert!(predict(facts, &SENDER_SWITCHES, &published[0]).is_err()));
    }

    #[test]
    fn few_ticks_have_no_cpu_prediction() {
        assert_eq!(check_cpu_time(20e6), Ok(20e6));
        assert!(check_cpu_time(1e6).is_err());
    }
}
