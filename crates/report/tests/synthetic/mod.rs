//! A synthetic run with its analysis that shows everything a report can hold; used by tests and by the sample report.
#![allow(dead_code, reason = "each test file and the example use a part of it")]

pub mod explanation;
mod machine;
mod metrics;
mod results;

use kelvin_analysis::{
    Analysis, AreaComparison, BestCell, CanaryHistory, ClassComparison, ClassVerdict, Coefficient, Figure, Finding,
    FindingData, FittedLaw, Importance, LevelCapacity, MemoryLevel, MemoryLevels, Outcome, RangeVerdict, RivalFigures,
    RivalOutcome, RivalResult, StatedConclusion, Study,
};
use kelvin_core::*;
use kelvin_report::{ProbeDocs, Report};

pub use results::Noise;

/// Everything that a report needs, owned.
pub struct SyntheticReport {
    pub run: Run,
    pub analysis: Analysis,
    pub references: Vec<Reference>,
    pub probes: Vec<ProbeDocs>,
}

/// Memory that is as usual on machines of its class.
fn normal() -> ClassComparison {
    let memory = AreaComparison {
        area: Name::new("mem"),
        class: "Zen 5, server, guest".into(),
        compared_with: "Zen 5 guests".into(),
        factor: 1.14,
        low: 0.71,
        high: 1.41,
        figures: 5,
        members: ["aws-r8a-4xlarge", "gcp-c4d-highcpu-16"].map(Name::new).into(),
        has_few_members: true,
        verdict: ClassVerdict::Usual,
    };
    ClassComparison { class: Some(memory.class.clone()), missing_reason: None, areas: vec![memory] }
}

impl SyntheticReport {
    /// As what renders take.
    pub fn report(&self) -> Report<'_> {
        Report { run: &self.run, analysis: &self.analysis, references: &self.references, probes: &self.probes }
    }
}

/// A run as its analysis sees it, without published figures.
pub fn analysed(run: Run) -> SyntheticReport {
    let analysis = kelvin_analysis::analyse(&run);
    SyntheticReport { run, analysis, references: Vec::new(), probes: Vec::new() }
}

/// A complete run with every kind of result.
pub fn full() -> SyntheticReport {
    let results = results::all_results();
    let mut definitions: Vec<Metric> = distinct_metrics(&results);
    definitions.extend(["file.rivals.cached", "file.rivals.direct"].map(metrics::rival));
    let plan: Vec<PlannedMeasurement> = results
        .iter()
        .map(|result| PlannedMeasurement {
            probe: result.probe,
            metrics: vec![result.metric.id],
            case: result.case.clone(),
            only_input: result.only_input,
        })
        .collect();
    let mut run = Run::from_header(run_header(definitions, plan));
    for (measurement, result) in run.measurements.iter_mut().zip(&results) {
        results::fill(measurement, result);
    }
    run.status = RunStatus::Complete;
    run.seconds = 148.3;
    run.notes = vec!["2 of 46 metrics did not reach the target of 2 % within the budget.".into()];
    let analysis = Analysis {
        results,
        levels: Some(levels()),
        laws: vec![law()],
        model_lines: Vec::new(),
        knees: Vec::new(),
        growth_ends: Vec::new(),
        timelines: Vec::new(),
        best_cells: vec![best_cell()],
        canaries: canaries(),
        studies: studies(),
        ceilings: Vec::new(),
        tails: None,
        rivals: rivals(),
        overview: kelvin_analysis::analyse(&kelvin_analysis::testing::guest::guest_run()).overview,
        findings: findings(),
        verdict: verdict(),
        undisturbed_share: Some(0.71),
        block_over_chain: None,
        core_sharing_ratio: None,
        frequency_moved: None,
        slowdown: None,
        class_comparison: normal(),
    };
    let switch_result = analysis.results.iter().find(|result| result.metric.id == *"os.switch.cost").unwrap();
    let (probe, metric, case) = (switch_result.probe, switch_result.metric, switch_result.case.clone());
    run.explanations = vec![Explanation { probe, metric, case, seconds: 1.5, ..explanation::explanation() }];
    SyntheticReport { run, analysis, references: references(), probes: probes() }
}

