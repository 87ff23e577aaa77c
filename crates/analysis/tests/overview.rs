//! The first screen of runs: what it shows, what stands out, and what does not.

use kelvin_analysis::testing::{
    add_measurement, add_scalars, guest, large_machine, reading, round, round_with_outcome,
};
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::catalogue::PairPlacement::TwoCpus;
use kelvin_core::catalogue::{file, mem, net, os};
use kelvin_core::{
    Axis, CacheInstances, CacheKind, Case, CoreLocation, Fact, MissingReason, Name, Overview, PredictionVerdict,
    Readings, RoundOutcome, Run, RunStatus, SkipReason, StandOut, StandOutQuestion,
};

fn overview_of(run: &Run) -> Overview {
    analyse(run).overview.expect("a run of many areas has a first screen")
}

fn stand_out_questions(screen: &Overview) -> Vec<StandOutQuestion> {
    screen.stand_outs.iter().map(|stand_out| stand_out.question).collect()
}

fn answer(run: &Run, question: StandOutQuestion) -> Option<StandOut> {
    overview_of(run).stand_outs.into_iter().find(|stand_out| stand_out.question == question)
}

#[test]
fn guest_stand_outs_are_ordered() {
    let screen = overview_of(&guest::guest_run());
    let sentences: Vec<&str> = screen.stand_outs.iter().map(|stand_out| stand_out.text.as_str()).collect();
    insta::assert_debug_snapshot!(sentences);
    // No metric, no parentheses of axes, no statistics.
    for text in &sentences {
        assert!(text.split_whitespace().count() <= 25, "{text}");
        assert!(!text.contains(['(', '=', '%', '±']), "{text}");
        assert!(!kelvin_core::catalogue::all().any(|metric| text.contains(metric.id.as_str())), "{text}");
    }
    assert!(sentences.len() <= 8);
}

#[test]
fn overview_figures_are_run_results() {
    let run = guest::guest_run();
    let analysis = analyse(&run);
    let screen = analysis.overview.as_ref().unwrap();
    let has_result = |metric: &Name, case: &Case| {
        analysis.results.iter().any(|result| result.metric.id == *metric && result.case == *case)
    };
    let figures = screen.rungs.iter().map(|rung| &rung.figure);
    let rates = screen.rates.iter().flat_map(|line| &line.rates).map(|rate| &rate.figure);
    let places: Vec<_> = figures.chain(rates).map(|figure| figure.source.clone().unwrap()).collect();
    assert!(places.len() > 30);
    assert!(places.iter().all(|place| has_result(&place.metric, &place.case)), "{places:#?}");
    let sides = screen.stand_outs.iter().flat_map(|stand_out| &stand_out.sides);
    assert!(sides.clone().count() > 8);
    sides.for_each(|side| assert!(has_result(&side.metric, &side.case), "{side:?}"));
}

#[test]
fn rung_times_in_seconds_with_predictions() {
    let screen = overview_of(&guest::guest_run());
    let rung = |label: &str| &screen.rungs.iter().find(|rung| rung.label == label).unwrap().figure;
    let cycle = rung("cycle");
    let measured = cycle.measured.unwrap();
    assert!((measured.value * 3.592e9 - 1.0).abs() < 1e-3, "{measured:?}");
    assert!(measured.low < measured.value && measured.value < measured.high && !measured.is_range);
    let predicted = cycle.predicted.as_ref().unwrap();
    assert!((predicted.low * 4.2e9 - 1.0).abs() < 1e-9 && (predicted.high * 2.6e9 - 1.0).abs() < 1e-9);
    assert_eq!(cycle.verdict, PredictionVerdict::AsPredicted);
    assert_eq!(rung("system call").verdict, PredictionVerdict::Slower);
    // 4 KiB at 6.95 GB/s; the predicted rates are an upper and a lower time.
    let page_cache = rung("4 KiB from page cache");
    assert!((page_cache.measured.unwrap().value - 4096.0 / 6.95e9).abs() < 1e-9, "{page_cache:?}");
    assert!(page_cache.predicted.as_ref().unwrap().low < page_cache.predicted.as_ref().unwrap().high);
    // Levels have the point of their plateau nearest to its latency.
    assert_eq!(rung("L2 hit").text, "4.5 ns");
    assert_eq!(mem::BYTES.number_in(&rung("L3 hit").source.as_ref().unwrap().case), Some(4 << 20));
    assert!(
        mem::BYTES.number_in(&rung("DRAM").source.as_ref().unwrap().case) > Some(480 << 20),
        "beyond the reported caches"
    );
}

#[test]
fn expected_values_do_not_stand_out() {
    let mut run = guest::guest_run();
    guest::replace(&mut run, &os::SWITCH_CROSS_CPU, &guest::cases::wake_up(), 2.5 * 748.5);
    guest::replace(&mut run, &mem::FAULT_MINOR, &guest::cases::fault(), 1.5 * 56_700.0 / 512.0);
    guest::replace(&mut run, &net::BANDWIDTH_TCP, &guest::cases::streams(TwoCpus, 2), 16.0e9);
    guest::replace(&mut run, &file::DEVICE_REPEAT_READ, &Case::new(), 1.25);
    run.predictions.clear();
    if let kelvin_core::Fact::Known { value, .. } = &mut run.header.machine.topology.caches {
        value[2].bytes = 12 << 20;
    }
    assert_eq!(
        stand_out_questions(&overview_of(&run)),
        [StandOutQuestion::SharedMemoryBandwidth, StandOutQuestion::Disk]
    );
}

