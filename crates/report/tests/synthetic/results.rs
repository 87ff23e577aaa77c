//! Results of the made-up run, one of every kind.

use std::collections::BTreeMap;

use kelvin_analysis::*;
use kelvin_core::{
    Batches, Better, Canary, Case, HeadlineSamples, Input, Measurement, Metric, MetricReadings, OverheadReading,
    Prediction, PredictionBasis, Readings, Round, RoundOutcome, SampleTags, SkipReason, Unit,
};

use super::metrics as m;

/// Core frequency of the made-up machine.
const GIGAHERTZ: f64 = 4.05;

/// Repeatable noise.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number from 0 to 1 (a linear congruential generator, Knuth's MMIX constants).
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// A summary around a value, with an interval of this relative half-width.
pub fn summary(metric: &Metric, value: f64, spread: f64) -> Summary {
    let interval = |value: f64| {
        Some(Interval {
            kind: IntervalKind::Confidence,
            level: 0.95,
            lower: value * (1.0 - spread),
            upper: value * (1.0 + spread),
        })
    };
    let shifted = |relative: f64| value * (1.0 + relative * spread);
    let (best, min, max) =
        (if metric.better == Better::Higher { shifted(8.0) } else { shifted(-3.0) }, shifted(-3.0), shifted(40.0));
    Summary {
        headline: value,
        interval: interval(value),
        treatment: metric.headline,
        as_found: Figure { value: shifted(2.0), interval: interval(shifted(2.0)), n: 1800 },
        undisturbed: (metric.headline != HeadlineSamples::AsFound).then(|| Figure {
            value,
            interval: interval(value),
            n: 1278,
        }),
        undisturbed_share: 0.71,
        rounds: 6,
        failed_rounds: 0,
        round_headlines: [-0.6, 0.4, 0.1, -0.2, 0.9, -0.3].map(shifted).to_vec(),
        round_times: (0..6).map(|round| 3.0 + 24.0 * f64::from(round)).collect(),
        within_variance: (value * spread / 2.0).powi(2),
        run_interval: interval(value),
        learned_runs: 0,
        distribution: Distribution {
            is_of_batch_means: true,
            n: 1278,
            best,
            min,
            p5: shifted(-2.0),
            p25: shifted(-0.8),
            p50: value,
            p75: shifted(1.1),
            p95: shifted(6.0),
            p99: shifted(14.0),
            max,
            mean: shifted(0.7),
            std: value * spread * 1.8,
        },
        modes: Vec::new(),
        mode_unit: ModeUnit::Samples,
        effective_samples: 811.0,
        tags: vec![TagCount { tag: "preempted".into(), count: 31 }, TagCount { tag: "stolen".into(), count: 9 }],
        notes: Vec::new(),
        canary_correlations: vec![CanaryCorrelation { canary: Canary::Chain, correlation: 0.62, p: 1e-9 }],
        counters: Vec::new(),
    }
}