/// The law of the threads that read in blocks of 64 KiB.
fn law() -> FittedLaw {
    let coefficient = |value: f64| Coefficient { value, lower: 0.9 * value, upper: 1.1 * value };
    FittedLaw {
        metric: Name::new("file.threads"),
        workers: Name::new("threads"),
        fixed: Case::new().with_number("block", 64u64 << 10).with_word(AxisWord::from_names("cache", "cached")),
        max_workers: 16,
        lambda: coefficient(9.0e9),
        sigma: coefficient(0.05),
        kappa: coefficient(0.004),
        peak: Some(15.4),
        peak_lower: Some(14.0),
        peak_upper: Some(17.1),
        describes: true,
        furthest_at: 4,
        furthest_ratio: 1.01,
    }
}

/// The best of the threads and blocks, and one equally good.
fn best_cell() -> BestCell {
    BestCell {
        metric: Name::new("file.threads"),
        fixed: Case::new().with_word(AxisWord::from_names("cache", "cached")),
        best: results::threads_case(16, 64 << 10),
        equivalent: vec![results::threads_case(16, 1 << 20)],
        conclusion: stated_conclusion(
            "cached: 16 threads in blocks of 64 KiB read fastest, 53.1 GB/s; no different from 16 threads in blocks of \
                   1 MiB",
            None,
            "1.01 times the rate of 16 threads in blocks of 1 MiB (0.98 to 1.04)",
        ),
    }
}

/// A conclusion with words of its own.
fn stated_conclusion(text: &str, holds: Option<bool>, test: &str) -> StatedConclusion {
    let claim = Claim::Pages { metric: "mem.page.present".into(), case: Case::new(), all: true };
    let conclusion = Conclusion { claim, holds, evidence: TestEvidence::TooFewPoints, outcome: None };
    StatedConclusion { text: text.into(), test: test.into(), conclusion }
}

/// Rivals: one that is faster, one that is slower than expected, one that is not installed.
fn rivals() -> Vec<RivalResult> {
    let figure = |value: f64, half_width: f64| Figure {
        value,
        interval: Some(Interval {
            kind: IntervalKind::Confidence,
            level: 0.95,
            lower: value - half_width,
            upper: value + half_width,
        }),
        n: 6,
    };
    let compared = |kelvin: f64, other: f64, verdict| {
        RivalOutcome::Compared(Box::new(RivalFigures {
            unit: Unit::BytesPerSecond,
            kelvin: figure(kelvin, kelvin / 50.0),
            other: figure(other, other / 50.0),
            ratio: figure(kelvin / other, 0.02),
            expected: Some(1.0),
            verdict,
            notes: vec!["kelvin: 48828 requests in 0.200 s; before, 16384 of 16384 pages in memory".into()],
        }))
    };
    let rival_result = |id: &'static str, program: &'static str, case: Case, outcome| RivalResult {
        id: Name::new(id),
        program: Name::new(program),
        case,
        outcome,
    };
    let small_block_case = || Case::new().with_number("block", 4096);
    let missing = Outcome::Skipped(SkipReason::new("needs the program bw_file_rd; on Debian: apt-get install lmbench"));
    vec![
        rival_result("file.rivals.cached", "fio", small_block_case(), compared(6.4e9, 4.7e9, RangeVerdict::Above)),
        rival_result("file.rivals.cached", "dd", small_block_case(), compared(6.4e9, 6.2e9, RangeVerdict::AsPredicted)),
        rival_result(
            "file.rivals.cached",
            "bw_file_rd",
            Case::new().with_word(AxisWord::from_names("block", "own")),
            RivalOutcome::Missing(Box::new(missing)),
        ),
        rival_result(
            "file.rivals.direct",
            "fio",
            small_block_case().with_word(AxisWord::from_names("order", "random")),
            compared(21e6, 22e6, RangeVerdict::AsPredicted),
        ),
    ]
}