#[test]
fn disk_cache_below_kernel_is_distinguished() {
    let mut run = guest::guest_run();
    let uncached = answer(&run, StandOutQuestion::DiskCache).unwrap();
    assert!(uncached.text.contains("no faster on later passes"), "{}", uncached.text);
    guest::replace(&mut run, &file::DEVICE_REPEAT_READ, &Case::new(), 3.02);
    let cached = answer(&run, StandOutQuestion::DiskCache).unwrap();
    assert!(cached.text.contains("3.0 times as fast as the first"), "{}", cached.text);
    assert!(
        stand_out_questions(&overview_of(&run)).iter().position(|question| *question == StandOutQuestion::DiskCache)
            < Some(4),
        "it outranks abilities"
    );
}

#[test]
fn congestion_control_cost_is_reported() {
    let answer_with = |systems| {
        let mut run = guest::guest_run();
        run.header.machine.kernel.congestion_control = Fact::known("bbr".into(), "a test");
        run.header.metrics.push(net::BANDWIDTH_TCP_SYSTEM);
        let case = Case::new().with_word(TwoCpus).with_number(net::MESSAGE, 64 << 10);
        guest::measure(&mut run, &net::BANDWIDTH_TCP_SYSTEM, case, systems);
        answer(&run, StandOutQuestion::CongestionControl).map(|stand_out| stand_out.text)
    };
    let text = answer_with(3.17e9).unwrap();
    assert_eq!(
        text,
        "A local TCP stream reaches 3.17 GB/s with bbr, the default congestion control of this system, but 8.60 GB/s with another."
    );
    assert!(text.split_whitespace().count() <= 25);
    assert_eq!(answer_with(8.5e9), None);
}

#[test]
fn two_rounds_give_no_stand_out() {
    let mut run = guest::guest_run();
    for measurement in &mut run.measurements {
        measurement.rounds.truncate(2);
    }
    let questions = stand_out_questions(&overview_of(&run));
    let untested = [
        StandOutQuestion::WakeUp,
        StandOutQuestion::FreshMemory,
        StandOutQuestion::StreamsBetweenCpus,
        StandOutQuestion::DiskCache,
    ];
    assert!(untested.iter().all(|question| !questions.contains(question)), "{questions:?}");
}

#[test]
fn three_rounds_must_all_exceed() {
    let has_wake_up = |wakes: [f64; 3]| {
        let mut run = guest::guest_run();
        run.measurements.iter_mut().for_each(|measurement| measurement.rounds.truncate(3));
        let wake = run
            .measurements
            .iter_mut()
            .find(|measurement| measurement.planned.metrics == [os::SWITCH_CROSS_CPU.id])
            .unwrap();
        let readings = |value| vec![reading(&os::SWITCH_CROSS_CPU, Readings::Scalars(vec![value]))];
        wake.rounds = wakes.into_iter().enumerate().map(|(index, value)| round(index, readings(value))).collect();
        answer(&run, StandOutQuestion::WakeUp).is_some()
    };
    assert!(has_wake_up([29_000.0, 24_000.0, 32_000.0]));
    assert!(!has_wake_up([29_000.0, 1_900.0, 32_000.0]), "one round is 2.5 switches long");
}

#[test]
fn worst_figure_is_furthest_from_range() {
    let worst = answer(&guest::guest_run(), StandOutQuestion::WorstTime).unwrap();
    assert_eq!(
        worst.text,
        "Furthest from its prediction: a TCP round trip between two CPUs, 62 µs instead of 29 µs; it \
         includes two wake-ups of 29.2 µs."
    );
    assert_eq!(worst.sides[0].metric, net::RTT_TCP.id);
}

#[test]
fn slowness_reason_only_if_measured() {
    let mut run = guest::guest_run();
    // Two wake-ups are now a small part of the round trip.
    guest::replace(&mut run, &os::SWITCH_CROSS_CPU, &guest::cases::wake_up(), 4_000.0);
    let worst = answer(&run, StandOutQuestion::WorstTime).unwrap().text;
    assert!(worst.ends_with("instead of 29 µs; no cause of it was tried."), "{worst}");
    assert!(worst.split_whitespace().count() <= 25, "{worst}");
}

#[test]
fn idle_cache_loss_needs_all_rounds() {
    let answer_with = |retained: &[f64]| {
        let mut run = guest::guest_run();
        run.header.metrics.extend([file::IDLE_RETAINED, file::IDLE_TIME]);
        add_scalars(&mut run, &file::IDLE_RETAINED, Case::new(), retained);
        add_scalars(&mut run, &file::IDLE_TIME, Case::new(), &vec![140e9; retained.len()]);
        answer(&run, StandOutQuestion::IdleCache)
    };
    let partial = answer_with(&[0.751, 0.75, 0.75, 0.748]).unwrap();
    assert_eq!(
        partial.text,
        "Of every 100 file pages unused for 2 min 20 s, 25 were evicted from the page cache: the next read goes to the disk."
    );
    assert!(partial.text.split_whitespace().count() <= 25);
    let complete = answer_with(&[0.0; 7]).unwrap();
    assert!(complete.text.starts_with("All file pages unused for 2 min 20 s were evicted"), "{}", complete.text);
    assert!(complete.factor > partial.factor && complete.factor.is_finite());
    assert_eq!(answer_with(&[1.0; 7]), None);
    assert_eq!(answer_with(&[0.75, 0.75, 0.96]), None, "one round still finds nearly all");
    assert_eq!(answer_with(&[0.5, 0.5]), None, "two rounds prove nothing");
}

