//! What limits a server under load, on simulated studies whose limit is known by construction.

use kelvin_analysis::testing::load::{PlantedStudy, SimulatedStation, SimulatedStudy, combined_run, user_grid};
use kelvin_analysis::testing::study;
use kelvin_analysis::{StatedConclusion, Study, StudyAnswer, studies};
use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::Resource::{
    self, ClientCpu, Disk, Generator, Link, ServerCpu, ServerThread, Workers,
};
use kelvin_core::catalogue::load::hosts::{
    CPU_ALLOWED, CPU_STEAL, CPU_THROTTLED, CPU_USER, DISK_WRITES, LISTEN_OVERFLOWS, LoadHost, PRESSURE_IO,
    RETRANSMITTED_SEGMENTS, THREADS_WITHOUT_CPU,
};
use kelvin_core::catalogue::load::{
    DISK_BYTE_RATE, IN_FLIGHT, LATENESS, RequestPattern, SENT_BYTE_RATE, THROUGHPUT, UTILISATION,
};
use kelvin_core::{
    Case, Claim, Disturbance, DisturbanceClaim, LoadClaim, LoadDoubt, LoadFigure, LoadLaw, LoadLimit, LoadVerdict,
    Metric, Name, NextLimitClaim, Readings, RequestLocation, RoundOutcome, Run, UnknownLimit, UnsampledLimit,
};

fn server_of(milliseconds: [f64; 4]) -> SimulatedStudy {
    SimulatedStudy::with_demands(milliseconds)
}

fn published() -> SimulatedStudy {
    SimulatedStudy::published_server()
}

/// With a station that nobody watches.
fn with_lock(mut simulated: SimulatedStudy, milliseconds: f64) -> SimulatedStudy {
    simulated.stations.push(SimulatedStation { resource: None, demand: milliseconds / 1e3, servers: 1 });
    simulated
}

fn load_study(run: &Run) -> Study {
    study(run, "load").unwrap()
}

fn claims<'s, T>(study: &'s Study, select: impl Fn(&'s LoadClaim) -> Option<T>) -> Vec<(T, &'s StatedConclusion)> {
    let matching = |conclusion: &'s StatedConclusion| match &conclusion.conclusion.claim {
        Claim::Load(claim) => select(claim).map(|value| (value, conclusion)),
        _ => None,
    };
    study.conclusions.iter().filter_map(matching).collect()
}

fn limit(run: &Run) -> LoadLimit {
    let study = load_study(run);
    let limits = claims(&study, |claim| match claim {
        LoadClaim::Limit(limit) => Some(limit),
        _ => None,
    });
    let [(limit, conclusion)] = limits.as_slice() else { panic!("{limits:?}") };
    let is_known = !matches!(limit.verdict, LoadVerdict::Unknown { .. });
    assert_eq!(conclusion.conclusion.holds, (is_known && limit.doubts.is_empty()).then_some(true));
    (***limit).clone()
}

fn law(run: &Run, expected: LoadLaw) -> Option<bool> {
    let study = load_study(run);
    let checks = claims(&study, |claim| match claim {
        LoadClaim::Law(check) if check.law == expected => Some(()),
        _ => None,
    });
    let [(_, conclusion)] = checks.as_slice() else { panic!("{checks:?}") };
    conclusion.conclusion.holds
}

fn resource_name(resource: Resource) -> Name {
    Name::new(resource.name())
}