/// The same run, interrupted half-way: later metrics were not reached.
pub fn partial() -> SyntheticReport {
    let mut sample = full();
    sample.run.status = RunStatus::Partial("interrupted by Ctrl-C".into());
    sample.run.seconds = 61.0;
    let half = sample.analysis.results.len() / 2;
    for (measurement, result) in sample.run.measurements.iter_mut().zip(&mut sample.analysis.results).skip(half) {
        measurement.rounds.clear();
        result.outcome = Outcome::NotReached;
        result.cycles = None;
        result.ratio = None;
        result.warnings.clear();
        result.explained_by.clear();
        result.verdict = kelvin_analysis::RangeVerdict::NotMeasured;
    }
    sample
}

/// A run that ended before anything was measured.
pub fn empty() -> SyntheticReport {
    let analysis = Analysis {
        results: Vec::new(),
        levels: None,
        laws: Vec::new(),
        model_lines: Vec::new(),
        knees: Vec::new(),
        growth_ends: Vec::new(),
        timelines: Vec::new(),
        best_cells: Vec::new(),
        canaries: Vec::new(),
        studies: Vec::new(),
        ceilings: Vec::new(),
        tails: None,
        rivals: Vec::new(),
        overview: None,
        findings: Vec::new(),
        verdict: Vec::new(),
        undisturbed_share: None,
        block_over_chain: None,
        core_sharing_ratio: None,
        frequency_moved: None,
        slowdown: None,
        class_comparison: ClassComparison::default(),
    };
    let mut header = run_header(Vec::new(), Vec::new());
    header.hazards.clear();
    SyntheticReport { run: Run::from_header(header), analysis, references: Vec::new(), probes: Vec::new() }
}

/// Text that tries to leave its place in every format.
pub const HOSTILE: &str = "</script><img src=x onerror=\"alert(1)\">'|`\u{1b}[31m\u{2028}]]>&amp;\u{202e}";

/// Like `HOSTILE`, in a name, as in runs imported before names had a grammar.
pub const HOSTILE_NAME: &str = "\"><svg onload=alert(1)>`";

/// A name with something hostile in it: behind its area, or in the area of one.
fn hostile_name(name: &mut Name) {
    *name = Name::intern(&match name.strip_prefix("cpu.") {
        Some(rest) => format!("{HOSTILE_NAME}.{rest}"),
        None => format!("{name}{HOSTILE_NAME}"),
    });
}

/// A case with hostile words.
fn hostile_case(case: &mut Case) {
    let hostile = |(axis, value): (Name, Value)| match value {
        Value::Word(word) if *axis == *"via" => (axis, Value::Word(Name::intern(&format!("={word}{HOSTILE_NAME}")))),
        value => (axis, value),
    };
    *case = case.iter().map(hostile).collect();
}