#[test]
fn fresh_memory_compared_with_reused_and_huge() {
    let answer_with = |first: f64| {
        let mut run = guest::guest_run();
        run.header.metrics.extend([mem::FIRST_TOUCH, mem::REPEATED_FIRST_TOUCH]);
        guest::measure(&mut run, &mem::FIRST_TOUCH, Case::new(), first);
        guest::measure(&mut run, &mem::REPEATED_FIRST_TOUCH, Case::new(), 1_500.0);
        answer(&run, StandOutQuestion::FreshMemory).unwrap()
    };
    let fresh = answer_with(2_700.0);
    assert_eq!(
        fresh.text,
        "Fresh memory costs 2.70 µs a page of 4 KiB at first touch, memory just freed 1.50 µs; huge pages are 24 times cheaper."
    );
    assert!(fresh.text.split_whitespace().count() <= 25);
    assert!((fresh.factor - 1.8).abs() < 0.05, "{fresh:?}");
    // Where it costs the same, only huge pages differ.
    assert!(
        answer_with(1_500.0).text.ends_with("at first touch, 6.8 times as much as in huge pages."),
        "{}",
        answer_with(1_500.0).text
    );
}

#[test]
fn missing_figures_are_counted_and_named() {
    let mut run = guest::guest_run();
    let failed = RoundOutcome::Failed("signal 11".into());
    let exec =
        run.measurements.iter_mut().find(|measurement| measurement.planned.metrics == [os::PROCESS_EXEC.id]).unwrap();
    exec.rounds = vec![round_with_outcome(0, failed)];
    let screen = overview_of(&run);
    let missing_figures: Vec<_> =
        screen.missing.iter().map(|entry| (entry.reason, entry.figures, entry.metrics.clone())).collect();
    let expected = [
        (MissingReason::Failed, 1, vec![os::PROCESS_EXEC.id]),
        (MissingReason::Skipped, 1, vec![mem::NODE_LATENCY.id]),
    ];
    assert_eq!(missing_figures, expected);
    let rung = screen.rungs.iter().find(|rung| rung.label == "fork + exec").unwrap();
    assert_eq!((rung.figure.text.as_str(), rung.figure.missing_reason.as_deref()), ("failed", Some("signal 11")));
}

#[test]
fn never_undisturbed_is_shown_as_found() {
    let screen = overview_of(&guest::disturbed_run());
    let figure = &screen.rungs.iter().find(|rung| rung.label == "system call").unwrap().figure;
    let as_found = figure.as_found.as_ref().unwrap();
    assert_eq!((figure.text.as_str(), as_found.text.as_str()), ("not known", "131 ns"));
    assert_eq!((figure.measured, figure.drawn_value()), (None, Some(as_found.value)));
    assert!((as_found.value.value - 131e-9).abs() < 1e-9, "{as_found:?}");
    assert!(as_found.value.low < as_found.value.value && as_found.value.value < as_found.value.high, "{as_found:?}");
    // It is judged by nothing, and concluded from by nothing.
    assert_eq!(figure.verdict, PredictionVerdict::NotCompared);
    assert!(
        screen
            .missing
            .iter()
            .any(|entry| entry.reason == MissingReason::NotKnown && entry.metrics.contains(&os::SYSCALL_NULL.id))
    );
    let rungs = screen.rungs.iter().filter(|rung| rung.figure.as_found.is_some());
    assert_eq!(rungs.map(|rung| rung.label.as_str()).collect::<Vec<_>>(), ["L1 hit", "system call"]);
}

#[test]
fn hidden_level_is_not_distinguishable() {
    let mut run = guest::guest_run();
    let is_l3 = |measurement: &kelvin_core::Measurement| {
        let bytes = mem::BYTES.number_in(&measurement.planned.case);
        measurement.planned.metrics == [mem::LATENCY.id]
            && bytes.is_some_and(|bytes| (2 << 20..32 << 20).contains(&bytes))
    };
    run.measurements.retain(|measurement| !is_l3(measurement));
    let rungs = overview_of(&run).rungs;
    let rung = rungs.iter().find(|rung| rung.label == "L3 hit").unwrap();
    assert_eq!((rung.figure.text.as_str(), &rung.figure.measured), ("not distinguishable from DRAM", &None));
    assert!(rung.figure.missing_reason.as_ref().unwrap().contains("L1, L2"), "{rung:?}");
}

fn keep_areas(run: &mut Run, areas: &[&str]) -> Analysis {
    run.measurements.retain(|measurement| areas.iter().any(|area| measurement.planned.metrics[0].starts_with(area)));
    analyse(run)
}

#[test]
fn few_figures_give_no_overview() {
    assert!(keep_areas(&mut guest::guest_run(), &["cpu."]).overview.is_none(), "two rungs");
    assert!(keep_areas(&mut guest::guest_run(), &["mem.latency"]).overview.is_none(), "three levels by one probe");
    let os = keep_areas(&mut guest::guest_run(), &["os."]).overview.unwrap();
    assert!(os.rungs.iter().all(|rung| rung.figure.source.as_ref().unwrap().metric.starts_with("os.")));
    let mut study = guest::guest_run();
    study.header.settings.mode = Name::new("study");
    assert!(analyse(&study).overview.is_none(), "a study answers its own question");
    let mut inputs = guest::guest_run();
    inputs.measurements.iter_mut().for_each(|measurement| measurement.planned.only_input = true);
    assert!(analyse(&inputs).overview.is_none(), "nobody asked for these");
}