/// A measured result without a prediction.
fn measured_result(metric: Metric, case: Case, value: f64, spread: f64) -> MetricResult {
    MetricResult {
        probe: metric.id,
        metric,
        case,
        only_input: false,
        outcome: Outcome::Measured(Box::new(summary(&metric, value, spread))),
        cycles: (metric.cycles && metric.unit == Unit::Nanoseconds).then_some(value * GIGAHERTZ),
        prediction: None,
        no_prediction_reason: Some("no published figure for this processor".into()),
        ratio: None,
        verdict: RangeVerdict::NotPredicted,
        log_distance: None,
        class_range: None,
        explained_by: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A measured result with its prediction; predicted range 0.6 to 1.6 times the prediction.
fn predicted_result(metric: Metric, case: Case, value: f64, spread: f64, prediction: f64) -> MetricResult {
    let mut result = measured_result(metric, case, value, spread);
    result.no_prediction_reason = None;
    result.prediction = Some(predict(&metric, prediction));
    let ratio = value / prediction;
    result.ratio = Some(ratio);
    result.verdict = match ratio {
        ratio if ratio > 1.6 => RangeVerdict::Above,
        ratio if ratio < 0.6 => RangeVerdict::Below,
        _ => RangeVerdict::AsPredicted,
    };
    // Half the range's width, on logarithms.
    let half_width = (1.6f64 / 0.6).ln() / 2.0;
    result.log_distance = Some((ratio / 1.6).ln().max((0.6 / ratio).ln()).max(0.0) / half_width);
    if matches!(result.verdict, RangeVerdict::Above | RangeVerdict::Below) {
        result.explained_by = vec!["steal".into(), "smt".into()];
    }
    result
}

fn predict(metric: &Metric, value: f64) -> Prediction {
    let part = value * 0.4;
    Prediction {
        value,
        low: value * 0.6,
        high: value * 1.6,
        basis: PredictionBasis::Derived,
        formula: "base + work / rate".into(),
        inputs: vec![
            Input { name: "os.syscall.null".into(), value: part, unit: metric.unit, source: "measured".into() },
            Input {
                name: "work".into(),
                value: value - part,
                unit: metric.unit,
                source: "uops.info, Zen 5, retrieved table".into(),
            },
        ],
        derivation: format!("{part:.1} base + {:.1} work = {value:.1}", value - part),
        sources: vec!["Agner Fog, Instruction tables".into()],
        calibration: None,
        formula_name: Default::default(),
        ceiling: None,
    }
}

fn without_number(metric: Metric, case: Case, outcome: Outcome) -> MetricResult {
    let mut result = measured_result(metric, case, 1.0, 0.01);
    result.outcome = outcome;
    result.cycles = None;
    result.verdict = RangeVerdict::NotMeasured;
    result
}

/// All results, in the order of the plan.
pub fn all_results() -> Vec<MetricResult> {
    let mut results = cpu();
    results.extend(os());
    results.extend(memory());
    results.extend(threads());
    results
}

fn cpu() -> Vec<MetricResult> {
    let mut results = vec![
        predicted_result(m::CLOCK_PAIR, Case::new(), 17.4, 0.004, 16.0),
        measured_result(m::FREQUENCY, Case::new(), 4.05e9, 0.001),
        predicted_result(m::LOOP, Case::new(), 0.2471, 0.002, 0.2469),
    ];
    for (via, extra) in [("direct", 0.0), ("indirect", 0.24), ("plt", 0.49)] {
        for arguments in 0..=7u64 {
            let value = 1.48 + extra + 0.17 * arguments as f64 + if arguments == 7 { 0.5 } else { 0.0 };
            let case = Case::new()
                .with_number("arguments", arguments)
                .with_word(kelvin_core::AxisWord::from_names("via", via));
            let mut result = predicted_result(m::CALL_ARGS, case, value, 0.006, 1.45 + extra + 0.18 * arguments as f64);
            if via == "plt" && arguments == 3 {
                result.warnings.push(Warning::new(WarningKind::Drift, "rose by 3.1 % over the run".into()));
            }
            results.push(result);
        }
    }
    results
}

fn os() -> Vec<MetricResult> {
    let mut results = vec![
        predicted_result(
            m::SYSCALL_NULL,
            Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid")),
            61.23,
            0.007,
            57.8,
        ),
        predicted_result(
            m::SYSCALL_NULL,
            Case::new().with_word(kelvin_core::AxisWord::from_names("call", "gettid")),
            58.9,
            0.009,
            57.8,
        ),
        predicted_result(m::SYSCALL_READ, Case::new(), 103.4, 0.012, 88.0),
        predicted_result(m::SYSCALL_STAT, Case::new(), 612.0, 0.02, 380.0),
    ];
    let null = &mut results[0];
    null.warnings.push(Warning::new(WarningKind::HalvesDiffer, "the halves of the run differ by 1.8 %".into()));
    if let Outcome::Measured(summary) = &mut null.outcome {
        summary.notes = vec!["strace-like counting: 1,000,000 calls for 1,000,000 iterations".into()];
        summary.modes =
            vec![Mode { center: 61.1, share: 0.83, level: None }, Mode { center: 71.9, share: 0.17, level: None }];
    }
    results.extend(processes());
    results.extend(switches());
    results.push(predicted_result(m::SIGNAL, Case::new(), 812.0, 0.02, 700.0));
    let mut timer = measured_result(m::TIMER, Case::new(), 54_312.0, 0.08);
    let text = "half-width 8.0 % after 20 rounds; the target is 2 %".into();
    timer.warnings.push(Warning::new(WarningKind::WideInterval { share: 0.08, target: 0.02 }, text));
    if let Outcome::Measured(summary) = &mut timer.outcome {
        summary.distribution.is_of_batch_means = false;
        summary.distribution.max = 3_912_443.0;
    }
    results.push(timer);
    results.push(predicted_result(m::PIPE_RATE, Case::new(), 4.123e9, 0.015, 3.9e9));
    for (kind, factor) in [("threads", 1.0), ("processes", 1.004)] {
        for tasks in 1..=4u64 {
            let ideal = 1e9 / tasks.min(2) as f64;
            let value = factor * if tasks == 1 { ideal } else { 1.16 * ideal };
            results.push(predicted_result(
                m::TASKS,
                Case::new().with_number("tasks", tasks).with_word(kelvin_core::AxisWord::from_names("kind", kind)),
                value,
                0.02,
                ideal,
            ));
        }
    }
    results
}

fn processes() -> Vec<MetricResult> {
    let mut results = vec![predicted_result(m::FORK, Case::new(), 48_312.0, 0.013, 52_000.0)];
    let mut vfork = measured_result(m::VFORK, Case::new(), 31_412.0, 0.21);
    vfork.warnings.push(Warning::new(WarningKind::Modes, "two modes, 27.1 µs (62 %) and 38.4 µs (38 %)".into()));
    if let Outcome::Measured(summary) = &mut vfork.outcome {
        summary.modes = vec![
            Mode { center: 27_100.0, share: 0.62, level: None },
            Mode { center: 38_400.0, share: 0.38, level: None },
        ];
        summary.interval = Some(Interval { kind: IntervalKind::Range, level: 1.0, lower: 27_900.0, upper: 38_100.0 });
        summary.rounds = 3;
    }
    results.push(vfork);
    results.push(without_number(m::EXEC, Case::new(), Outcome::Failed("round 0: exec of /bin/true: EACCES".into())));
    for (pages, per_mebibyte) in [("4k", 41_300.0), ("huge", 310.0)] {
        for shift in [20u32, 22, 24, 26, 28, 30] {
            let bytes = 1u64 << shift;
            let mebibytes = (bytes >> 20) as f64;
            let case =
                Case::new().with_number("bytes", bytes).with_word(kelvin_core::AxisWord::from_names("pages", pages));
            if shift == 30 && pages == "huge" {
                let reason = SkipReason::new("needs 512 free huge pages, 12 are free; see `kelvin tune`");
                results.push(without_number(m::FORK_RSS, case, Outcome::Skipped(reason)));
                continue;
            }
            let value = 47_000.0 + per_mebibyte * mebibytes;
            results.push(predicted_result(m::FORK_RSS, case, value, 0.03, 52_000.0 + 0.8 * per_mebibyte * mebibytes));
        }
    }
    results.push(predicted_result(m::THREAD, Case::new(), 8_410.0, 0.016, 9_100.0));
    results
}

fn task_case(task: &'static str) -> Case {
    Case::new().with_word(kelvin_core::AxisWord::from_names("task", task))
}

fn switches() -> Vec<MetricResult> {
    let mut pipe = predicted_result(m::SWITCH, task_case("process"), 1_534.0, 0.026, 800.0);
    pipe.warnings.push(Warning::new(WarningKind::Disturbed, "only 29 % of the batches were undisturbed".into()));
    if let Outcome::Measured(summary) = &mut pipe.outcome {
        summary.undisturbed_share = 0.29;
        summary.notes = vec!["counters: 2.000 voluntary switches for each round trip".into()];
    }
    let disturbed_summary = summary(&m::SWITCH, 1_390.0, 0.09);
    let mut thread = without_number(
        m::SWITCH,
        task_case("thread"),
        Outcome::NotKnown(Box::new(Summary { undisturbed_share: 0.02, undisturbed: None, ..disturbed_summary })),
    );
    thread.prediction = Some(predict(&m::SWITCH, 760.0));
    thread.no_prediction_reason = None;
    let mut cross = measured_result(m::SWITCH_CROSS, Case::new(), 4_812.0, 0.06);
    cross.no_prediction_reason =
        Some("no sound formula: the cost of an interrupt under this hypervisor is not published".into());
    let mut results = vec![pipe, thread, cross];
    for bytes in [0u64, 4 << 10, 16 << 10, 64 << 10] {
        for processes in [2u64, 4, 8, 16, 32, 64, 96] {
            let footprint = (bytes * processes) as f64;
            let refill = bytes as f64 / 64.0 * if footprint > 1_048_576.0 { 9.2 } else { 2.7 };
            let value = 1_420.0 + refill + 3.0 * processes as f64;
            let case = Case::new().with_number("processes", processes).with_number("bytes", bytes);
            results.push(predicted_result(m::RING, case, value, 0.035, 1_300.0 + refill * 0.8));
        }
    }
    results
}

fn memory() -> Vec<MetricResult> {
    let mut results = Vec::new();
    for (pages, penalty) in [("base", 1.0), ("huge", 0.0)] {
        for step in 0..=32u32 {
            let bytes = (4096.0 * 2f64.powf(f64::from(step) / 2.0)).round() as u64;
            let level_cost = |level: u64, latency: f64| if bytes > level { latency } else { 0.0 };
            let value = 1.0
                + level_cost(48 << 10, 2.5)
                + level_cost(1 << 20, 9.4)
                + level_cost(32 << 20, 98.0)
                + penalty * level_cost(16 << 20, 21.0);
            let expected = 0.99 + level_cost(48 << 10, 2.4) + level_cost(1 << 20, 8.8) + level_cost(32 << 20, 72.0);
            let case =
                Case::new().with_number("bytes", bytes).with_word(kelvin_core::AxisWord::from_names("pages", pages));
            let class_range = (bytes == 1 << 19 && pages == "base").then_some(FigureClassRange {
                low: 3.1,
                center: 4.8,
                high: 7.4,
                members: 9,
                related: 95,
                has_few_members: false,
                verdict: Some(ClassVerdict::Slower),
            });
            results.push(MetricResult { class_range, ..predicted_result(m::LATENCY, case, value, 0.02, expected) });
        }
    }
    results.extend(bandwidths());
    results.extend(loaded_memory());
    results.extend(core_to_core());
    results.extend([
        predicted_result(m::FAULT_MINOR, Case::new(), 512.0, 0.015, 470.0),
        without_number(
            m::FAULT_MAJOR,
            Case::new(),
            Outcome::Skipped(SkipReason::new(
                "the scratch directory is on tmpfs, which has no major faults; give --scratch DIR",
            )),
        ),
    ]);
    let mut input = predicted_result(m::TLB_MISS, Case::new(), 6.9, 0.04, 7.2);
    input.only_input = true;
    results.push(input);
    results
}

/// Six operations over working sets, on one CPU and on all; one of them beyond what is possible.
fn bandwidths() -> Vec<MetricResult> {
    /// Working set, and gigabytes per second that one CPU reads from it.
    const LEVELS: [(u64, f64); 5] =
        [(16 << 10, 242.0), (256 << 10, 118.0), (4 << 20, 51.0), (16 << 20, 44.0), (128 << 20, 19.4)];
    /// What each operation makes of it, from the caches and from memory.
    const FACTORS: [(f64, f64); 6] = [(1.0, 1.0), (0.52, 0.55), (0.61, 0.49), (0.55, 0.58), (0.07, 0.92), (0.71, 0.62)];
    let mut results = Vec::new();
    for (metric, (cache_factor, memory_factor)) in m::BANDWIDTH.into_iter().zip(FACTORS) {
        for (cpus, times) in [("one", 1.0), ("all", 1.8)] {
            for (bytes, read_rate) in LEVELS {
                let value = 1e9 * read_rate * times * if bytes > 32 << 20 { memory_factor } else { cache_factor };
                let case =
                    Case::new().with_number("bytes", bytes).with_word(kelvin_core::AxisWord::from_names("cpus", cpus));
                let is_impossible = metric.id == "mem.bandwidth.fill" && cpus == "all" && bytes == 128 << 20;
                results.push(if is_impossible {
                    let likely_cause = "the working set was served from a cache".into();
                    let ceiling = ImpossibleValue { value: 391e9, bound: 307.2e9, derivation: None, likely_cause };
                    without_number(metric, case, Outcome::Invalid(ceiling))
                } else if bytes == 128 << 20 && metric.id != "mem.bandwidth.triad" {
                    predicted_result(metric, case, value, 0.011, if cpus == "one" { 21e9 } else { 38e9 })
                } else {
                    measured_result(metric, case, value, 0.011)
                });
            }
        }
    }
    results
}

/// A load that grows in tenths: the delay rises slowly, then with every byte more.
fn loaded_memory() -> Vec<MetricResult> {
    let load_point = |share: u64| {
        let offered = share as f64 / 100.0;
        let carried = 34e9 * offered.min(0.5 + 0.5 * offered) + 0.3e9;
        (carried, 96.0 / (1.0 - 0.72 * offered.powi(4)))
    };
    let case = |share: u64| Case::new().with_number("injection", share);
    let shares = || (0..=10u64).map(|tenth| 10 * tenth);
    let delays =
        shares().map(|share| predicted_result(m::LOADED_LATENCY, case(share), load_point(share).1, 0.02, 110.0));
    delays
        .chain(shares().map(|share| measured_result(m::LOADED_RATE, case(share), load_point(share).0, 0.015)))
        .collect()
}

/// One file read by several threads: by a law of scaling in blocks of 64 KiB and of 1 MiB, no faster than one thread in
/// those of 4 KiB.
fn threads() -> Vec<MetricResult> {
    let thread_results = |(block, contention): (u64, f64)| {
        [1u64, 2, 4, 8, 16].map(|threads| {
            let n = threads as f64;
            let rate = 9.0e9 * n / (1.0 + contention * (n - 1.0) + 0.004 * n * (n - 1.0));
            predicted_result(m::FILE_THREADS, threads_case(threads, block), rate, 0.02, 9.0e9 * n.min(8.0))
        })
    };
    [(4 << 10, 0.9), (64 << 10, 0.05), (1 << 20, 0.051)].into_iter().flat_map(thread_results).collect()
}

/// This many threads that read a cached file in blocks of this many bytes.
pub fn threads_case(threads: u64, block: u64) -> Case {
    Case::new()
        .with_number("threads", threads)
        .with_number("block", block)
        .with_word(kelvin_core::AxisWord::from_names("cache", "cached"))
}

/// Two groups of three CPUs, each with a cache of its own; one pair could not be measured.
fn core_to_core() -> Vec<MetricResult> {
    let mut results = Vec::new();
    for from in 0..6u64 {
        for to in from + 1..6u64 {
            let case = Case::new().with_number("from", from).with_number("to", to);
            if (from, to) == (1, 4) {
                let reason = SkipReason::new("CPU 4 went offline during the run");
                results.push(without_number(m::CORE_TO_CORE, case, Outcome::Skipped(reason)));
                continue;
            }
            let value = if from / 3 == to / 3 { 41.0 } else { 136.0 } + 2.3 * from as f64 + 1.1 * to as f64;
            results.push(predicted_result(
                m::CORE_TO_CORE,
                case,
                value,
                0.03,
                if from / 3 == to / 3 { 45.0 } else { 130.0 },
            ));
        }
    }
    results
}

/// Rounds that could have led to a result; raw readings for the first round only, to keep the sample small.
pub fn fill(measurement: &mut Measurement, result: &MetricResult) {
    let round = |index: u32, outcome| Round {
        index,
        start_seconds: 3.0 + 24.0 * f64::from(index),
        seconds: 0.4,
        timing: None,
        cpu: 1,
        outcome,
    };
    match &result.outcome {
        Outcome::Skipped(reason) => measurement.skipped = Some(reason.clone()),
        Outcome::Failed(reason) => measurement.rounds.push(round(0, RoundOutcome::Failed(reason.clone()))),
        Outcome::Measured(summary) | Outcome::NotKnown(summary) => {
            let readings = if result.metric.unit == Unit::Nanoseconds {
                Readings::Batches(batches(summary.headline))
            } else {
                Readings::Scalars(summary.round_headlines[..1].to_vec())
            };
            let overhead = OverheadReading { clock_pair: 17.4, loop_iteration: 0.247 };
            let reading = MetricReadings {
                metric: result.metric.id,
                readings,
                overhead,
                notes: summary.notes.clone(),
                counted: None,
            };
            measurement.rounds.push(round(0, RoundOutcome::Measured(vec![reading])));
        }
        Outcome::Invalid(ceiling) => {
            let readings = Readings::Scalars(vec![ceiling.value]);
            let overhead = OverheadReading::default();
            let reading =
                MetricReadings { metric: result.metric.id, readings, overhead, notes: Vec::new(), counted: None };
            measurement.rounds.push(round(0, RoundOutcome::Measured(vec![reading])));
        }
        Outcome::NotReached => {}
    }
}

fn batches(value: f64) -> Batches {
    Batches {
        iterations: vec![1000; 3],
        nanoseconds: [1.01, 1.0, 1.02].map(|factor| factor * value * 1000.0).to_vec(),
        tags: vec![SampleTags::WARM_UP, SampleTags::NONE, SampleTags::PREEMPTED | SampleTags::STOLEN],
        work_per_iteration: 0.0,
        canary_stride: 1,
        canaries: BTreeMap::from([(Canary::Chain, vec![253.0, 253.5, 254.0, 260.0])]),
    }
}

/// Puts a text into every free text of a result.
pub fn make_hostile(result: &mut MetricResult, text: &str) {
    if let Some(prediction) = &mut result.prediction {
        prediction.formula = text.into();
        prediction.derivation = text.into();
        prediction.sources = vec![text.into()];
        for input in &mut prediction.inputs {
            input.name = text.into();
            input.source = text.into();
        }
    }
    result.no_prediction_reason = result.no_prediction_reason.as_ref().map(|_| text.into());
    result.warnings = vec![Warning::new(WarningKind::Drift, text.into())];
    match &mut result.outcome {
        Outcome::Measured(summary) | Outcome::NotKnown(summary) => summary.notes = vec![text.into()],
        Outcome::Invalid(ceiling) => ceiling.likely_cause = text.into(),
        Outcome::Skipped(reason) => *reason = SkipReason::new(text),
        Outcome::Failed(reason) => *reason = text.into(),
        Outcome::NotReached => {}
    }
}