/// Makes all names hostile, each in the same way wherever it stands.
fn hostile_names(sample: &mut SyntheticReport) {
    let SyntheticReport { run, analysis, probes, references } = sample;
    let header = &mut run.header;
    for text in [&mut header.id, &mut header.kelvin, &mut header.started, &mut header.machine.identity] {
        text.push_str(HOSTILE_NAME);
    }
    hostile_name(&mut header.settings.mode);
    header.metrics.iter_mut().for_each(|metric| hostile_name(&mut metric.id));
    header.hazards.iter_mut().for_each(|hazard| hostile_name(&mut hazard.id));
    header.hazards.iter_mut().flat_map(|hazard| &mut hazard.affects).for_each(hostile_name);
    for planned in header.plan.iter_mut().chain(run.measurements.iter_mut().map(|measurement| &mut measurement.planned))
    {
        hostile_name(&mut planned.probe);
        hostile_case(&mut planned.case);
        planned.metrics.iter_mut().for_each(hostile_name);
    }
    let rounds = run.measurements.iter_mut().flat_map(|measurement| &mut measurement.rounds);
    for round in rounds {
        let RoundOutcome::Measured(readings) = &mut round.outcome else { continue };
        readings.iter_mut().for_each(|reading| hostile_name(&mut reading.metric));
    }
    for result in &mut analysis.results {
        [&mut result.metric.id, &mut result.probe].into_iter().chain(&mut result.explained_by).for_each(hostile_name);
        hostile_case(&mut result.case);
    }
    analysis.studies.iter_mut().for_each(|study| hostile_name(&mut study.id));
    analysis.laws.iter_mut().for_each(|law| hostile_name(&mut law.metric));
    analysis.best_cells.iter_mut().for_each(|cell| hostile_name(&mut cell.metric));
    analysis.rivals.iter_mut().for_each(|rival| hostile_name(&mut rival.id));
    probes.iter_mut().for_each(|probe| hostile_name(&mut probe.id));
    let values = references.iter_mut().flat_map(|reference| &mut reference.values);
    values.for_each(|value| {
        hostile_name(&mut value.metric);
        hostile_case(&mut value.case);
    });
}

/// A run in which every free text is hostile, and every name.
pub fn hostile() -> SyntheticReport {
    let mut sample = full();
    let machine = &mut sample.run.header.machine;
    machine.cpu.model_name = Fact::known(HOSTILE.into(), HOSTILE);
    machine.kernel.command_line = Fact::known(HOSTILE.into(), HOSTILE);
    machine.cpu.nominal_hz = Fact::unknown(HOSTILE);
    sample.run.header.command = vec![HOSTILE.into()];
    sample.run.header.clock.note = Some(HOSTILE.into());
    sample.run.notes = vec![HOSTILE.into()];
    sample.run.status = RunStatus::Partial(HOSTILE.into());
    for hazard in &mut sample.run.header.hazards {
        hazard.summary = HOSTILE.into();
        hazard.effect = HOSTILE.into();
        hazard.remedy = Some(HOSTILE.into());
        hazard.source = HOSTILE.into();
    }
    sample.analysis.verdict = vec![HOSTILE.into()];
    if let Some(screen) = &mut sample.analysis.overview {
        screen.cautions = vec![HOSTILE.into()];
        screen.stand_outs[0].text = HOSTILE.into();
        screen.remedies[0].command = HOSTILE.into();
        screen.remedies[0].problems = vec![HOSTILE.into()];
        screen.rungs[0].label = HOSTILE.into();
        screen.rungs[0].figure.missing_reason = Some(HOSTILE.into());
        screen.rates[0].label = HOSTILE.into();
        screen.rates[0].rates[0].work = HOSTILE.into();
    }
    if let Some(levels) = &mut sample.analysis.levels {
        levels.levels[0].name = HOSTILE.into();
        levels.conclusions[0].text = HOSTILE.into();
    }
    for finding in &mut sample.analysis.findings {
        finding.text = HOSTILE.into();
        finding.reason = HOSTILE.into();
    }
    for rival in &mut sample.analysis.rivals {
        match &mut rival.outcome {
            RivalOutcome::Compared(compared) => compared.notes = vec![HOSTILE.into()],
            RivalOutcome::Missing(outcome) => **outcome = Outcome::Failed(HOSTILE.into()),
        }
        rival.program = Name::new(HOSTILE);
        rival.case = Case::new().with_word(AxisWord::from_names("block", HOSTILE));
    }
    for study in &mut sample.analysis.studies {
        study.design = HOSTILE.into();
        for conclusion in &mut study.conclusions {
            conclusion.text = HOSTILE.into();
            conclusion.test = HOSTILE.into();
        }
    }
    for result in &mut sample.analysis.results {
        results::make_hostile(result, HOSTILE);
    }
    for probe in &mut sample.probes {
        probe.summary = HOSTILE.into();
        probe.method = HOSTILE.into();
        probe.pitfalls = vec![HOSTILE.into()];
        probe.sources = vec![HOSTILE.into()];
        probe.must_not_be_used_for = Some(HOSTILE.into());
    }
    for reference in &mut sample.references {
        reference.title = HOSTILE.into();
        reference.findings = vec![HOSTILE.into()];
        reference.machine = vec![(HOSTILE.into(), HOSTILE.into())];
    }
    hostile_names(&mut sample);
    sample
}