#[test]
fn remedies_come_first_major_findings_are_cautions() {
    let mut run = guest::guest_run();
    run.status = RunStatus::Complete;
    let screen = overview_of(&run);
    let remedies: Vec<&str> = screen.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    let advice = "find the other work with top, stop it, and wait until the load falls";
    assert_eq!(remedies, ["sudo kelvin tune --apply", advice], "a note is no reason to act");
    assert_eq!(screen.remedies.iter().map(|remedy| remedy.is_command).collect::<Vec<_>>(), [true, false]);
    assert_eq!(screen.cautions, [""; 0]);
    run.header.clock.source_after = Some("hpet".into());
    assert!(self::overview_of(&run).cautions[0].contains("clock source changed"));
}

#[test]
fn precision_is_median_half_width() {
    let precision = overview_of(&guest::guest_run()).precision.unwrap();
    assert!(precision.figures > 40, "{precision:?}");
    assert!(precision.median > 0.0 && precision.median <= precision.p90 && precision.p90 < 0.3, "{precision:?}");
}

#[test]
fn peer_run_has_peer_rungs() {
    let mut run = guest::guest_run();
    let case = Case::new().with_word(net::Transport::Tcp).with_number(net::MESSAGE, 64);
    run.header.metrics.push(net::PEER_RTT);
    guest::measure(&mut run, &net::PEER_RTT, case, 120_000.0);
    add_measurement(&mut run, &net::PEER_CONNECT, Case::new(), Vec::new());
    run.header.metrics.push(net::PEER_CONNECT);
    let rungs = overview_of(&run).rungs;
    let peer: Vec<&str> =
        rungs.iter().filter(|rung| rung.label == "to the peer").map(|rung| rung.figure.text.as_str()).collect();
    assert_eq!(peer, ["120 µs", "not reached"]);
}

#[test]
fn moved_cpus_stand_out() {
    let mut run = guest::guest_run();
    run.header.metrics.push(mem::BANDWIDTH_CORE_TO_CORE);
    let case = Case::new().with_word(mem::MemoryCpus::All).with_number(mem::BYTES, 960 << 20);
    let rounds = [66.0, 67.0, 200.0, 66.5, 201.0, 199.0, 67.5, 66.2, 200.5, 198.5];
    add_scalars(&mut run, &mem::BANDWIDTH_CORE_TO_CORE, case, &rounds);
    let stand_out = answer(&run, StandOutQuestion::CpuDistance).unwrap();
    assert!(
        stand_out.text.starts_with("Core-to-core latency alternates between ") && stand_out.text.ends_with("."),
        "{}",
        stand_out.text
    );
    assert!(stand_out.text.split_whitespace().count() <= 25 && stand_out.factor > 2.9, "{stand_out:?}");
}

#[test]
fn largest_unskipped_size_is_shown() {
    let mut run = guest::guest_run();
    let case_of = |bytes: u64| {
        Case::new()
            .with_word(file::AccessOrder::Random)
            .with_word(file::CacheState::Direct)
            .with_number(file::BYTES, bytes)
    };
    let text = |run: &Run| {
        let rungs = overview_of(run).rungs;
        rungs.into_iter().find(|rung| rung.label == "4 KiB from disk").unwrap().figure.text
    };
    guest::measure(&mut run, &file::READ_ORDER, case_of(128 << 20), 70_000.0);
    assert_eq!(text(&run), "70 µs");
    run.measurements.last_mut().unwrap().skipped = Some(SkipReason::new("omitted by --quick"));
    assert_eq!(text(&run), "60 µs");
}

#[test]
fn memory_within_reported_cache_is_doubted() {
    let doubts_of =
        |run: &Run| -> Vec<Option<String>> { overview_of(run).rates.into_iter().map(|line| line.doubt).collect() };
    let mut run = guest::guest_run();
    assert!(doubts_of(&run).iter().all(Option::is_none), "960 MiB are beyond 480 MiB");
    let mut caches = run.header.machine.topology.caches.get().unwrap().clone();
    caches[2].bytes = 1 << 30;
    run.header.machine.topology.caches = Fact::known(caches, "a test");
    let doubts = doubts_of(&run);
    assert_eq!(doubts[0].as_deref(), Some("in 960 MiB, within the L3 of 1 GiB that is reported"));
    // Both CPUs have as much each.
    assert_eq!(doubts[1], None);
    assert!(doubts[2..].iter().all(Option::is_none), "{doubts:?}");
}

#[test]
fn quick_run_states_stream_message_size() {
    let mut run = guest::guest_run();
    let case_of = |message: u64| {
        Case::new()
            .with_number(net::MESSAGE, message)
            .with_word(kelvin_core::catalogue::PairPlacement::SameCpu)
            .with_number(net::STREAMS, 1)
    };
    let line = |run: &Run| overview_of(run).rates.into_iter().find(|line| line.label == "TCP on this host").unwrap();
    assert_eq!(line(&run).doubt, None);
    let is_tcp =
        |measurement: &&mut kelvin_core::Measurement| measurement.planned.probe == net::BANDWIDTH_TCP.id.as_str();
    run.measurements
        .iter_mut()
        .filter(is_tcp)
        .for_each(|measurement| measurement.skipped = Some(SkipReason::new("omitted by --quick")));
    guest::measure(&mut run, &net::BANDWIDTH_TCP, case_of(4 << 10), 1.8e9);
    let line = line(&run);
    assert_eq!(line.doubt.as_deref(), Some("in messages of 4 KiB"));
    assert_eq!(line.rates[0].figure.text, "1.80 GB/s");
}

