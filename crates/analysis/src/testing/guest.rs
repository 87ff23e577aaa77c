//! A default run of a virtual machine, much shortened: the figures that its first screen shows, as an Intel guest of 2 CPUs had them.

use kelvin_core::catalogue::PairPlacement::{SameCpu, TwoCpus};
use kelvin_core::catalogue::cpu::{self, BusyCpus};
use kelvin_core::catalogue::file::{self, AccessOrder, CacheState, FlushMethod, SyncPolicy, WritePosition};
use kelvin_core::catalogue::mem::{self, BYTES, FaultPage, MemoryCpus, PageSize};
use kelvin_core::catalogue::net;
use kelvin_core::catalogue::os::{self, HandoffMechanism, NullCall};
use kelvin_core::{
    Cache, CacheKind, Case, Fact, Hazard, Machine, Metric, Prediction, PredictionBasis, PredictionRecord, Readings,
    RoundOutcome, Run, SampleTags, Severity, SkipReason,
};

use super::{add_rounds, add_scalars};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A figure of the run: a metric at a case, its value in the metric's unit, and the range that is predicted, if one is.
type GuestFigure = (&'static Metric, Case, f64, Option<[f64; 2]>);

/// Rounds of each figure, as shares of it.
const ROUND_FACTORS: [f64; 8] = [0.996, 1.004, 0.999, 1.001, 1.002, 0.998, 0.995, 1.005];

/// The run.
pub fn guest_run() -> Run {
    let rows = guest_figures();
    let mut metrics: Vec<Metric> = Vec::new();
    for (metric, ..) in &rows {
        if !metrics.contains(metric) {
            metrics.push(**metric);
        }
    }
    metrics.push(mem::NODE_LATENCY);
    let mut run = super::empty_run(&metrics);
    run.header.machine = machine();
    run.header.hazards = hazards();
    run.header.settings.partner_cpu = Some(0);
    run.header.settings.rounds = ROUND_FACTORS.len() as u32;
    run.seconds = 148.0;
    for (metric, case, value, predicted) in rows {
        measure(&mut run, metric, case.clone(), value);
        if let Some([low, high]) = predicted {
            predict(&mut run, metric, case, [low, high]);
        }
    }
    add_scalars(
        &mut run,
        &mem::NODE_LATENCY,
        Case::new().with_number(mem::FROM_NODE, 0).with_number(mem::TO_NODE, 0),
        &[],
    );
    let nodes = run.measurements.last_mut().expect("one was added");
    nodes.skipped = Some(SkipReason::new("needs two NUMA nodes; this machine shows one"));
    run
}

/// Measures a figure in eight rounds around its value.
pub fn measure(run: &mut Run, metric: &Metric, case: Case, value: f64) {
    add_scalars(run, metric, case, &ROUND_FACTORS.map(|share| share * value));
}

/// Replaces a figure by another value, measured as often.
pub fn replace(run: &mut Run, metric: &Metric, case: &Case, value: f64) {
    remove(run, metric, case);
    measure(run, metric, case.clone(), value);
}

/// The run where loads from L1 and system calls are never left alone: they take 2.7 and 131 ns.
pub fn disturbed_run() -> Run {
    let mut run = guest_run();
    disturb(&mut run, &os::SYSCALL_NULL, &Case::new().with_word(NullCall::Getppid), 131.0);
    disturb(&mut run, &cpu::LATENCY_LOAD, &Case::new(), 2.7);
    run
}

/// Replaces a duration by another value, measured as often in samples of which none was left alone.
fn disturb(run: &mut Run, metric: &Metric, case: &Case, value: f64) {
    remove(run, metric, case);
    add_rounds(run, metric, case.clone(), &ROUND_FACTORS.map(|share| vec![share * value; 20]));
    for round in run.measurements.last_mut().into_iter().flat_map(|measurement| &mut measurement.rounds) {
        let RoundOutcome::Measured(readings) = &mut round.outcome else { continue };
        for reading in readings {
            let Readings::Batches(batches) = &mut reading.readings else { continue };
            batches.tags.fill(SampleTags::PREEMPTED);
        }
    }
}

fn remove(run: &mut Run, metric: &Metric, case: &Case) {
    run.measurements
        .retain(|measurement| measurement.planned.metrics != [metric.id] || measurement.planned.case != *case);
}

fn predict(run: &mut Run, metric: &Metric, case: Case, [low, high]: [f64; 2]) {
    let prediction = Prediction {
        value: (low * high).sqrt(),
        low,
        high,
        basis: PredictionBasis::Derived,
        formula: "lower metrics".into(),
        inputs: Vec::new(),
        derivation: "from lower metrics".into(),
        sources: Vec::new(),
        calibration: None,
        formula_name: "a test".into(),
        ceiling: None,
    };
    run.predictions.push(PredictionRecord {
        metric: metric.id,
        case,
        prediction: Some(prediction),
        missing_reason: None,
    });
}

/// The cases that the tests change.
pub mod cases {
    use super::*;

    /// A remote wake-up.
    pub fn wake_up() -> Case {
        Case::new().with_word(HandoffMechanism::Pipe)
    }

    /// A fault of a base page.
    pub fn fault() -> Case {
        Case::new().with_word(FaultPage::Anonymous)
    }

    /// A message of a stream, and both its ends.
    pub fn streams(placement: kelvin_core::catalogue::PairPlacement, streams: u64) -> Case {
        Case::new().with_word(placement).with_number(net::MESSAGE, 64 * KIB).with_number(net::STREAMS, streams)
    }
}

fn guest_figures() -> Vec<GuestFigure> {
    let empty_case = Case::new;
    let one_cpu = || Case::new().with_word(SameCpu);
    let two_cpus = || Case::new().with_word(TwoCpus);
    let mut rows: Vec<GuestFigure> = vec![
        (&cpu::FREQUENCY, Case::new().with_word(BusyCpus::One), 3.592e9, Some([2.6e9, 4.2e9])),
        (&cpu::LATENCY_LOAD, empty_case(), 1.3923, Some([1.33, 1.46])),
        (&os::SYSCALL_NULL, Case::new().with_word(NullCall::Getppid), 84.35, Some([51.4, 79.9])),
        (&mem::FAULT_MINOR, cases::fault(), 755.0, Some([640.0, 1010.0])),
        (&mem::FAULT_MINOR, Case::new().with_word(FaultPage::Huge), 56_700.0, None),
        (&os::SWITCH_COST, HandoffMechanism::Pipe.between_processes(), 748.5, Some([640.0, 1070.0])),
        (&os::SWITCH_CROSS_CPU, cases::wake_up(), 29_200.0, None),
        (&os::SIGNAL_DELIVER, empty_case(), 991.0, None),
        (&os::THREAD_CREATE, empty_case(), 3_440.0, Some([2_800.0, 4_100.0])),
        (&os::PROCESS_FORK, empty_case(), 25_400.0, Some([11_000.0, 22_000.0])),
        (&os::PROCESS_EXEC, empty_case(), 772_000.0, None),
        (&os::IPC_LATENCY, one_cpu().with_word(HandoffMechanism::Pipe), 2_050.0, Some([1_700.0, 2_660.0])),
        (&os::IPC_LATENCY, two_cpus().with_word(HandoffMechanism::Pipe), 55_400.0, None),
        (
            &os::IPC_BANDWIDTH,
            one_cpu().with_word(HandoffMechanism::Pipe).with_number(os::MESSAGE, 64 * KIB),
            8.27e9,
            None,
        ),
        (
            &os::IPC_BANDWIDTH,
            two_cpus().with_word(HandoffMechanism::Pipe).with_number(os::MESSAGE, 64 * KIB),
            0.62e9,
            None,
        ),
        (&mem::CORE_TO_CORE, Case::new().with_number(mem::FROM_CPU, 0).with_number(mem::TO_CPU, 1), 67.1, None),
        (&file::DEVICE_READ, empty_case(), 2.34e9, None),
        (&file::DEVICE_WRITE, empty_case(), 3.41e9, None),
        (&file::DEVICE_REQUESTS, empty_case(), 135e3, None),
        (&file::DEVICE_LATENCY, empty_case(), 58_700.0, None),
        (&file::DEVICE_REPEAT_READ, empty_case(), 0.994, None),
        (&file::BLOCKSIZE_READ, cached_reads(4 * KIB), 6.95e9, Some([6.0e9, 8.5e9])),
        (&file::BLOCKSIZE_READ, cached_reads(MIB), 8.93e9, None),
        (
            &file::BLOCKSIZE_WRITE,
            Case::new().with_word(SyncPolicy::Buffered).with_number(file::BLOCK, MIB),
            7.04e9,
            None,
        ),
        (
            &file::READ_ORDER,
            Case::new().with_word(AccessOrder::Random).with_word(CacheState::Direct).with_number(file::BYTES, 16 * MIB),
            59_600.0,
            Some([49_000.0, 71_000.0]),
        ),
        (
            &file::SYNC_WRITE,
            Case::new().with_word(FlushMethod::Fsync).with_word(WritePosition::InPlace),
            106_000.0,
            None,
        ),
        (&net::RTT_TCP, one_cpu().with_number(net::MESSAGE, 64), 4_740.0, Some([3_600.0, 4_900.0])),
        (&net::RTT_TCP, two_cpus().with_number(net::MESSAGE, 64), 62_400.0, Some([20_000.0, 41_000.0])),
        (&net::CONNECT, one_cpu(), 8_700.0, Some([6_200.0, 10_400.0])),
        (&net::BANDWIDTH_TCP, cases::streams(SameCpu, 1), 9.3e9, None),
        (&net::BANDWIDTH_TCP, cases::streams(TwoCpus, 1), 8.6e9, None),
        (&net::BANDWIDTH_TCP, cases::streams(SameCpu, 2), 17.7e9, None),
        (&net::BANDWIDTH_TCP, cases::streams(TwoCpus, 2), 7.9e9, None),
    ];
    let memory: [(&Metric, MemoryCpus, f64); 6] = [
        (&mem::BANDWIDTH_READ, MemoryCpus::One, 18.6e9),
        (&mem::BANDWIDTH_COPY, MemoryCpus::One, 25.0e9),
        (&mem::BANDWIDTH_FILL, MemoryCpus::One, 24.6e9),
        (&mem::BANDWIDTH_READ, MemoryCpus::All, 34.2e9),
        (&mem::BANDWIDTH_COPY, MemoryCpus::All, 44.9e9),
        (&mem::BANDWIDTH_FILL, MemoryCpus::All, 46.7e9),
    ];
    rows.extend(memory.map(|(metric, cpus, rate)| {
        let row: GuestFigure = (metric, Case::new().with_word(cpus).with_number(BYTES, 960 * MIB), rate, None);
        row
    }));
    rows.extend(LATENCIES.map(|(bytes, latency)| {
        let row: GuestFigure =
            (&mem::LATENCY, Case::new().with_word(PageSize::Base).with_number(BYTES, bytes), latency, None);
        row
    }));
    rows
}

fn cached_reads(block: u64) -> Case {
    Case::new().with_word(CacheState::Cached).with_number(file::BLOCK, block)
}

/// Working sets with their latencies: 48 KiB, 2 MiB and 8 to 16 MiB of caches, then memory.
const LATENCIES: [(u64, f64); 17] = [
    (16 * KIB, 1.39),
    (32 * KIB, 1.39),
    (48 * KIB, 1.40),
    (96 * KIB, 4.43),
    (256 * KIB, 4.45),
    (512 * KIB, 4.46),
    (MIB, 4.60),
    (3 * MIB, 30.0),
    (4 * MIB, 35.5),
    (6 * MIB, 36.2),
    (8 * MIB, 38.0),
    (16 * MIB, 110.0),
    (32 * MIB, 165.0),
    (64 * MIB, 170.0),
    (96 * MIB, 171.0),
    (192 * MIB, 176.0),
    (960 * MIB, 180.0),
];

fn machine() -> Machine {
    let source = "a made-up machine";
    let mut machine = Machine::default();
    let cache = |level: u32, bytes: u64| {
        let kind = if level == 1 { CacheKind::Data } else { CacheKind::Unified };
        Cache { level, kind, bytes, ways: None, line_bytes: Some(64), shared_by: vec![0, 1] }
    };
    machine.cpu.model_name = Fact::known("Intel(R) Xeon(R) Processor".into(), source);
    machine.topology.allowed = Fact::known(vec![0, 1], source);
    machine.topology.caches = Fact::known(vec![cache(1, 48 * KIB), cache(2, 2 * MIB), cache(3, 480 * MIB)], source);
    machine.memory.total_bytes = Fact::known(24_641_536 << 10, source);
    machine.memory.page_bytes = Fact::known(4 * KIB, source);
    machine.kernel.release = Fact::known("6.18.44".into(), source);
    machine.platform.hypervisor = Fact::known(Some("KVM".into()), source);
    machine
}

fn hazards() -> Vec<Hazard> {
    let hazard = |id: &'static str, severity, summary: &str, remedy: Option<&str>| Hazard {
        id: id.into(),
        severity,
        summary: summary.into(),
        effect: "figures of the machine change meanwhile".into(),
        affects: Vec::new(),
        remedy: remedy.map(Into::into),
        remedy_is_command: remedy.is_some_and(|text| text.starts_with("sudo ")),
        source: "a made-up machine".into(),
    };
    vec![
        hazard("virtual_machine", Severity::Warning, "this is a virtual machine on KVM", None),
        hazard(
            "damon",
            Severity::Warning,
            "idle memory is reclaimed proactively (DAMON)",
            Some("sudo kelvin tune --apply"),
        ),
        hazard(
            "load",
            Severity::Warning,
            "the load average of the last minute is 1.90 on 2 CPUs",
            Some("find the other work with top, stop it, and wait until the load falls"),
        ),
        hazard("mitigations", Severity::Note, "mitigations in force: spectre_v1", Some("boot with mitigations=off")),
    ]
}