/// A run with `copies` times the results, to see how the size of a report grows.
pub fn large(copies: usize) -> SyntheticReport {
    let mut sample = full();
    let original = sample.analysis.results.clone();
    sample.analysis.results.clear();
    for copy in 0..copies {
        for result in &original {
            let mut result = result.clone();
            let id = result.metric.id.as_str();
            result.metric.id = Name::intern(&format!("{id}{copy}"));
            sample.analysis.results.push(result);
        }
    }
    sample
}

fn distinct_metrics(results: &[kelvin_analysis::MetricResult]) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for result in results {
        if metrics.iter().all(|metric| metric.id != result.metric.id) {
            metrics.push(result.metric);
        }
    }
    metrics
}

fn run_header(metrics: Vec<Metric>, plan: Vec<PlannedMeasurement>) -> RunHeader {
    RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: "20260301T101530Z-4f1c".into(),
        started: "2026-03-01T10:15:30Z".into(),
        kelvin: "0.1.0".into(),
        build: None,
        command: vec!["kelvin".into(), "run".into()],
        settings: RunSettings {
            mode: "default".into(),
            budget_seconds: 150.0,
            rounds: 6,
            target: 0.02,
            seed: 1_234_567,
            cpu: 1,
            partner_cpu: Some(0),
            canaries: true,
            realtime: false,
        },
        clock: ClockInfo {
            kind: ClockKind::Tsc,
            hertz: 2.7e9,
            relative_error: 1.3e-6,
            pair_nanoseconds: 17.4,
            multiply_cycles: Fact::known(3, "a test"),
            note: None,
            source_before: Some("tsc".into()),
            source_after: Some("tsc".into()),
        },
        machine: machine::machine(),
        hazards: hazards(),
        metrics,
        plan,
        spread_history: Vec::new(),
        core_ratio_history: Vec::new(),
        network_path: None,
        bounds: Vec::new(),
    }
}

fn hazards() -> Vec<Hazard> {
    vec![
        Hazard {
            id: "steal".into(),
            severity: Severity::Serious,
            summary: "the hypervisor took 3.1 % of the CPU's time during the run".into(),
            effect: "samples are interrupted for milliseconds at a time; tails and rates suffer most".into(),
            affects: vec!["os.switch".into(), "os.timer".into()],
            remedy: None,
            remedy_is_command: false,
            source: "/proc/stat".into(),
        },
        Hazard {
            id: "smt".into(),
            severity: Severity::Warning,
            summary: "CPUs 0 and 1 are one core; the sibling was busy 12 % of the time".into(),
            effect: "a busy sibling halves the core's throughput".into(),
            affects: vec![],
            remedy: Some("echo off | sudo tee /sys/devices/system/cpu/smt/control".into()),
            remedy_is_command: true,
            source: "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list".into(),
        },
        Hazard {
            id: "mitigations".into(),
            severity: Severity::Note,
            summary: "8 mitigations in force, among them enhanced IBRS".into(),
            effect: "lengthen every entry into the kernel".into(),
            affects: vec!["os".into()],
            remedy: Some("boot with mitigations=off (a trade against security)".into()),
            remedy_is_command: false,
            source: "/sys/devices/system/cpu/vulnerabilities".into(),
        },
    ]
}

