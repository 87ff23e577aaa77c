//! A small run that uses every part of the model, the same one every time.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;

use kelvin_core::*;

/// Identity of the machine of [`sample_run`].
pub const MACHINE: &str = "5f2c9e7a01d34b68";

/// A complete run of two probes, with skipped and failed rounds, predictions, a study, notes, and all kinds of facts.
pub fn sample_run() -> Run {
    let mut run = Run::from_events(sample_events()).expect("the events begin with the start");
    run.predictions = sample_predictions();
    run.notes.extend(sample_notes());
    run
}

/// The events of [`sample_run`].
pub fn sample_events() -> Vec<Event> {
    let null = Name::new("os.syscall.null");
    let getppid = || Case::new().with_word(AxisWord::from_names("call", "getppid"));
    let fork = Name::new("os.process.fork");
    vec![
        Event::Started(Box::new(sample_header("20260131T120000-5f2c"))),
        Event::RoundStarted { probe: null, case: getppid(), done: 0, planned: 4, seconds_left: 3.5 },
        Event::RoundFinished { probe: null, case: getppid(), round: Box::new(sample_round(0)) },
        Event::RoundFinished { probe: fork, case: Case::new(), round: Box::new(failed_round()) },
        Event::RoundFinished { probe: null, case: getppid(), round: Box::new(sample_round(1)) },
        Event::RoundFinished { probe: fork, case: Case::new(), round: Box::new(declined_round()) },
        Event::CaseSkipped {
            probe: Name::new("mem.latency"),
            case: Case::new().with_number("bytes", 4096).with_word(AxisWord::from_names("pages", "huge")),
            reason: SkipReason::new("no huge pages: set vm.nr_hugepages"),
        },
        Event::Finished { status: RunStatus::Complete, seconds: 2.75, notes: vec!["1 target was not reached".into()] },
    ]
}

/// The predictions of [`sample_run`].
pub fn sample_predictions() -> Vec<PredictionRecord> {
    let null = Prediction {
        value: 61.5,
        low: 40.0,
        high: 120.0,
        basis: PredictionBasis::Published,
        formula: "trap + mitigations".into(),
        inputs: vec![Input { name: "trap".into(), value: 61.5, unit: Unit::Nanoseconds, source: "a table".into() }],
        derivation: "61.5 ns trap = 61.5 ns".into(),
        sources: vec!["a published table".into()],
        calibration: None,
        formula_name: Default::default(),
        ceiling: None,
    };
    let record = |metric, case, prediction: Option<Prediction>| PredictionRecord {
        metric: Name::new(metric),
        case,
        missing_reason: prediction.is_none().then(|| NoPrediction::new("its input was not measured")),
        prediction,
    };
    vec![
        record("os.syscall.null", Case::new().with_word(AxisWord::from_names("call", "getppid")), Some(null)),
        record("os.process.fork", Case::new(), None),
    ]
}

/// The notes that are found out after the last round of [`sample_run`].
pub fn sample_notes() -> Vec<String> {
    vec!["fork failed in one round".into()]
}

/// An header with this id.
pub fn sample_header(id: &str) -> RunHeader {
    RunHeader {
        foreign: None,
        format: RUN_FORMAT,
        id: id.into(),
        started: "2026-01-31T12:00:00.25Z".into(),
        kelvin: "0.1.0".into(),
        build: None,
        command: vec!["kelvin".into(), "run".into(), "os".into()],
        settings: sample_settings(),
        clock: ClockInfo {
            kind: ClockKind::Tsc,
            hertz: 2.596e9,
            relative_error: 1.5e-6,
            pair_nanoseconds: 21.25,
            multiply_cycles: Fact::known(3, "a test"),
            note: None,
            source_before: Some("tsc".into()),
            source_after: Some("tsc".into()),
        },
        machine: sample_machine(),
        hazards: vec![Hazard {
            id: Name::new("virtual_machine"),
            severity: Severity::Warning,
            summary: "a KVM guest".into(),
            effect: "the hypervisor takes time that no counter shows".into(),
            affects: vec![Name::new("os."), Name::new("cpu.")],
            remedy: None,
            remedy_is_command: false,
            source: "cpuid leaf 0x40000000".into(),
        }],
        metrics: sample_metrics(),
        plan: vec![
            planned_measurement(
                "os.syscall.null",
                Case::new().with_word(AxisWord::from_names("call", "getppid")),
                false,
            ),
            planned_measurement("os.process.fork", Case::new(), true),
        ],
        spread_history: vec![SpreadHistory {
            metric: Name::new("os.syscall.null"),
            case: Case::new().with_word(AxisWord::from_names("call", "getppid")),
            headlines: vec![60.25, 61.0, 59.5],
            within_variances: vec![0.25, 0.5, 0.125],
        }],
        core_ratio_history: vec![0.39, 0.41],
        network_path: None,
        bounds: Vec::new(),
    }
}