#[test]
fn disk_block_time_is_consistent() {
    let mut run = guest::guest_run();
    guest::replace(&mut run, &file::DEVICE_LATENCY, &Case::new(), 20_000.0);
    let screen = overview_of(&run);
    let rung = screen.rungs.iter().find(|rung| rung.label == "4 KiB from disk").unwrap();
    let disk = screen.stand_outs.iter().find(|stand_out| stand_out.text.starts_with("The disk reads")).unwrap();
    assert!(
        disk.text.ends_with("a single one takes 59.6 µs.") && rung.figure.text == "60 µs",
        "{}: {rung:?}",
        disk.text
    );
    let place = rung.figure.source.as_ref().unwrap();
    assert!(disk.sides.iter().any(|side| side.metric == place.metric && side.case == place.case), "{disk:?}");
}

/// A run of a machine of two sockets, each with two caches of two cores, CPU by CPU, where a line takes these times between two cores of
/// a cache, of a socket and of two sockets.
fn core_distance_stand_out(times: [f64; 3]) -> Option<StandOut> {
    let mut run = guest::guest_run();
    run.measurements.retain(|measurement| measurement.planned.probe != mem::CORE_TO_CORE.id);
    let topology = &mut run.header.machine.topology;
    let core = |cpu| CoreLocation { cpus: vec![cpu], socket: Some(cpu / 4), die: None };
    let shared_by = (0..8).step_by(2).map(|cpu| vec![cpu, cpu + 1]).collect();
    let cache =
        CacheInstances { level: 3, kind: CacheKind::Unified, bytes: 32 << 20, ways: None, line_bytes: None, shared_by };
    topology.siblings = Fact::known((0..8).map(|cpu| vec![cpu]).collect(), "a test");
    topology.core_locations = Fact::known((0..8).map(core).collect(), "a test");
    topology.cache_instances = Fact::known(vec![cache], "a test");
    topology.sockets = Fact::known(2, "a test");
    topology.nodes = Fact::known(Vec::new(), "a test");
    for (from, to) in (0..8).flat_map(|from| (from + 1..8).map(move |to| (from, to))) {
        let distance = if from / 2 == to / 2 { 0 } else { 1 + usize::from(from / 4 != to / 4) };
        let case = Case::new().with_number(mem::FROM_CPU, from).with_number(mem::TO_CPU, to);
        // Some pairs of a distance are a little nearer than others.
        add_scalars(&mut run, &mem::CORE_TO_CORE, case, &steady(times[distance] * (1.0 + 0.01 * to as f64)));
    }
    answer(&run, StandOutQuestion::CoreDistance)
}

#[test]
fn farthest_cores_stand_out_beside_the_nearest() {
    let stand_out = core_distance_stand_out([40.0, 100.0, 200.0]).unwrap();
    assert_eq!(
        stand_out.text,
        "A cache line takes 210 ns between sockets, 5.1 times as long as between cores of one L3 cache."
    );
    assert!(stand_out.text.split_whitespace().count() <= 25);
    assert_eq!(stand_out.sides.len(), 2);
    assert_eq!(core_distance_stand_out([40.0, 45.0, 50.0]), None, "a quarter more");
}

/// What is said of the nodes of the server, where a load from another socket takes this many times as long as 115 ns.
fn node_distance_stand_out(times: f64) -> Option<StandOut> {
    let mut run = large_machine::server_run();
    let node = |axis: Axis, case: &Case| axis.number_in(case).unwrap();
    let is_between_sockets = |case: &Case| node(mem::FROM_NODE, case) / 4 != node(mem::TO_NODE, case) / 4;
    let of_nodes = run.measurements.iter().filter(|measurement| measurement.planned.probe == mem::NODE_LATENCY.id);
    let cases: Vec<Case> = of_nodes.map(|measurement| measurement.planned.case.clone()).collect();
    for case in cases.into_iter().filter(is_between_sockets) {
        guest::replace(&mut run, &mem::NODE_LATENCY, &case, 115.0 * times);
    }
    answer(&run, StandOutQuestion::NodeDistance)
}

#[test]
fn farthest_node_stands_out_beside_own_node() {
    let stand_out = node_distance_stand_out(2.1).unwrap();
    assert_eq!(
        stand_out.text,
        "A load from the memory of the farthest node takes 242 ns, 2.1 times as long as from a CPU's own node."
    );
    assert!(stand_out.text.split_whitespace().count() <= 25);
    assert!((stand_out.factor - 2.1).abs() < 1e-9);
    let pairs =
        stand_out.sides.iter().map(|side| [mem::FROM_NODE, mem::TO_NODE].map(|axis| axis.number_in(&side.case)));
    let is_far = |pair: [Option<u64>; 2]| pair[0].unwrap() / 4 != pair[1].unwrap() / 4;
    assert_eq!(pairs.map(is_far).collect::<Vec<_>>(), [false, true]);
    assert_eq!(node_distance_stand_out(1.25), None, "a quarter more");
    assert_eq!(answer(&guest::guest_run(), StandOutQuestion::NodeDistance), None, "one node");
}