fn canaries() -> Vec<CanaryHistory> {
    let mut noise = Noise::new(7);
    let mut history = |canary: Canary, reference: f64, busy: f64| {
        let points = (0..1500).map(|index| {
            let seconds = f64::from(index) * 0.0988;
            // A neighbour comes for half a minute, and a slow-down of the clock for the last quarter.
            let neighbour = if (40.0..72.0).contains(&seconds) && noise.next() < 0.8 { busy } else { 0.0 };
            let clock = if seconds > 120.0 { 0.035 } else { 0.0 };
            let spike = if noise.next() < 0.01 { 0.4 * noise.next() } else { 0.0 };
            let value = 1.0 + neighbour * (0.5 + 0.5 * noise.next()) + clock + spike + 0.004 * (noise.next() - 0.5);
            CanaryReading { seconds, canary, nanoseconds: reference * value }
        });
        CanaryHistory { canary, reference, tolerance: 0.03, steady_share: 0.71, points: points.collect() }
    };
    vec![history(Canary::Chain, 253.1, 0.02), history(Canary::Block, 255.9, 0.6)]
}

fn levels() -> MemoryLevels {
    let level = |name: &str, latency: f64, from_bytes: u64, to_bytes: u64, end: Option<u64>| MemoryLevel {
        name: name.into(),
        latency,
        interval: Interval {
            kind: IntervalKind::Confidence,
            level: 0.95,
            lower: 0.98 * latency,
            upper: 1.02 * latency,
        },
        from_bytes,
        to_bytes,
        capacity: end.map(|high| LevelCapacity { low: to_bytes, high }),
        reported_bytes: None,
        matches_reported: None,
    };
    let (kib, mib) = (1 << 10, 1 << 20);
    MemoryLevels {
        metric: "mem.latency".into(),
        levels: vec![
            level("L1", 1.0, 4 * kib, 46_341, Some(64 * kib)),
            level("L2", 3.5, 64 * kib, mib, Some(1_482_910)),
            level("L3", 12.9, 1_482_910, 32 * mib, Some(47_453_133)),
            level("DRAM", 131.9, 47_453_133, 256 * mib, None),
        ],
        translation: None,
        conclusions: vec![stated_conclusion(
            "L1 ends between 45.3 KiB and 64 KiB; the machine reports 48 KiB",
            Some(true),
            "latency rises from 1.00 to 3.50 ns, a step of 3.5 times",
        )],
    }
}

fn studies() -> Vec<Study> {
    vec![Study {
        id: "os.tasks".into(),
        answers: Vec::new(),
        design:
            "A fixed amount of CPU work split over 1 to 4 threads and over 1 to 4 processes; elapsed, user and system \
                 time from getrusage."
                .into(),
        conclusions: vec![
            stated_conclusion(
                "Two threads are faster than one.",
                Some(true),
                "ratio of elapsed times 0.58, 95 % interval 0.55 to 0.61",
            ),
            stated_conclusion(
                "Two threads take half the time of one.",
                Some(false),
                "efficiency 0.86, 95 % interval 0.82 to 0.91, does not reach 1: both CPUs are one core",
            ),
            stated_conclusion(
                "Processes are slower than threads.",
                None,
                "difference 0.4 %, 95 % interval -1.1 to 1.9 %",
            ),
        ],
        tables: Vec::new(),
        in_tables: Vec::new(),
    }]
}

fn findings() -> Vec<Finding> {
    vec![
        Finding {
            importance: Importance::Major,
            text: "The machine was disturbed for 32 s: a neighbour shared the core.".into(),
            reason: "block canary 1.3 to 1.6 times its reference from 40 s to 72 s, 80 % of readings".into(),
            data: FindingData::MemoryLevels,
            metrics: vec!["os.switch.cost".into()],
        },
        Finding {
            importance: Importance::Notable,
            text: "A context switch costs more than two calls and the published switch.".into(),
            reason: "ratio 1.92, 95 % interval 1.87 to 1.97, predicted up to 1.60".into(),
            data: FindingData::MemoryLevels,
            metrics: vec!["os.switch.cost".into()],
        },
    ]
}