/// The metrics of [`sample_header`].
pub fn sample_metrics() -> Vec<Metric> {
    vec![
        Metric::duration("os.syscall.null", "One system call that does nothing.").baseline().with_axes([Axis::new(
            "call",
            "system call",
            AxisScale::Category,
        )]),
        Metric::duration("os.process.fork", "Until fork returns in the parent.")
            .not_in_cycles()
            .headline(HeadlineSamples::AsFound)
            .contaminants(SampleTags::CONTAMINATED_UNLESS_PREEMPTED)
            .bounds(Some(0.0), Some(1e12)),
        Metric::rate("mem.bandwidth.read", "Bytes read in a second.")
            .version(2)
            .canaries(Canaries::from_canaries(&[Canary::Chain, Canary::Block])),
    ]
}

/// A round of `os.syscall.null`, each index with other values.
pub fn sample_round(index: u32) -> Round {
    let shift = f64::from(index) / 8.0;
    let nanoseconds: Vec<f64> = (0..5u8).map(|i| 61_234.567_891 + f64::from(i) / 3.0 + shift).collect();
    let column = |base: f32| vec![base, base + 0.1, base + 0.2, base + 0.3];
    let batches = Batches {
        iterations: vec![1000; 5],
        nanoseconds,
        tags: vec![
            SampleTags::WARM_UP,
            SampleTags::NONE,
            SampleTags::PREEMPTED | SampleTags::STOLEN,
            SampleTags::NONE,
            SampleTags::NONE,
        ],
        work_per_iteration: 0.0,
        canary_stride: 2,
        canaries: BTreeMap::from([(Canary::Chain, column(1234.5)), (Canary::Block, column(617.1))]),
    };
    let overhead = OverheadReading { clock_pair: 21.25, loop_iteration: 0.385 };
    let timed_reading = MetricReadings {
        metric: Name::new("os.syscall.null"),
        readings: Readings::Batches(batches),
        overhead,
        notes: vec!["5000 calls counted".into()],
        counted: None,
    };
    let counted_reading = MetricReadings {
        metric: Name::new("mem.bandwidth.read"),
        readings: Readings::Scalars(vec![1.25e10, 0.1]),
        overhead: OverheadReading::default(),
        notes: Vec::new(),
        counted: None,
    };
    Round {
        index,
        start_seconds: 0.5 + f64::from(index),
        seconds: 0.3,
        timing: None,
        cpu: 1,
        outcome: RoundOutcome::Measured(vec![timed_reading, counted_reading]),
    }
}

fn failed_round() -> Round {
    Round {
        index: 0,
        start_seconds: 0.9,
        seconds: 0.2,
        timing: None,
        cpu: 1,
        outcome: RoundOutcome::Failed("killed by signal 11".into()),
    }
}

fn declined_round() -> Round {
    Round {
        index: 1,
        start_seconds: 1.9,
        seconds: 0.1,
        timing: None,
        cpu: 1,
        outcome: RoundOutcome::Skipped(SkipReason::new("fork is denied here")),
    }
}

fn planned_measurement(probe: &'static str, case: Case, only_input: bool) -> PlannedMeasurement {
    PlannedMeasurement { probe: Name::new(probe), metrics: vec![Name::new(probe)], case, only_input }
}

fn sample_settings() -> RunSettings {
    RunSettings {
        mode: Name::new("quick"),
        budget_seconds: 45.0,
        rounds: 3,
        target: 0.02,
        seed: u64::MAX,
        cpu: 1,
        partner_cpu: Some(0),
        canaries: true,
        realtime: false,
    }
}

fn known_fact<T>(value: T) -> Fact<T> {
    Fact::known(value, "/proc")
}

fn unknown_fact<T>() -> Fact<T> {
    Fact::unknown("the hypervisor hides it")
}