#[test]
fn large_machine_says_what_its_cpus_and_nodes_do() {
    let sentences = |run: &Run| -> Vec<String> {
        let subjects = [
            StandOutQuestion::ServiceScaling,
            StandOutQuestion::CoreDistance,
            StandOutQuestion::NodeDistance,
            StandOutQuestion::MemoryScaling,
            StandOutQuestion::DeviceScaling,
        ];
        let stand_outs = overview_of(run).stand_outs.into_iter();
        stand_outs.filter(|stand_out| subjects.contains(&stand_out.question)).map(|stand_out| stand_out.text).collect()
    };
    insta::assert_debug_snapshot!(
        [large_machine::server_run(), large_machine::hybrid_run()].map(|run| sentences(&run))
    );
}

#[test]
fn scaling_is_not_lost_behind_other_sentences() {
    let mut run = large_machine::server_run();
    // What such a machine may have besides: congestion control, streams between CPUs, evicted pages, a cached disk, memory without huge pages.
    run.header.machine.kernel.congestion_control = Fact::known("bbr".into(), "a test");
    run.header.metrics.extend([net::BANDWIDTH_TCP, net::BANDWIDTH_TCP_SYSTEM, mem::FAULT_MINOR]);
    run.header.metrics.extend([file::IDLE_RETAINED, file::IDLE_TIME]);
    let message = Case::new().with_word(TwoCpus).with_number(net::MESSAGE, 64 << 10);
    guest::measure(&mut run, &net::BANDWIDTH_TCP_SYSTEM, message, 1e9);
    for (case, rate) in [
        (guest::cases::streams(TwoCpus, 1), 8.6e9),
        (guest::cases::streams(TwoCpus, 2), 6e9),
        (guest::cases::streams(kelvin_core::catalogue::PairPlacement::SameCpu, 2), 16e9),
    ] {
        guest::measure(&mut run, &net::BANDWIDTH_TCP, case, rate);
    }
    add_scalars(&mut run, &file::IDLE_RETAINED, Case::new(), &[0.75; 7]);
    add_scalars(&mut run, &file::IDLE_TIME, Case::new(), &[140e9; 7]);
    guest::replace(&mut run, &file::DEVICE_REPEAT_READ, &Case::new(), 3.0);
    for (page, time) in [(mem::FaultPage::Anonymous, 4_000.0), (mem::FaultPage::Huge, 56_700.0)] {
        guest::measure(&mut run, &mem::FAULT_MINOR, Case::new().with_word(page), time);
    }
    let questions = stand_out_questions(&overview_of(&run));
    assert_eq!(questions.len(), 8, "{questions:?}");
    assert_eq!(
        questions[questions.len() - 4..],
        [
            StandOutQuestion::ServiceScaling,
            StandOutQuestion::MemoryScaling,
            StandOutQuestion::DeviceScaling,
            StandOutQuestion::FreshMemory
        ],
        "{questions:?}"
    );
}

/// Adds the rate and the efficiency of a service in tasks of a kind at a number of CPUs, by the efficiency round by round.
fn add_service(run: &mut Run, case: (os::KernelService, os::TaskKind, u64), rounds: &[f64]) {
    let (service, kind, cpus) = case;
    let case = Case::new().with_word(service).with_word(kind).with_number(os::WORKING_CPUS, cpus);
    let rates: Vec<f64> = rounds.iter().map(|efficiency| 1e6 * cpus as f64 * efficiency).collect();
    run.header.metrics.extend([os::SCALING_RATE, os::SCALING_EFFICIENCY]);
    add_scalars(run, &os::SCALING_RATE, case.clone(), &rates);
    add_scalars(run, &os::SCALING_EFFICIENCY, case, rounds);
}

/// Eight rounds within a percent of a figure.
fn steady(figure: f64) -> [f64; 8] {
    [0.995, 1.005, 0.99, 1.01, 1.0, 1.0, 0.997, 1.003].map(|share| share * figure)
}

/// What is said of mapping memory in threads where it and null calls have these efficiencies by CPUs.
fn scaling_stand_out(null_calls: &[(u64, f64)], mapping: &[(u64, f64)]) -> Option<StandOut> {
    let mut run = guest::guest_run();
    for (service, points) in [(os::KernelService::NullCall, null_calls), (os::KernelService::MmapMunmap, mapping)] {
        for &(cpus, figure) in points {
            add_service(&mut run, (service, os::TaskKind::Threads, cpus), &steady(figure));
        }
    }
    answer(&run, StandOutQuestion::ServiceScaling)
}