fn verdict() -> Vec<String> {
    [
        "A virtual machine (KVM) with 2 CPUs of one Zen 5 core at 4.05 GHz and 7.9 GiB of memory.",
        "It was quiet for 71 % of the run; from 40 s to 72 s a neighbour shared the core.",
        "19 of 24 predicted metrics are as predicted.",
        "os.switch.cost (task=process) is 1.92 times its prediction: not explained.",
        "mem.latency is 1.3 times its prediction beyond 32 MiB: the machine's L3 is shared with neighbours.",
        "fork grows by 41.3 µs for every MiB of the parent's resident memory with 4 KiB pages.",
    ]
    .map(String::from)
    .into()
}

fn references() -> Vec<Reference> {
    let value = |metric: &'static str, case: Case, value: f64, std, n, range: Option<&str>, note: Option<&str>| {
        ReferenceValue {
            metric: metric.into(),
            case,
            value,
            std,
            n,
            predicted: None,
            unit: Unit::Nanoseconds,
            range: range.map(String::from),
            note: note.map(String::from),
            cycles: note.map(|_| 214.0),
            other_values: range.map(|_| ("round trip, ns".into(), 2221.2)).into_iter().collect(),
        }
    };
    vec![
        Reference {
            id: "zenbook-2011".into(),
            title: "Laptop, 2011".into(),
            machine: vec![("CPU".into(), "Core i7-2677M, 1.8 GHz".into())],
            frequency_hz: Some(1.8e9),
            values: vec![
                value(
                    "os.syscall.null",
                    Case::new().with_word(AxisWord::from_names("call", "getppid")),
                    84.2,
                    Some(1.2),
                    Some(100),
                    None,
                    None,
                ),
                value(
                    "cpu.call.args",
                    Case::new().with_number("arguments", 0).with_word(AxisWord::from_names("via", "direct")),
                    2.9,
                    None,
                    None,
                    None,
                    None,
                ),
                value(
                    "cpu.call.args",
                    Case::new().with_number("arguments", 7).with_word(AxisWord::from_names("via", "direct")),
                    5.1,
                    None,
                    None,
                    None,
                    None,
                ),
            ],
            findings: vec!["The cost of a call grows with the number of its arguments.".into()],
        },
        Reference {
            id: "os-bench-2013".into(),
            title: "Linux machine, gcc -O0, 2013".into(),
            machine: vec![],
            frequency_hz: None,
            values: vec![
                value(
                    "os.syscall.null",
                    Case::new().with_word(AxisWord::from_names("call", "getppid")),
                    64.311_859,
                    None,
                    Some(10_000_000),
                    None,
                    Some("gettid"),
                ),
                value(
                    "os.switch.cost",
                    Case::new().with_word(AxisWord::from_names("task", "process")),
                    1110.617,
                    None,
                    Some(10_000_000),
                    Some("write + one switch + read"),
                    None,
                ),
            ],
            findings: vec![],
        },
    ]
}

fn probes() -> Vec<ProbeDocs> {
    vec![
        ProbeDocs {
            id: "os.syscall.null".into(),
            summary: "The cheapest system call: into the kernel and back.".into(),
            method: "getppid by the syscall instruction, in batches; never a cached or vDSO value.".into(),
            prediction: "Published cycles of the instructions and of the entry code over the frequency.".into(),
            pitfalls: vec!["A call that libc caches is no system call: the raw instruction is timed.".into()],
            sources: vec!["lmbench lat_syscall null".into(), "perf bench syscall basic".into()],
            must_not_be_used_for: Some("the cost of a call that does work".into()),
        },
        ProbeDocs {
            id: "os.process.fork_rss".into(),
            summary: "fork against the resident memory of the parent.".into(),
            method: "The parent touches memory of each size, then forks; the child exits at once.".into(),
            prediction: "A bare fork, and the copy of a page table's entry for each page.".into(),
            pitfalls: vec!["One figure for fork hides its dependence on resident memory: it is swept.".into()],
            sources: vec!["lmbench lat_proc fork".into()],
            must_not_be_used_for: None,
        },
    ]
}