fn sample_machine() -> Machine {
    Machine {
        identity: MACHINE.into(),
        architecture: Name::new("x86_64"),
        cpu: sample_cpu(),
        topology: sample_topology(),
        memory: Memory {
            total_bytes: known_fact(25_769_803_776),
            available_bytes: known_fact(20_000_000_000),
            swap_bytes: known_fact(0),
            page_bytes: known_fact(4096),
            huge_page_bytes: known_fact(vec![2_097_152, 1_073_741_824]),
            transparent_huge_pages: known_fact("madvise".into()),
            kind: unknown_fact(),
            transfers_per_second: unknown_fact(),
            modules: Fact::default(),
            channels: unknown_fact(),
            peak_bytes_per_second: known_fact(2.13e10),
        },
        disks: vec![sample_disk()],
        mounts: vec![Mount {
            target: "/".into(),
            source: "/dev/vda".into(),
            kind: "ext4".into(),
            options: "rw,relatime".into(),
        }],
        nics: vec![Nic {
            name: "eth0".into(),
            driver: known_fact("virtio_net".into()),
            bits_per_second: known_fact(1e10),
            // What a run has for it that was stored before it was asked, as those of the fixtures were.
            line_rate: Fact::unknown(
                "whether a line stands behind what it claims was not asked when this run was made",
            ),
            mtu: known_fact(1500),
            offloads: known_fact(vec!["tx-tcp-segmentation".into()]),
            state: known_fact("up".into()),
        }],
        kernel: sample_kernel(),
        platform: Platform {
            bios: Fact::default(),
            product: unknown_fact(),
            hypervisor: known_fact(Some("KVM".into())),
            container: known_fact(None),
            ..Default::default()
        },
        limits: Limits {
            cpu_quota: known_fact(Some(1.5)),
            memory_bytes: known_fact(None),
            processes: known_fact(Some(4096)),
            open_files: known_fact(1024),
            cgroup_version: known_fact(1),
        },
    }
}

fn sample_cpu() -> Cpu {
    Cpu {
        vendor: known_fact("AuthenticAMD".into()),
        model_name: known_fact("AMD EPYC 9B45".into()),
        family: known_fact(26),
        model: known_fact(2),
        stepping: known_fact(1),
        microarchitecture: known_fact("Zen 5".into()),
        microcode: unknown_fact(),
        nominal_hz: known_fact(2.596e9),
        maximum_hz: unknown_fact(),
        measured_hz: known_fact(4.1e9),
        counter_hz: known_fact(2.596e9),
        flags: known_fact(vec!["fpu".into(), "avx2".into()]),
        tlbs: known_fact(vec![Tlb { level: 1, kind: CacheKind::Data, page_bytes: 4096, entries: 96, ways: 0 }]),
        governor: unknown_fact(),
        mitigations: known_fact(vec![Mitigation { vulnerability: "meltdown".into(), status: "Not affected".into() }]),
        ..Default::default()
    }
}

fn sample_topology() -> Topology {
    let l1 = Cache {
        level: 1,
        kind: CacheKind::Data,
        bytes: 49_152,
        ways: Some(12),
        line_bytes: Some(64),
        shared_by: vec![0, 1],
    };
    Topology {
        online: known_fact(vec![0, 1]),
        allowed: known_fact(vec![0, 1]),
        sockets: known_fact(1),
        cores: known_fact(1),
        siblings: known_fact(vec![vec![0, 1], vec![0, 1]]),
        caches: known_fact(vec![l1]),
        nodes: known_fact(vec![NumaNode { id: 0, cpus: vec![0, 1], bytes: Some(25_769_803_776), distances: vec![10] }]),
        ..Default::default()
    }
}

fn sample_disk() -> BlockDevice {
    BlockDevice {
        name: "vda".into(),
        model: unknown_fact(),
        bytes: known_fact(274_877_906_944),
        link: unknown_fact(),
        scheduler: known_fact("none".into()),
        queues: known_fact(2),
        queue_depth: known_fact(256),
        write_cache: known_fact("write back".into()),
        rotational: known_fact(true),
        logical_block_bytes: known_fact(512),
    }
}

fn sample_kernel() -> Kernel {
    Kernel {
        release: known_fact("6.18.44".into()),
        version: known_fact("#1 SMP".into()),
        distribution: known_fact("Debian GNU/Linux 12 (bookworm)".into()),
        libc: known_fact("glibc 2.36".into()),
        command_line: known_fact("console=ttyS0".into()),
        omitted_boot_parameters: None,
        preemption: known_fact("voluntary".into()),
        timer_hz: known_fact(250),
        scheduler: known_fact("EEVDF".into()),
        congestion_control: known_fact("bbr".into()),
        clock_source: known_fact("tsc".into()),
    }
}