/// Multiplies what was read of a metric at some cases.
fn scale_readings(run: &mut Run, metric: &Metric, factor: f64, is_at: impl Fn(&Case) -> bool) {
    for measurement in run.measurements.iter_mut().filter(|measurement| is_at(&measurement.planned.case)) {
        for round in &mut measurement.rounds {
            let RoundOutcome::Measured(readings) = &mut round.outcome else { continue };
            for reading in readings.iter_mut().filter(|reading| reading.metric == metric.id) {
                let Readings::Scalars(values) = &mut reading.readings else { continue };
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

fn at_resource(resource: Resource) -> impl Fn(&Case) -> bool {
    move |case| Resource::of(case) == Some(resource)
}

fn unknown_verdict(reason: UnknownLimit) -> LoadVerdict {
    LoadVerdict::Unknown { reason }
}

/// What limits that was not watched, with its milliseconds to the nearest ten.
fn unwatched_limit(limit: &LoadLimit) -> (&'static str, u64, RequestLocation) {
    let tens = |nanoseconds: u64| (nanoseconds as f64 / 1e7).round() as u64 * 10;
    match limit.verdict {
        LoadVerdict::NotSampled {
            limit: UnsampledLimit::LimitedConcurrency { concurrency: 1, nanoseconds },
            location,
        } => ("one", tens(nanoseconds), location),
        LoadVerdict::NotSampled { limit: UnsampledLimit::LimitedConcurrency { nanoseconds, .. }, location } => {
            ("few", tens(nanoseconds), location)
        }
        LoadVerdict::NotSampled { limit: UnsampledLimit::PerRequest { nanoseconds }, location } => {
            ("each", tens(nanoseconds), location)
        }
        LoadVerdict::NotSampled { limit: UnsampledLimit::Losses { per_thousand }, location } => {
            ("losses", per_thousand, location)
        }
        LoadVerdict::NotSampled { limit: UnsampledLimit::Refusals { percent }, location } => {
            ("refusals", percent, location)
        }
        _ => panic!("{limit:?}"),
    }
}

#[test]
fn limited_concurrency_is_named_by_location() {
    let lock = || with_lock(server_of([20.0, 10.0, 20.0, 5.0]), 200.0);
    let load_limit = limit(&lock().run());
    assert_eq!(
        (unwatched_limit(&load_limit), load_limit.doubts.as_slice()),
        (("one", 200, RequestLocation::Server), &[LoadDoubt::NotSampled][..])
    );
    // A tenth of what the client waits for is at the server.
    let mut proxied = lock().run();
    scale_readings(&mut proxied, &IN_FLIGHT, 0.1, |_| true);
    assert_eq!(unwatched_limit(&limit(&proxied)), ("one", 200, RequestLocation::Between));
    let in_network = SimulatedStudy { network_share: 0.9, ..lock() };
    assert_eq!(unwatched_limit(&limit(&in_network.run())).2, RequestLocation::Network);
    // The disk reads what is served, and tasks wait for it.
    assert_eq!(unwatched_limit(&limit(&lock().with_host_figure(&PRESSURE_IO, 0.9).run())).2, RequestLocation::Disk);
    // It has what it writes flushed, and the disk three writes of each request. Of a log that is written behind nobody waits.
    let log = |written_bytes, writes| {
        let writing_study = SimulatedStudy { written_bytes, cache: CacheState::Cached, ..lock() };
        unwatched_limit(&limit(&writing_study.with_host_figure(&DISK_WRITES, writes).run())).2
    };
    assert_eq!(
        [log(4096.0, 15.0), log(100.0, 15.0), log(4096.0, 0.1)],
        [RequestLocation::Disk, RequestLocation::Server, RequestLocation::Server]
    );
    let mut three_places = lock();
    three_places.stations[4] = SimulatedStation { resource: None, demand: 0.6, servers: 3 };
    let load_limit = limit(&SimulatedStudy { users: vec![1, 2, 3, 4, 6, 8, 12, 16, 24], ..three_places }.run());
    assert!(
        matches!(
            load_limit.verdict,
            LoadVerdict::NotSampled { limit: UnsampledLimit::LimitedConcurrency { concurrency: 3, .. }, .. }
        ),
        "{load_limit:?}"
    );
    // Without a visit to one user it is not known how long a request takes by itself.
    let without_single_user = limit(&SimulatedStudy { users: vec![4, 8, 16, 24], ..lock() }.run());
    assert_eq!(without_single_user.verdict, unknown_verdict(UnknownLimit::NoneBusy));
    let study = load_study(&lock().run());
    let text = &study.answers[0].text;
    assert!(text.starts_with("What limits is probably a lock in the server"), "{text}");
}

#[test]
fn per_request_delay_is_named() {
    let mut sleep = server_of([0.2, 0.1, 0.2, 0.1]);
    sleep.stations.push(SimulatedStation { resource: None, demand: 0.04, servers: 1000 });
    let load_limit = limit(&sleep.run());
    assert_eq!((unwatched_limit(&load_limit), load_limit.knee), (("each", 40, RequestLocation::Server), None));
    // Users who think for longer than that are not held up by it, and one that each other's requests hold up is none of its own.
    let thinking = SimulatedStudy { think: 1000, users: vec![1, 2, 4, 8], ..sleep };
    assert_eq!(limit(&thinking.run()).verdict, unknown_verdict(UnknownLimit::StillGrowing { users: 8 }));
}

#[test]
fn losses_limit_only_requests_in_network() {
    let lost = |network_share| {
        let mut delayed = server_of([0.2, 0.1, 0.2, 0.1]);
        // Two stations, so that it differs from one that serves one after another and waits as long alone.
        delayed.stations.extend([0.04, 0.04].map(|demand| SimulatedStation { resource: None, demand, servers: 2 }));
        SimulatedStudy { network_share, users: vec![2, 4, 8, 16, 24, 32], ..delayed }
            .with_host_figure(&RETRANSMITTED_SEGMENTS, 0.05)
    };
    let load_limit = limit(&lost(0.9).run());
    assert_eq!(unwatched_limit(&load_limit), ("losses", 50, RequestLocation::Network));
    assert_eq!(load_limit.doubts[0], LoadDoubt::NotSampled);
    assert_eq!(limit(&lost(0.1).run()).verdict, unknown_verdict(UnknownLimit::NoneBusy));
    // While throughput grows as well, of which no saturation is known.
    let growing_study = SimulatedStudy { users: vec![2, 3, 4], ..lost(0.9) };
    let load_limit = limit(&growing_study.run());
    assert_eq!((unwatched_limit(&load_limit).0, load_limit.knee), ("losses", None));
}

#[test]
fn refused_requests_are_the_limit() {
    let load_limit = limit(&SimulatedStudy { failures_per_answer: 0.25, ..published() }.run());
    assert_eq!(unwatched_limit(&load_limit), ("refusals", 20, RequestLocation::Server));
    assert_eq!(load_limit.doubts, [LoadDoubt::NotSampled, LoadDoubt::Errors]);
}

#[test]
fn each_verdict_rule_applies() {
    let mut over_capacity = published().run();
    scale_readings(&mut over_capacity, &UTILISATION, 1.3, at_resource(Link));
    let resource_verdict = |resource| LoadVerdict::Resource { resource: resource_name(resource) };
    let quota =
        |periods| with_lock(server_of([20.0, 80.0, 10.0, 5.0]), 110.0).with_host_figure(&CPU_THROTTLED, periods).run();
    let planted: Vec<(&str, Run, LoadVerdict)> = vec![
        ("one visit", SimulatedStudy { visits: 1, ..published() }.run(), unknown_verdict(UnknownLimit::TooFewSamples)),
        (
            "two numbers",
            SimulatedStudy { users: vec![1, 2], ..published() }.run(),
            unknown_verdict(UnknownLimit::TooFewSamples),
        ),
        (
            "a wrong capacity",
            over_capacity,
            unknown_verdict(UnknownLimit::BeyondCapacity { resource: resource_name(Link) }),
        ),
        (
            "few users",
            SimulatedStudy { think: 9_000, ..published() }.run(),
            unknown_verdict(UnknownLimit::StillGrowing { users: 22 }),
        ),
        (
            "a lock without a visit to one user",
            SimulatedStudy { users: vec![2, 4, 8, 16], ..with_lock(server_of([40.0, 10.0, 50.0, 5.0]), 110.0) }.run(),
            unknown_verdict(UnknownLimit::NoneBusy),
        ),
        (
            "a lock beside a disk that is used",
            with_lock(server_of([80.0, 10.0, 40.0, 5.0]), 110.0).run(),
            unknown_verdict(UnknownLimit::NoneSaturated { busiest: resource_name(Disk) }),
        ),
        (
            "a slow client",
            server_of([10.0, 10.0, 20.0, 70.0]).run(),
            LoadVerdict::Client { resource: resource_name(Generator) },
        ),
        ("a slow link", published().run(), resource_verdict(Link)),
        ("a slow disk", server_of([120.0, 10.0, 40.0, 5.0]).run(), resource_verdict(Disk)),
        ("slow CPUs", server_of([10.0, 90.0, 20.0, 5.0]).run(), resource_verdict(ServerCpu)),
        // A lock keeps the mean use of the CPU low, as the quota's unused remainders do.
        ("a quota that is spent", quota(0.95), resource_verdict(ServerCpu)),
        (
            "a quota that is spent now and then",
            quota(0.85),
            unknown_verdict(UnknownLimit::NoneSaturated { busiest: resource_name(ServerCpu) }),
        ),
        (
            "a quota spent in the few periods in which the server runs",
            with_lock(server_of([30.0, 50.0, 30.0, 5.0]), 110.0).with_host_figure(&CPU_THROTTLED, 1.0).run(),
            unknown_verdict(UnknownLimit::NoneBusy),
        ),
        (
            "one worker",
            SimulatedStudy { workers: Some(1), ..server_of([50.0, 30.0, 40.0, 5.0]) }.run(),
            resource_verdict(Workers),
        ),
    ];
    for (description, run, verdict) in planted {
        let limit = limit(&run);
        assert_eq!(limit.verdict, verdict, "{description}: {}", limit.rule);
    }
}

/// The mean of the generator's four threads is half of what its busiest one works: that one limits, and not a server that is nearly as full.
#[test]
fn busiest_generator_thread_counts_and_not_the_mean() {
    let study = |server_use: f64, busiest_factor: f64| {
        // At 100 requests/s the threads work half of the time, and the server this much.
        let mut study = server_of([1.0, 10.0 * server_use, 1.0, 0.0]);
        study.stations[3] = SimulatedStation { resource: Some(Generator), demand: 0.02, servers: 4 };
        study.stations.push(SimulatedStation { resource: None, demand: 0.01, servers: 1 });
        let mut run = study.run();
        scale_readings(&mut run, &UTILISATION, busiest_factor, at_resource(Generator));
        limit(&run).verdict
    };
    let client = LoadVerdict::Client { resource: resource_name(Generator) };
    // Half full, all four threads; and the busiest of them full: then the server is not the limit, however near its capacity it is.
    assert_ne!(study(0.92, 1.0), client);
    for server_use in [0.3, 0.8, 0.88, 0.92] {
        assert_eq!(study(server_use, 1.98), client, "{server_use}");
    }
    // Where the server is full as well, both are.
    assert!(matches!(study(0.99, 1.98), LoadVerdict::Both { .. }));
}

#[test]
fn balanced_resources_are_named_together() {
    let equal = limit(&server_of([100.0, 10.0, 98.0, 5.0]).run());
    let LoadVerdict::Both { resources } = &equal.verdict else { panic!("{equal:?}") };
    assert!(
        resources.contains(&resource_name(Disk)) && resources.contains(&resource_name(Link)) && resources.len() == 2,
        "{resources:?}"
    );
    assert_eq!(equal.doubts, []);
    // At the very margin, with larger errors, it is not certain whether one or both.
    let near_limit = limit(&SimulatedStudy { error: 0.03, ..server_of([100.0, 10.0, 90.0, 5.0]) }.run());
    assert!(!matches!(near_limit.verdict, LoadVerdict::Unknown { .. } | LoadVerdict::Client { .. }), "{near_limit:?}");
    let unequal = limit(&server_of([100.0, 10.0, 80.0, 5.0]).run());
    assert_eq!(unequal.verdict, LoadVerdict::Resource { resource: resource_name(Disk) });
}

#[test]
fn doubts_are_reported() {
    let any_case = |_: &Case| true;
    let doubts = |run: &Run| limit(run).doubts;
    let certain = published().run();
    assert_eq!(doubts(&certain), []);
    let mut late_run = certain.clone();
    scale_readings(&mut late_run, &LATENESS, 1e4, any_case);
    assert_eq!(doubts(&late_run), [LoadDoubt::LateGenerator]);
    let mut lost = certain.clone();
    scale_readings(&mut lost, &SENT_BYTE_RATE, 0.9, any_case);
    assert_eq!(doubts(&lost), [LoadDoubt::Law(LoadLaw::FlowBalance)]);
    let mut unwatched = published();
    unwatched.stations[3].resource = None;
    assert_eq!(doubts(&unwatched.run()), [LoadDoubt::ClientNotSampled]);
    let failing_requests = SimulatedStudy { failures_per_answer: 0.02, ..published() }.run();
    assert_eq!(doubts(&failing_requests), [LoadDoubt::Errors]);
}

#[test]
fn lateness_harmless_with_think_time_or_client_limit() {
    let lateness_doubts = |simulated: SimulatedStudy, times_as_late: f64| {
        let mut run = simulated.run();
        scale_readings(&mut run, &LATENESS, times_as_late, |_| true);
        limit(&run).doubts
    };
    // 0.6 s of answers that take 2 s, of users who think for 3 s.
    let thinking = || SimulatedStudy { think: 3000, users: user_grid(60), ..published() };
    assert_eq!(lateness_doubts(thinking(), 6e3), []);
    assert_eq!(lateness_doubts(thinking(), 6e4), [LoadDoubt::LateGenerator]);
    assert_eq!(lateness_doubts(server_of([10.0, 10.0, 20.0, 70.0]), 1e4), []);
}

#[test]
fn always_full_resource_explains_varying_throughput() {
    let mut server = server_of([40.0, 40.0, 40.0, 0.5]);
    (server.workers, server.requests, server.users) = (Some(1), 8, vec![1, 2, 3, 4, 6, 8]);
    let load_limit = limit(&server.run());
    assert_eq!(load_limit.verdict, LoadVerdict::Resource { resource: resource_name(Workers) });
    assert!(
        load_limit.utilisations[0].utilisation.low < 0.95,
        "by its throughput alone it would not be certain: {load_limit:?}"
    );
    assert_eq!(load_limit.doubts, [LoadDoubt::Untested], "and not that it is unexplained");
}

/// What hinders requests, with whether it is certain.
fn hindrances(run: &Run) -> Vec<(DisturbanceClaim, Option<bool>, String)> {
    let study = load_study(run);
    let matching_claims = claims(&study, |claim| match claim {
        LoadClaim::Disturbance(hindrance) => Some(hindrance.clone()),
        _ => None,
    });
    matching_claims
        .into_iter()
        .map(|(hindrance, conclusion)| (hindrance, conclusion.conclusion.holds, conclusion.text.clone()))
        .collect()
}

#[test]
fn hindrance_is_doubt_unless_limit_action() {
    let doubt = |disturbance| LoadDoubt::Disturbed { disturbance, of_server: true };
    // A disk that a lock keeps from being so full that nothing else can matter.
    let server = || with_lock(server_of([100.0, 10.0, 20.0, 5.0]), 100.0);
    let planted: [(&Metric, f64, Disturbance, &str, &str); 4] = [
        (
            &LISTEN_OVERFLOWS,
            3.0,
            Disturbance::AcceptQueue,
            "the accept queue of the server overflows: 3.00 connections",
            "the accept queue of the server overflows for a connection of each visit or more: 3.00 (",
        ),
        (
            &CPU_STEAL,
            0.2,
            Disturbance::Steal,
            "the hypervisor takes 20 % (20 % to 20 %) of the CPU time of the host",
            "the hypervisor takes at least 5.0 % of the CPU time of the host of the server: 20 % (20 % to 20 %)",
        ),
        (
            &CPU_THROTTLED,
            0.5,
            Disturbance::Quota,
            "its CPU quota keeps the server from running in 50 %",
            "its CPU quota keeps the server from running in at least 5.0 % of the quota's periods: 50 % (",
        ),
        (
            &RETRANSMITTED_SEGMENTS,
            0.03,
            Disturbance::Retransmissions,
            "TCP retransmits 3.0 % (3.0 % to 3.0 %) of the server's segments",
            "TCP retransmits at least 1.0 % of the server's segments: 3.0 % (3.0 % to 3.0 %)",
        ),
    ];
    assert_eq!(hindrances(&server().run()), []);
    for (metric, amount, disturbance, sentence, claimed) in planted {
        let run = server().with_host_figure(metric, amount).run();
        let limit = limit(&run);
        assert_eq!(limit.verdict, LoadVerdict::Resource { resource: resource_name(Disk) });
        assert!(limit.doubts.contains(&doubt(disturbance)), "{disturbance:?}: {:?}", limit.doubts);
        let observed = hindrances(&run);
        let [(hindrance, Some(true), text)] = observed.as_slice() else { panic!("{observed:?}") };
        assert_eq!(
            (hindrance.disturbance, hindrance.of_server, hindrance.is_how_it_limits),
            (disturbance, true, false)
        );
        assert!(text.starts_with(claimed), "{text}");
        let study = load_study(&run);
        let [StudyAnswer { text: answer_text, reasons }] = study.answers.as_slice() else {
            panic!("{:?}", study.answers)
        };
        assert!(answer_text.contains("is probably the limit"), "{answer_text}");
        assert!(reasons.iter().any(|line| line.contains(&sentence[1..])), "{reasons:?}");
    }
}

#[test]
fn limit_action_is_no_doubt() {
    let by_quota = server_of([10.0, 173.0, 46.0, 5.0]).with_host_figure(&CPU_THROTTLED, 0.95).run();
    let by_link = published().with_host_figure(&RETRANSMITTED_SEGMENTS, 0.03).run();
    for (run, resource) in [(by_quota, ServerCpu), (by_link, Link)] {
        let limit = limit(&run);
        assert_eq!(
            (&limit.verdict, limit.doubts.as_slice()),
            (&LoadVerdict::Resource { resource: resource_name(resource) }, &[][..])
        );
        let observed = hindrances(&run);
        assert!(matches!(observed.as_slice(), [(hindrance, ..)] if hindrance.is_how_it_limits), "{observed:?}");
    }
    // Users who were not let in are missing with any full resource.
    let turned_away = published().with_host_figure(&LISTEN_OVERFLOWS, 12.0).run();
    assert_eq!(
        limit(&turned_away).doubts,
        [LoadDoubt::Disturbed { disturbance: Disturbance::AcceptQueue, of_server: true }]
    );
}

#[test]
fn laws_hold_and_violations_are_found() {
    let certain = published().run();
    for expected_law in [LoadLaw::Little, LoadLaw::FlowBalance] {
        assert_eq!(law(&certain, expected_law), Some(true), "{expected_law:?}");
    }
    let miscounted = SimulatedStudy { in_flight_factor: 1.04, ..published() }.run();
    assert_eq!(law(&miscounted, LoadLaw::Little), Some(false));
    assert_eq!(limit(&miscounted).doubts, [LoadDoubt::Law(LoadLaw::Little)]);
    // At one number of users only.
    let mut miscounted_once = certain.clone();
    scale_readings(&mut miscounted_once, &IN_FLIGHT, 1.1, |case| {
        kelvin_core::catalogue::load::USERS.number_in(case) == Some(6)
    });
    assert_eq!(law(&miscounted_once, LoadLaw::Little), Some(false));
    let mut lost = certain.clone();
    scale_readings(&mut lost, &SENT_BYTE_RATE, 1.05, |_| true);
    assert_eq!(law(&lost, LoadLaw::FlowBalance), Some(false));
}

#[test]
fn unreached_saturation_has_no_figure() {
    let run = SimulatedStudy { think: 9_000, ..published() }.run();
    let load_limit = limit(&run);
    let last_load = run
        .measurements
        .iter()
        .filter(|measurement| kelvin_core::catalogue::load::USERS.number_in(&measurement.planned.case) == Some(22));
    let readings = last_load.flat_map(|measurement| &measurement.rounds).filter_map(|round| match &round.outcome {
        RoundOutcome::Measured(readings) => readings.iter().find(|reading| reading.metric == THROUGHPUT.id),
        _ => None,
    });
    let throughputs: Vec<f64> = readings
        .flat_map(|reading| match &reading.readings {
            Readings::Scalars(values) => values.clone(),
            _ => Vec::new(),
        })
        .collect();
    let mean = throughputs.iter().sum::<f64>() / throughputs.len() as f64;
    assert!((load_limit.saturation.value / mean - 1.0).abs() < 1e-9, "{:?} {mean}", load_limit.saturation);
    assert_eq!(load_limit.knee, None);
}

/// A pool of this many workers whose requests wait for 10 ms, one after another at a lock or all at once, and take next to nothing else.
fn waiting_pool(workers: usize, concurrency: usize, users: &[u64]) -> SimulatedStudy {
    let mut pool = server_of([0.02, 0.1, 0.05, 0.05]);
    pool.stations.push(SimulatedStation { resource: None, demand: 0.01, servers: concurrency });
    SimulatedStudy { workers: Some(workers), users: users.to_vec(), cache: CacheState::Cached, requests: 4000, ..pool }
}

#[test]
fn workers_waiting_for_lock_are_not_limit() {
    let workers_wait = |refuted| unknown_verdict(UnknownLimit::WorkersWait { refuted });
    let from_one: &[u64] = &[1, 2, 3, 4, 6, 8, 16, 32];
    for workers in [2, 4] {
        // One worker with a connection serves as much as all of them.
        let load_limit = limit(&waiting_pool(workers, 1, from_one).run());
        assert_eq!(unwatched_limit(&load_limit), ("one", 10, RequestLocation::Server), "{workers}: {load_limit:?}");
        // All have one from the fewest users on: that does not show what they wait for, but a visit with more of them does.
        let saturated = waiting_pool(workers, 1, &[4, 8, 16, 32]);
        assert_eq!(limit(&saturated.run()).verdict, workers_wait(false), "{workers}");
        let tested_pool = SimulatedStudy { tries_more_workers: true, ..saturated };
        assert_eq!(limit(&tested_pool.run()).verdict, workers_wait(true), "{workers}");
        let study = load_study(&tested_pool.run());
        let text = &study.answers[0].text;
        assert!(text.starts_with("What limits is not known: more workers serve no more"), "{text}");
        let matching_claims = claims(&study, |claim| matches!(claim, LoadClaim::MoreWorkers(_)).then_some(()));
        let [(_, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
        assert_eq!(conclusion.conclusion.holds, Some(false), "{}", conclusion.text);
        assert!(claims(&study, |claim| matches!(claim, LoadClaim::WhatIf(_)).then_some(())).is_empty());
    }
}

#[test]
fn idle_workers_limit_only_if_more_helped() {
    let by_workers = LoadVerdict::Resource { resource: resource_name(Workers) };
    let sleeping_pool = waiting_pool(4, 1000, &[1, 2, 3, 4, 6, 8, 16, 32]);
    let load_limit = limit(&sleeping_pool.run());
    assert_eq!((&load_limit.verdict, load_limit.doubts.as_slice()), (&by_workers, &[LoadDoubt::Untested][..]));
    let tested_pool = SimulatedStudy { tries_more_workers: true, ..sleeping_pool };
    let load_limit = limit(&tested_pool.run());
    assert_eq!((&load_limit.verdict, load_limit.doubts.as_slice()), (&by_workers, &[][..]));
    let study = load_study(&tested_pool.run());
    let matching_claims = claims(&study, |claim| match claim {
        LoadClaim::MoreWorkers(claim) => Some(claim.clone()),
        _ => None,
    });
    let [(claim, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
    assert_eq!((claim.workers, claim.users, conclusion.conclusion.holds), ([4, 8], 32, Some(true)));
    assert!((claim.ratio.value / 2.0 - 1.0).abs() < 0.05, "{claim:?}");
    let next = claims(&study, |claim| matches!(claim, LoadClaim::WhatIf(_)).then_some(()));
    assert!(next.is_empty(), "how many times as many would serve as many more was not seen: {next:?}");
    // Nothing distinguishes the sleep of a single worker from a lock.
    let single = limit(&waiting_pool(1, 1000, &[1, 2, 4, 8]).run());
    assert_eq!(single.verdict, unknown_verdict(UnknownLimit::WorkersWait { refuted: false }));
    // Nor is there growth to the end where all workers of many have a connection at last.
    let thinking = SimulatedStudy { think: 9_000, workers: Some(22), ..published() };
    assert_eq!(limit(&thinking.run()).verdict, unknown_verdict(UnknownLimit::StillGrowing { users: 22 }));
}

#[test]
fn use_beyond_capacity_is_unknown_limit() {
    let mut over_capacity = published().run();
    scale_readings(&mut over_capacity, &UTILISATION, 1.08, at_resource(Link));
    assert_eq!(
        limit(&over_capacity).verdict,
        unknown_verdict(UnknownLimit::BeyondCapacity { resource: resource_name(Link) })
    );
}

#[test]
fn threads_waiting_for_used_cpus_lack_cpu() {
    // The server has a quarter of a CPU, and would have all of it.
    let contended = || with_lock(server_of([10.0, 30.0, 20.0, 5.0]), 110.0).with_host_figure(&THREADS_WITHOUT_CPU, 0.7);
    let doubt = [LoadDoubt::Disturbed { disturbance: Disturbance::OffCpu, of_server: true }];
    let by_cpu = LoadVerdict::Resource { resource: resource_name(ServerCpu) };
    let busy_host = contended().with_host_figure(&CPU_USER, 0.9);
    let mut hidden_quota = contended();
    hidden_quota.hosts.retain(|(_, metric, _)| metric.id != CPU_THROTTLED.id);
    // A neighbour on the CPUs that it may run on, with others that are idle.
    let one_neighbour = contended().with_host_figure(&CPU_ALLOWED, 0.99);
    let cases =
        [("other work", &busy_host), ("a quota that cannot be seen", &hidden_quota), ("a neighbour", &one_neighbour)];
    for (description, study) in cases {
        let load_limit = limit(&study.run());
        let is_other_work = matches!(
            load_limit.verdict,
            LoadVerdict::NotSampled { limit: UnsampledLimit::OtherWork { .. }, location: RequestLocation::Server }
        );
        assert!(
            if description.starts_with("a quota") { load_limit.verdict == by_cpu } else { is_other_work },
            "{description}: {load_limit:?}"
        );
        assert!(load_limit.doubts.ends_with(&doubt), "{description}: {:?}", load_limit.doubts);
        assert!(hindrances(&study.run()).iter().any(|(.., text)| text.starts_with("threads of the server wait")));
    }
    // Other work on CPUs where it may not run takes nothing from it.
    let other_cpus = contended().with_host_figure(&CPU_USER, 0.9).with_host_figure(&CPU_ALLOWED, 0.4);
    assert_eq!(
        (limit(&other_cpus.run()).verdict, hindrances(&other_cpus.run())),
        (unknown_verdict(UnknownLimit::NoneBusy), vec![])
    );
    // On CPUs that are not full they wait for each other.
    assert_eq!(limit(&contended().run()).verdict, unknown_verdict(UnknownLimit::NoneBusy));
    assert_eq!(hindrances(&contended().run()), []);
}

/// A server whose requests take 0.4 ms of its CPU and 0.4 ms of the client's, and wait for 5 ms in all for CPUs that other work has: at the
/// server for this share of the time, and at the client.
fn beside_other_work(at_server: f64, at_client: f64) -> SimulatedStudy {
    let mut server = server_of([0.01, 0.4, 0.01, 0.4]);
    server.stations[3].resource = Some(ClientCpu);
    server.stations.push(SimulatedStation { resource: None, demand: 5e-3, servers: 4 });
    server.cache = CacheState::Cached;
    server.hosts.extend([(LoadHost::Client, &THREADS_WITHOUT_CPU, at_client), (LoadHost::Client, &CPU_ALLOWED, 1.0)]);
    server.with_host_figure(&CPU_ALLOWED, 1.0).with_host_figure(&THREADS_WITHOUT_CPU, at_server)
}

#[test]
fn other_work_limit_is_named() {
    let load_limit = limit(&beside_other_work(0.5, 0.35).run());
    let other_work = |limit: &LoadLimit| match limit.verdict {
        LoadVerdict::NotSampled { limit: UnsampledLimit::OtherWork { percent }, location } => Some((percent, location)),
        _ => None,
    };
    assert_eq!(other_work(&load_limit), Some((85, RequestLocation::Server)), "{load_limit:?}");
    assert_eq!(load_limit.doubts[0], LoadDoubt::OtherWork);
    // Also while throughput still grows.
    let growing_study = SimulatedStudy { users: vec![1, 2, 3], ..beside_other_work(0.3, 0.6) };
    let load_limit = limit(&growing_study.run());
    assert_eq!((other_work(&load_limit), load_limit.knee), (Some((90, RequestLocation::Client)), None));
    assert!(
        load_study(&growing_study.run()).answers[0]
            .text
            .starts_with("What limits is probably other work on the CPUs of the load")
    );
    // Most of what a request takes is not that.
    assert_eq!(other_work(&limit(&beside_other_work(0.2, 0.2).run())), None);
    // The CPUs are not full: threads of one end wait for each other.
    let mut idle_cpus = beside_other_work(0.5, 0.35).with_host_figure(&CPU_ALLOWED, 0.6);
    idle_cpus.hosts.retain(|(host, metric, _)| *host != LoadHost::Client || metric.id != CPU_ALLOWED.id);
    assert_eq!(other_work(&limit(&idle_cpus.run())), None);
    // Both ends on one CPU wait for each other.
    let mut shared_cpu = beside_other_work(0.5, 0.5);
    (shared_cpu.stations[1].demand, shared_cpu.stations[3].demand) = (2e-3, 2e-3);
    (shared_cpu.stations[4].demand, shared_cpu.stations[4].servers) = (4e-3, 1);
    assert_eq!(other_work(&limit(&shared_cpu.run())), None);
    // Users who think for longer than an answer takes.
    let thinking = SimulatedStudy { think: 100, users: vec![1, 2, 4, 8], ..beside_other_work(0.5, 0.35) };
    assert_eq!(other_work(&limit(&thinking.run())), None);
}

#[test]
fn client_with_neighbour_is_limit() {
    let mut slow_client = server_of([10.0, 10.0, 20.0, 70.0]);
    slow_client.stations.push(SimulatedStation { resource: Some(ClientCpu), demand: 0.02, servers: 1 });
    slow_client.hosts.extend([(LoadHost::Client, &THREADS_WITHOUT_CPU, 0.6), (LoadHost::Client, &CPU_ALLOWED, 1.0)]);
    let run = slow_client.run();
    assert_eq!(limit(&run).verdict, LoadVerdict::Client { resource: resource_name(Generator) });
    assert!(
        hindrances(&run).iter().any(|(claim, ..)| claim.disturbance == Disturbance::OffCpu && !claim.of_server),
        "{:?}",
        hindrances(&run)
    );
}

#[test]
fn stalls_without_full_resource_are_named() {
    let stall_limit = |share, stalls_per_second, milliseconds: [f64; 4]| {
        let mut run = with_lock(server_of(milliseconds), 0.5);
        (run.stalled_share, run.stalls, run.users) = (share, stalls_per_second, vec![1, 2, 4, 8, 16]);
        run.stations[4].servers = 2;
        limit(&run.run())
    };
    let idle_demands = [0.05, 0.1, 0.05, 0.05];
    let load_limit = stall_limit(0.3, 1.0, idle_demands);
    let stalls = UnsampledLimit::Stalls { percent: 30, nanoseconds: 300_000_000, period_nanoseconds: 1_000_000_000 };
    assert_eq!(load_limit.verdict, LoadVerdict::NotSampled { limit: stalls, location: RequestLocation::Server });
    assert_eq!(load_limit.doubts[0], LoadDoubt::NotSampled);
    let is_stalls = |limit: &LoadLimit| {
        matches!(limit.verdict, LoadVerdict::NotSampled { limit: UnsampledLimit::Stalls { .. }, .. })
    };
    // A twentieth of the time, or a single one in all visits.
    assert!(!is_stalls(&stall_limit(0.05, 1.0, idle_demands)) && !is_stalls(&stall_limit(0.3, 0.01, idle_demands)));
    // What is full all the same limits, and a full CPU is known to stall by its quota.
    let saturated = stall_limit(0.3, 1.0, [0.05, 2.0, 0.05, 0.05]);
    assert_eq!(
        (&saturated.verdict, saturated.doubts.as_slice()),
        (&LoadVerdict::Resource { resource: resource_name(ServerCpu) }, &[][..])
    );
}

/// Files that fit into memory with up to this many users: with more the disk reads half of what is served.
fn fits_until(max_users: u64, mut simulated: SimulatedStudy) -> Run {
    simulated.cache = CacheState::Uncached;
    let mut run = simulated.run();
    scale_readings(&mut run, &DISK_BYTE_RATE, 0.0, |case| {
        kelvin_core::catalogue::load::USERS.number_in(case).is_some_and(|users| users <= max_users)
    });
    scale_readings(&mut run, &DISK_BYTE_RATE, 0.5 / 2.4, |_| true);
    scale_readings(&mut run, &THROUGHPUT, 0.7, |case| {
        kelvin_core::catalogue::load::USERS.number_in(case).is_some_and(|users| users > max_users)
    });
    run
}

#[test]
fn memory_for_few_users_is_named() {
    let idle_server = || with_lock(server_of([0.2, 0.4, 0.2, 0.1]), 1.0);
    let load_limit = limit(&fits_until(8, idle_server()));
    let memory = UnsampledLimit::Memory { users: 10, percent: 50 };
    assert_eq!(
        load_limit.verdict,
        LoadVerdict::NotSampled { limit: memory, location: RequestLocation::Disk },
        "{load_limit:?}"
    );
    assert_eq!(load_limit.doubts[0], LoadDoubt::OutOfMemory);
    let is_memory = |limit: &LoadLimit| {
        matches!(limit.verdict, LoadVerdict::NotSampled { limit: UnsampledLimit::Memory { .. }, .. })
    };
    // Files that come from the disk with any number of users, or never.
    assert!(!is_memory(&limit(&fits_until(0, idle_server()))) && !is_memory(&limit(&fits_until(100, idle_server()))));
    // A CPU that is full with many users as well.
    assert_eq!(
        limit(&fits_until(8, server_of([0.2, 4.0, 0.2, 0.1]))).verdict,
        LoadVerdict::Resource { resource: resource_name(ServerCpu) }
    );
}

#[test]
fn flush_waits_are_located_at_disk() {
    // Requests take 0.5 ms at a journal that flushes two at a time, and 0.1 ms of CPU.
    let log = |users: &[u64], blocked_share: f64| {
        let mut log = server_of([0.01, 0.1, 0.01, 0.1]);
        log.stations.push(SimulatedStation { resource: None, demand: 0.5e-3, servers: 2 });
        SimulatedStudy { cache: CacheState::Cached, users: users.to_vec(), written_bytes: 4096.0, blocked_share, ..log }
    };
    let place = |limit: &LoadLimit| match limit.verdict {
        LoadVerdict::NotSampled { limit: UnsampledLimit::PerRequest { .. }, location } => Some(("each", location)),
        LoadVerdict::NotSampled { limit: UnsampledLimit::LimitedConcurrency { .. }, location } => {
            Some(("in turn", location))
        }
        _ => None,
    };
    let load_limit = limit(&log(&[1, 2, 3], 0.75).run());
    assert_eq!(
        (place(&load_limit).map(|(_, location)| location), load_limit.knee),
        (Some(RequestLocation::Disk), None),
        "{load_limit:?}"
    );
    assert_eq!(place(&limit(&log(&[1, 2, 4, 8, 16], 0.75).run())), Some(("in turn", RequestLocation::Disk)));
    // Threads that were not seen to wait, on a host of which none waits for a disk, do not wait for the log.
    let unwatched = limit(
        &log(&[1, 2, 4, 8, 16], 0.05).with_host_figure(&PRESSURE_IO, 0.05).with_host_figure(&DISK_WRITES, 1e4).run(),
    );
    assert_ne!(place(&unwatched).map(|(_, location)| location), Some(RequestLocation::Disk), "{unwatched:?}");
}

#[test]
fn occasional_cpu_wait_is_no_limit() {
    let busy_host = with_lock(server_of([0.2, 0.1, 0.2, 0.1]), 20.0)
        .with_host_figure(&CPU_USER, 0.95)
        .with_host_figure(&THREADS_WITHOUT_CPU, 0.1);
    assert_eq!(unwatched_limit(&limit(&busy_host.run())), ("one", 20, RequestLocation::Server));
    // Sixteen threads, each with a request that sleeps: one of them waits for a CPU on average.
    let mut sleep = server_of([0.1, 0.5, 0.1, 0.1]);
    sleep.stations.push(SimulatedStation { resource: None, demand: 0.04, servers: 1000 });
    sleep.stations.push(SimulatedStation { resource: Some(ServerThread), demand: 0.5e-3 / 16.0, servers: 1 });
    let threads = SimulatedStudy { users: vec![1, 2, 4, 8, 16], ..sleep };
    let load_limit =
        limit(&threads.with_host_figure(&CPU_USER, 0.95).with_host_figure(&THREADS_WITHOUT_CPU, 1.0).run());
    assert_ne!(load_limit.verdict, LoadVerdict::Resource { resource: resource_name(ServerCpu) }, "{load_limit:?}");
}

#[test]
fn changing_limit_is_doubted() {
    // The disk is full in some visits, and in the others something that nobody watches limits.
    let mut run = server_of([100.0, 10.0, 20.0, 5.0]).run();
    let mut count = 0;
    for measurement in run.measurements.iter_mut().filter(|candidate| at_resource(Disk)(&candidate.planned.case)) {
        for round in &mut measurement.rounds {
            count += 1;
            let RoundOutcome::Measured(readings) = &mut round.outcome else { continue };
            for reading in readings.iter_mut().filter(|candidate| candidate.metric == UTILISATION.id && count % 5 == 0)
            {
                reading.readings = Readings::Scalars(vec![0.6]);
            }
        }
    }
    let load_limit = limit(&run);
    assert_eq!(load_limit.verdict, LoadVerdict::Resource { resource: resource_name(Disk) }, "{load_limit:?}");
    assert!(load_limit.doubts.contains(&LoadDoubt::Unsteady), "{:?}", load_limit.doubts);
}

#[test]
fn unreached_saturation_gives_no_conclusion() {
    let run = SimulatedStudy { think: 9_000, ..published() }.run();
    let study = load_study(&run);
    let text = &study.conclusions[0].text;
    assert!(
        text.contains("throughput still grew at 22 users, and the limit was not reached: it serves at least 2."),
        "{text}"
    );
    let saturation_claims = claims(&study, |claim| match claim {
        LoadClaim::WhatIf(_) => Some("what if"),
        LoadClaim::Law(check) if check.law == LoadLaw::Utilisation => Some("utilisation"),
        _ => None,
    });
    assert!(saturation_claims.is_empty(), "{saturation_claims:?}");
    assert!(study.tables.iter().all(|table| !table.title.contains("at saturation")), "{:?}", study.tables);
}

#[test]
fn generator_limit_is_reported_once() {
    let generator_claim = |run: &Run| {
        let study = load_study(run);
        let matching_claims = claims(&study, |claim| matches!(claim, LoadClaim::Generator { .. }).then_some(()));
        let [(_, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
        (conclusion.conclusion.holds, conclusion.text.clone(), study.answers[0].reasons.join(" "))
    };
    let (holds, text, answer) = generator_claim(&server_of([10.0, 10.0, 20.0, 70.0]).run());
    assert_eq!(holds, Some(false));
    assert!(text.starts_with("the load generator was not the limit, which is not so: "), "{text}");
    assert!(answer.contains("The load generator was the limit: "), "{answer}");
    // A link that is certainly fuller than a busy generator is the limit, and the generator is not.
    let busy = server_of([10.0, 10.0, 100.0, 87.0]).run();
    assert_eq!(
        (&limit(&busy).verdict, generator_claim(&busy).0),
        (&LoadVerdict::Resource { resource: resource_name(Link) }, Some(true))
    );
}

#[test]
fn lateness_below_saturation_is_no_limit() {
    let is_generator_excluded = |run: &Run| {
        let study = load_study(run);
        let matching_claims = claims(&study, |claim| matches!(claim, LoadClaim::Generator { .. }).then_some(()));
        let [(_, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
        conclusion.conclusion.holds
    };
    let lateness_result = |is_at: fn(&Case) -> bool| {
        let mut run = published().run();
        scale_readings(&mut run, &LATENESS, 1e4, is_at);
        (limit(&run).doubts.contains(&LoadDoubt::LateGenerator), is_generator_excluded(&run))
    };
    assert_eq!(lateness_result(|_| false), (false, Some(true)));
    assert_eq!(
        lateness_result(|case| kelvin_core::catalogue::load::USERS.number_in(case) == Some(1)),
        (false, Some(true))
    );
    assert_eq!(lateness_result(|_| true), (true, None), "it may have been");
}

#[test]
fn next_limit_by_capacity_and_as_measured() {
    // The disk works 2.4 times as much for each request as its capacity was stated for.
    let mut run = published().run();
    scale_readings(&mut run, &UTILISATION, 2.4, at_resource(Disk));
    let study = load_study(&run);
    let matching_claims: Vec<(NextLimitClaim, &StatedConclusion)> = claims(&study, |claim| match claim {
        LoadClaim::WhatIf(what_if) => Some(what_if.clone()),
        _ => None,
    });
    let [(what_if, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
    assert_eq!((what_if.limit, what_if.next), (resource_name(Link), resource_name(Disk)));
    let by_capacity = what_if.from_capacity.unwrap();
    assert!(
        (by_capacity.factor / (173.0 / 46.0) - 1.0).abs() < 0.05 && (by_capacity.throughput * 0.046 - 1.0).abs() < 0.05
    );
    let measured = what_if.as_measured;
    assert!((measured.factor / (173.0 / 46.0 / 2.4) - 1.0).abs() < 0.05, "{what_if:?}");
    assert!((measured.throughput * 0.046 * 2.4 - 1.0).abs() < 0.05, "{what_if:?}");
    assert!(
        conclusion.text.starts_with("of what was watched the next limit is the disk: if the network were 3."),
        "{}",
        conclusion.text
    );
}

#[test]
fn planted_leak_is_found() {
    let growth_of = |simulated: &SimulatedStudy| {
        let study = load_study(&simulated.run());
        let matching_claims = claims(&study, |claim| match claim {
            LoadClaim::Growth { of_server: true, bytes_per_request, .. } => Some(*bytes_per_request),
            _ => None,
        });
        let [(growth, conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
        (*growth, conclusion.conclusion.holds)
    };
    let (growth, holds) = growth_of(&SimulatedStudy { leak: 1024.0, ..published() });
    assert_eq!(holds, Some(true));
    assert!((growth.value / 1024.0 - 1.0).abs() < 0.1, "{growth:?}");
    assert_eq!(growth_of(&published()).1, Some(false));
}

/// The conclusions of one kind of claim, with their labels.
fn labelled_conclusions(run: &Run, is_kind: impl Fn(&LoadClaim) -> bool) -> Vec<(Option<bool>, String)> {
    let study = load_study(run);
    let matching_claims = claims(&study, |claim| is_kind(claim).then_some(()));
    matching_claims.into_iter().map(|(_, conclusion)| (conclusion.conclusion.holds, conclusion.text.clone())).collect()
}

#[test]
fn label_matches_claim() {
    // A disk that reads what is served reads no more than 1.1 times that.
    let reads = |claim: &LoadClaim| matches!(claim, LoadClaim::Amplification { .. });
    let mut run = published().run();
    let [(holds, text)] = labelled_conclusions(&run, reads).try_into().unwrap();
    assert!(holds == Some(true) && text.starts_with("the disk reads more than 1.10 bytes for each byte served: 2.4"));
    scale_readings(&mut run, &kelvin_core::catalogue::load::DISK_BYTE_RATE, 1.0 / 2.4, |_| true);
    let [(holds, text)] = labelled_conclusions(&run, reads).try_into().unwrap();
    assert!(
        holds == Some(false) && (text.contains("served: 0.99") || text.contains("served: 1.00")),
        "{holds:?} {text}"
    );
    // Memory that grows by more for each request, but by little in all.
    let is_growth = |claim: &LoadClaim| matches!(claim, LoadClaim::Growth { of_server: true, .. });
    let [(holds, text)] =
        labelled_conclusions(&SimulatedStudy { leak: 1024.0, ..published() }.run(), is_growth).try_into().unwrap();
    assert_eq!(holds, Some(true), "{text}");
    assert!(text.contains(" in the study: by 1") && text.ends_with("in the study"), "{text}");
    // What no visit has tested is not known, however certain the limit is.
    let next = |claim: &LoadClaim| matches!(claim, LoadClaim::WhatIf(_));
    let [(holds, _)] = labelled_conclusions(&published().run(), next).try_into().unwrap();
    assert_eq!(holds, None);
    let failing = SimulatedStudy { failures_per_answer: 0.02, ..published() }.run();
    let [(holds, text)] = labelled_conclusions(&failing, next).try_into().unwrap();
    assert_eq!(holds, None, "nothing follows from a limit that is not certain: {text}");
    // Response times of single visits are no evidence of growth.
    let response = |claim: &LoadClaim| matches!(claim, LoadClaim::Response { .. });
    let [(holds, _)] = labelled_conclusions(&published().run(), response).try_into().unwrap();
    assert_eq!(holds, Some(true));
    let single_visit = SimulatedStudy { visits: 1, ..published() }.run();
    assert!(labelled_conclusions(&single_visit, response).iter().all(|(holds, _)| holds.is_none()));
}

#[test]
fn shares_nonnegative_answers_within_file_size() {
    let mut run = published().run();
    // Every second visit used nothing of the disk, as far as was seen.
    let mut even = false;
    for measurement in run.measurements.iter_mut().filter(|candidate| at_resource(Disk)(&candidate.planned.case)) {
        for round in &mut measurement.rounds {
            even = !even;
            let RoundOutcome::Measured(readings) = &mut round.outcome else { continue };
            for reading in readings.iter_mut().filter(|candidate| candidate.metric == UTILISATION.id && even) {
                reading.readings = Readings::Scalars(vec![0.0]);
            }
        }
    }
    let used = limit(&run).utilisations;
    assert!(used.iter().all(|usage| usage.utilisation.low >= 0.0), "{used:?}");
    assert_eq!(limit(&published().run()).request_bytes.map(f64::round), Some(2e6));
    scale_readings(&mut run, &kelvin_core::catalogue::load::RATE, 1e6, |_| true);
    assert_eq!(limit(&run).request_bytes, None);
}

#[test]
fn limit_sentence_is_complete() {
    let study = load_study(&published().run());
    let text = &study.conclusions[0].text;
    assert!(text.starts_with("from 3 users (2 to "), "{text}");
    assert!(text.contains(") on the network is the limit: 5.8"), "{text}");
    assert!(text.contains(" requests/s of 2 MB (11.") && text.contains("that the network carries; disk 2"), "{text}");
    let table = &study.tables[0];
    assert_eq!(table.rows.len(), user_grid(20).len());
    assert_eq!(study.tables[1].rows[0].label, "network");
}

/// Studies of random servers of six kinds. The example `load_studies` judges thousands.
#[test]
fn no_certain_verdict_on_random_servers_is_wrong() {
    for seed in 0..24 {
        let planted = PlantedStudy::random(seed);
        let judgement = planted.judge(&studies(&planted.study.run()));
        assert!(!judgement.is_wrong(), "{seed}: {judgement:?} of {planted:?}");
        assert!(!judgement.is_knee_far(), "{seed}: {judgement:?} of {planted:?}");
    }
}

/// The answers of a study, as lines.
fn answer_lines(title: &str, run: &Run) -> String {
    let line = |answer: &StudyAnswer| format!("{}\n  {}\n", answer.text, answer.reasons.join("\n  "));
    format!("# {title}\n{}", load_study(run).answers.iter().map(line).collect::<String>())
}

#[test]
fn answers_match_snapshot() {
    let certain = published().run();
    let [mut amplified, mut over_capacity, mut late, mut miscounted] = [&certain; 4].map(Run::clone);
    scale_readings(&mut amplified, &UTILISATION, 2.4, at_resource(Disk));
    scale_readings(&mut over_capacity, &UTILISATION, 1.3, at_resource(Link));
    scale_readings(&mut late, &LATENESS, 1e4, |_| true);
    scale_readings(&mut miscounted, &IN_FLIGHT, 1.1, |case| {
        kelvin_core::catalogue::load::USERS.number_in(case) == Some(6)
    });
    let planted = [
        ("a slow link, and a disk that reads more than is served", amplified),
        ("think time", SimulatedStudy { think: 1000, ..published() }.run()),
        (
            "one fixed file from memory",
            SimulatedStudy { pattern: RequestPattern::Fixed, cache: CacheState::Cached, ..published() }.run(),
        ),
        ("a single user", server_of([0.3, 0.2, 150.0, 0.1]).run()),
        ("two equal", server_of([100.0, 10.0, 98.0, 5.0]).run()),
        ("two near", SimulatedStudy { error: 0.03, ..server_of([100.0, 10.0, 90.0, 5.0]) }.run()),
        ("a slow client", server_of([10.0, 10.0, 20.0, 70.0]).run()),
        ("slow CPUs", server_of([10.0, 90.0, 20.0, 5.0]).run()),
        ("one worker", SimulatedStudy { workers: Some(1), ..server_of([50.0, 30.0, 40.0, 5.0]) }.run()),
        (
            "workers that sleep",
            SimulatedStudy { tries_more_workers: true, ..waiting_pool(4, 1000, &[1, 2, 4, 8, 16]) }.run(),
        ),
        ("workers that wait for a lock", waiting_pool(4, 1, &[1, 2, 4, 8, 16]).run()),
        ("late requests", late),
        ("a law broken once", miscounted),
        ("a leak", SimulatedStudy { leak: 1024.0, ..published() }.run()),
        ("one visit", SimulatedStudy { visits: 1, ..published() }.run()),
        ("few users", SimulatedStudy { think: 9_000, ..published() }.run()),
        ("a lock", with_lock(server_of([40.0, 10.0, 50.0, 5.0]), 110.0).run()),
        ("a lock beside a disk", with_lock(server_of([80.0, 10.0, 40.0, 5.0]), 110.0).run()),
        ("a wrong capacity", over_capacity),
    ];
    let answers: Vec<String> = planted.iter().map(|(title, run)| answer_lines(title, run)).collect();
    insta::assert_snapshot!(answers.join("\n"));
}

/// The conclusions across cases, by what they compare.
fn pair_conclusions(run: &Run) -> Vec<(&'static str, Option<bool>, String)> {
    let study = load_study(run);
    let matching_claims = claims(&study, |claim| match claim {
        LoadClaim::Comparison(comparison) => Some(match comparison.figure {
            LoadFigure::Throughput { .. } => "throughput",
            LoadFigure::Knee => "knee",
            LoadFigure::DiskBytes => "from disk",
        }),
        _ => None,
    });
    matching_claims
        .into_iter()
        .map(|(kind, conclusion)| (kind, conclusion.conclusion.holds, conclusion.text.clone()))
        .collect()
}

fn stability_conclusions(run: &Run) -> Vec<(&'static str, Option<bool>)> {
    pair_conclusions(run).into_iter().map(|(kind, holds, _)| (kind, holds)).collect()
}

/// Visits that are long enough to detect 5 %.
fn with_long_steps(simulated: SimulatedStudy) -> SimulatedStudy {
    SimulatedStudy { requests: 1500, ..simulated }
}

#[test]
fn fixed_file_spares_disk_under_link_limit() {
    let fixed = SimulatedStudy { pattern: RequestPattern::Fixed, seed: 8, ..server_of([0.1, 10.0, 173.0, 5.0]) };
    let run = combined_run(&[with_long_steps(published()), with_long_steps(fixed)]);
    assert_eq!(stability_conclusions(&run), [("throughput", Some(true)), ("from disk", Some(true))]);
    let text: String = pair_conclusions(&run).into_iter().map(|(_, _, text)| text + "\n").collect();
    assert!(
        text.contains("with one fixed file as with random files: 5.") && text.contains("disk reads less"),
        "{text}"
    );
    let answers = load_study(&run).answers;
    let texts: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
    assert!(texts[0].starts_with("Random files: the network is the limit"), "{texts:?}");
    assert!(texts[1].starts_with("One fixed file: the network is the limit"), "{texts:?}");
    assert_eq!(texts[2], "One fixed file instead of random files: the throughput at saturation is the same.");
    let disk = answers[2].reasons.last().unwrap();
    assert!(disk.starts_with("The disk reads 0 instead of 2.4"), "{disk}");
}

#[test]
fn fixed_file_is_faster_under_disk_limit() {
    let random = server_of([120.0, 10.0, 40.0, 5.0]);
    let fixed = SimulatedStudy { pattern: RequestPattern::Fixed, seed: 8, ..server_of([0.1, 10.0, 40.0, 5.0]) };
    let run = combined_run(&[with_long_steps(random), with_long_steps(fixed)]);
    assert_eq!(stability_conclusions(&run), [("throughput", Some(false)), ("from disk", Some(true))]);
}

#[test]
fn think_time_moves_knee_only() {
    let thinking = SimulatedStudy { think: 1000, users: user_grid(30), seed: 8, ..published() };
    let run = combined_run(&[with_long_steps(published()), with_long_steps(thinking)]);
    assert_eq!(stability_conclusions(&run), [("throughput", Some(true)), ("knee", Some(true))]);
    let answers = load_study(&run).answers;
    assert!(answers[2].text.starts_with("1 s of think time instead of no think time: "), "{}", answers[2].text);
    assert!(answers[2].reasons[1].starts_with("The knee is later: at 1"), "{:?}", answers[2].reasons);
    // The order in which they were measured is no matter, and the same think time is none.
    let shorter = SimulatedStudy { think: 1, seed: 8, ..published() };
    let conclusions = stability_conclusions(&combined_run(&[with_long_steps(shorter), with_long_steps(published())]));
    assert_eq!(conclusions[0], ("throughput", Some(true)));
    assert_ne!(conclusions[1], ("knee", Some(true)));
}

#[test]
fn cached_and_uncached_sweeps_are_compared() {
    let cached = SimulatedStudy { cache: CacheState::Cached, seed: 8, ..server_of([0.1, 10.0, 40.0, 5.0]) };
    let run = combined_run(&[with_long_steps(cached), with_long_steps(server_of([120.0, 10.0, 40.0, 5.0]))]);
    assert_eq!(stability_conclusions(&run), [("throughput", Some(false)), ("from disk", Some(true))]);
    assert_eq!(stability_conclusions(&published().run()), [], "one case has nothing beside it");
}

#[test]
fn slowing_server_is_unstable() {
    let stability = |simulated: &SimulatedStudy| {
        let study = load_study(&simulated.run());
        let matching_claims = claims(&study, |claim| match claim {
            LoadClaim::Steady { drift, return_step, .. } => Some((*drift, *return_step)),
            _ => None,
        });
        let [((drift, return_step), conclusion)] = matching_claims.as_slice() else { panic!("{matching_claims:?}") };
        (*drift, *return_step, conclusion.conclusion.holds)
    };
    let short_study = SimulatedStudy { users: vec![1, 2, 4, 8, 12], visits: 8, ..published() };
    let (drift, return_step, holds) = stability(&short_study);
    assert_eq!(holds, Some(true), "{drift:?}, {return_step:?}");
    assert!(
        return_step.is_some_and(|(users, deviation)| users == 1 && deviation.low < 0.0 && deviation.high > 0.0),
        "{return_step:?}"
    );
    let (drift, _, holds) = stability(&SimulatedStudy { slowdown: 0.3, ..short_study });
    assert_eq!(holds, Some(false), "{drift:?}");
    assert!(drift.low < -0.26 && drift.high > -0.30, "a third slower is 26 % less: {drift:?}");
}

#[test]
fn timeline_has_steps_and_return() {
    let run = published().run();
    let analysis = kelvin_analysis::analyse(&run);
    let [timeline] = analysis.timelines.as_slice() else { panic!("{:?}", analysis.timelines) };
    let points = || timeline.groups.iter().flat_map(|group| &group.points);
    assert_eq!(points().count(), 4 * user_grid(20).len() + 1);
    assert!(timeline.groups.iter().all(|group| group.points.is_sorted_by_key(|(time, _)| *time)));
    let last = points().map(|(time, _)| *time).fold(0.0, f64::max);
    assert_eq!(timeline.marked_time, Some(("back to 1 user".to_owned(), last)));
    assert!(timeline.groups[0].points.iter().any(|(time, _)| *time == last));
}