#[test]
fn service_that_stops_scaling_is_named_with_its_count() {
    let two = scaling_stand_out(&[(1, 1.0), (2, 0.99)], &[(1, 1.0), (2, 0.19)]).unwrap();
    assert_eq!(two.text, "Mapping memory stops scaling at 1 of 2 CPUs in threads of one process.");
    assert!((two.factor - 0.99 / 0.19).abs() < 1e-9, "{two:?}");
    assert_eq!(two.sides.len(), 2);
    assert!((two.ratio.unwrap().value - two.sides[1].value / two.sides[0].value).abs() < 1e-9);
    // The rates are 1, 2, 3.6, 3.8 and 3.7 times that of one.
    let curve = [(1, 1.0), (2, 1.0), (4, 0.9), (8, 0.475), (16, 0.231)];
    let all = [(1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (16, 0.95)];
    let many = scaling_stand_out(&all, &curve).unwrap();
    assert_eq!(many.text, "Mapping memory stops scaling at 4 of 16 CPUs in threads of one process.");
    // It begins again with all of them.
    let again = [(1, 1.0), (2, 1.0), (4, 0.9), (8, 0.475), (16, 0.4)];
    assert_eq!(scaling_stand_out(&all, &again), None);
}

/// What is said of memory that gives these GB/s by the CPUs at work, where null calls have these efficiencies.
fn memory_scaling_stand_out(null_calls: &[(u64, f64)], rates: &[(u64, f64)]) -> Option<String> {
    let mut run = guest::guest_run();
    run.header.metrics.push(mem::SCALING_READ);
    for &(cpus, figure) in null_calls {
        add_service(&mut run, (os::KernelService::NullCall, os::TaskKind::Threads, cpus), &steady(figure));
    }
    for &(cpus, rate) in rates {
        let case = Case::new().with_word(mem::MemoryNodes::All).with_number(mem::BYTES, 1 << 30);
        add_scalars(&mut run, &mem::SCALING_READ, case.with_number(os::WORKING_CPUS, cpus), &steady(1e9 * rate));
    }
    answer(&run, StandOutQuestion::MemoryScaling).map(|stand_out| stand_out.text)
}

#[test]
fn count_at_which_memory_gives_no_more_is_named() {
    let all = [(1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (16, 0.95)];
    let rates = [(1, 18.0), (2, 35.0), (4, 66.0), (8, 68.0), (16, 67.0)];
    assert_eq!(
        memory_scaling_stand_out(&all, &rates).as_deref(),
        Some("Memory bandwidth stops growing at 4 of 16 CPUs: 66.0 GB/s, 3.7 times that of one.")
    );
    let one = [(1, 18.0), (2, 18.5), (4, 18.0)];
    let text = memory_scaling_stand_out(&all[..3], &one);
    assert_eq!(text.as_deref(), Some("Memory bandwidth stops growing at 1 of 4 CPUs: it reads 18.0 GB/s."));
    // It grows to the last; or the CPUs for more are not there.
    assert_eq!(memory_scaling_stand_out(&all[..3], &rates[..3]), None);
    let quota = [(1, 1.0), (2, 1.0), (4, 1.0), (8, 0.5), (16, 0.25)];
    assert_eq!(memory_scaling_stand_out(&quota, &rates), None);
    assert_eq!(memory_scaling_stand_out(&[], &rates), None);
}

#[test]
fn all_services_that_stop_are_in_one_sentence() {
    use os::KernelService::{ConnectAccept, CreateUnlink, ForkExitWait, MmapMunmap, NullCall, PageFault};
    let text = |services: &[(os::KernelService, f64)], processes: f64| {
        let mut run = guest::guest_run();
        for cpus in [1, 2, 4, 8, 16] {
            for &(service, most) in services.iter().chain(&[(NullCall, 16.0)]) {
                let efficiency = (cpus as f64).min(most) / cpus as f64;
                add_service(&mut run, (service, os::TaskKind::Threads, cpus), &steady(efficiency));
            }
        }
        for &(service, _) in services {
            add_service(&mut run, (service, os::TaskKind::Processes, 16), &steady(processes));
        }
        let answer = answer(&run, StandOutQuestion::ServiceScaling).unwrap();
        assert!(answer.text.split_whitespace().count() <= 25, "{}", answer.text);
        // The factor is that of the worst.
        assert!((answer.factor - 16.0).abs() < 1e-9, "{answer:?}");
        answer.text
    };
    let three = [(CreateUnlink, 4.0), (MmapMunmap, 1.0), (PageFault, 2.0)];
    assert_eq!(
        text(&three, 0.9),
        "These stop scaling in threads: mapping memory at 1 of 16 CPUs, touching new memory at 2 and creating files at 4; processes go further."
    );
    let end = "mapping memory at 1 of 16 CPUs, touching new memory at 2 and creating files at 4.";
    assert_eq!(text(&three, 0.3), format!("These stop scaling in threads: {end}"));
    assert_eq!(
        text(&[&three[..], &[(ForkExitWait, 8.0), (ConnectAccept, 4.0)]].concat(), 0.9),
        "These stop scaling in threads: mapping memory at 1 of 16 CPUs, touching new memory at 2, creating files at 4 and 2 more."
    );
}

/// What is said of the disk that reads so many thousand blocks by jobs, where null calls have these efficiencies.
fn device_stand_out(null_calls: &[(u64, f64)], rates: &[(u64, f64)]) -> Option<StandOut> {
    let mut run = guest::guest_run();
    run.header.metrics.push(file::JOBS_IOPS);
    for &(cpus, figure) in null_calls {
        add_service(&mut run, (os::KernelService::NullCall, os::TaskKind::Threads, cpus), &steady(figure));
    }
    for &(jobs, rate) in rates {
        let case = Case::new().with_number(file::JOBS, jobs).with_number(file::QUEUE_DEPTH, file::JOBS_DEPTH);
        add_scalars(&mut run, &file::JOBS_IOPS, case, &steady(1e3 * rate));
    }
    answer(&run, StandOutQuestion::DeviceScaling)
}

#[test]
fn disk_stands_out_that_one_cpu_leaves_idle() {
    let all = [(1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (16, 1.0)];
    let rates = [(1, 250.0), (2, 490.0), (4, 800.0), (8, 812.0), (16, 810.0)];
    let stand_out = device_stand_out(&all, &rates).unwrap();
    assert_eq!(
        stand_out.text,
        "Random disk reads stop growing at 4 of 16 jobs: 800 thousand blocks of 4 KiB a second, 3.2 times those of one."
    );
    assert!(stand_out.text.split_whitespace().count() <= 25);
    assert!((stand_out.factor - 3.2).abs() < 1e-9, "{stand_out:?}");
    let growing = [(1, 250.0), (2, 490.0), (4, 900.0), (8, 1600.0), (16, 2900.0)];
    assert_eq!(
        device_stand_out(&all, &growing).unwrap().text,
        "Random disk reads still grow at 16 jobs: 2.90 million blocks of 4 KiB a second, 12 times those of one."
    );
    assert_eq!(device_stand_out(&all, &[(1, 80.0), (2, 81.0), (4, 80.0)]), None, "one CPU gets all");
    assert_eq!(device_stand_out(&all[..2], &[(1, 80.0), (2, 160.0)]), None, "two numbers");
    assert_eq!(device_stand_out(&[(4, 1.0), (16, 0.25)], &rates), None, "the CPUs are not there");
}

#[test]
fn disk_sentence_names_its_one_cpu() {
    let sentence = |run: &Run| answer(run, StandOutQuestion::Disk).unwrap().text;
    let mut run = guest::guest_run();
    assert!(sentence(&run).contains("blocks of 4 KiB a second; a single one takes"), "{}", sentence(&run));
    // The sentence on jobs takes a place.
    run.predictions.clear();
    run.header.metrics.push(file::JOBS_IOPS);
    for jobs in [1, 2, 4] {
        let case = Case::new().with_number(file::JOBS, jobs).with_number(file::QUEUE_DEPTH, file::JOBS_DEPTH);
        add_scalars(&mut run, &file::JOBS_IOPS, case, &steady(1e5 * jobs as f64));
    }
    let text = sentence(&run);
    assert!(text.contains("blocks of 4 KiB a second from one CPU; a single one takes"), "{text}");
    assert!(text.split_whitespace().count() <= 25, "{text}");
}

#[test]
fn service_is_named_with_what_processes_do() {
    use os::KernelService::{ForkExitWait, NullCall, PageFault};
    use os::TaskKind::{Processes, Threads};
    let mut run = guest::guest_run();
    for (service, both) in [(NullCall, 1.0), (ForkExitWait, 0.5), (PageFault, 0.4)] {
        add_service(&mut run, (service, Threads, 1), &steady(1.0));
        add_service(&mut run, (service, Threads, 2), &steady(both));
    }
    add_service(&mut run, (ForkExitWait, Processes, 2), &steady(0.6));
    add_service(&mut run, (PageFault, Processes, 2), &steady(0.94));
    let text = |run: &Run| answer(run, StandOutQuestion::ServiceScaling).unwrap().text;
    // Processes that do not scale either are no remedy.
    assert_eq!(text(&run), "These stop scaling in threads: forking and touching new memory at 1 of 2 CPUs.");
    let without = |service: os::KernelService| {
        let mut run = run.clone();
        run.measurements.retain(|one| !service.point().is_in_case(&one.planned.case));
        text(&run)
    };
    assert_eq!(
        without(ForkExitWait),
        "Touching new memory stops scaling at 1 of 2 CPUs in threads of one process; 2 processes reach 1.9 times the rate of one."
    );
    assert!(without(ForkExitWait).split_whitespace().count() <= 25);
    assert_eq!(without(PageFault), "Forking stops scaling at 1 of 2 CPUs in threads of one process.");
}

#[test]
fn nothing_is_said_where_scaling_cannot_be_told() {
    let stops = [(1, 1.0), (2, 0.19)];
    assert_eq!(scaling_stand_out(&[(1, 1.0)], &[(1, 1.0)]), None, "one CPU");
    assert_eq!(scaling_stand_out(&[(1, 1.0), (2, 0.62)], &stops), None, "two threads of one core");
    assert_eq!(scaling_stand_out(&[(1, 1.0), (2, 0.5)], &stops), None, "a quota of one CPU");
    assert_eq!(scaling_stand_out(&[], &stops), None, "no null calls to compare with");
    assert_eq!(scaling_stand_out(&[(1, 1.0), (2, 1.0)], &[(1, 1.0), (2, 0.62)]), None, "a quarter more");
    let with = |rounds: &[f64], null_calls: &[f64]| {
        use os::KernelService::{MmapMunmap, NullCall};
        use os::TaskKind::Threads;
        let mut run = guest::guest_run();
        for (service, both) in [(NullCall, null_calls), (MmapMunmap, rounds)] {
            add_service(&mut run, (service, Threads, 1), &steady(1.0)[..both.len()]);
            add_service(&mut run, (service, Threads, 2), both);
        }
        answer(&run, StandOutQuestion::ServiceScaling).is_some()
    };
    assert!(with(&steady(0.19), &steady(1.0)));
    assert!(!with(&[0.1, 0.9, 0.3, 0.7, 0.2, 0.95, 0.15, 0.5], &steady(1.0)), "other work took the CPUs at times");
    assert!(!with(&steady(0.19), &[0.4, 1.1, 0.5, 1.0, 0.6, 0.9, 0.45, 1.0]), "it took them from null calls too");
    assert!(!with(&steady(0.19)[..2], &steady(1.0)[..2]), "two rounds");
    assert!(with(&steady(0.19)[..3], &steady(1.0)[..3]), "all pairs of three rounds");
}
