//! What limits a server under load, on simulated studies whose limit is known by construction.

use kelvin_analysis::testing::load::{Planted, Simulated, Station, grid, together};
use kelvin_analysis::testing::study;
use kelvin_analysis::{Answer, Concluded, Study, studies};
use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::Resource::{self, ClientCpu, Disk, Generator, Link, ServerCpu, ServerThread, Workers};
use kelvin_catalogue::load::hosts::{
    CPU_ALLOWED, CPU_STEAL, CPU_THROTTLED, CPU_USER, DISK_WRITES, Host, LISTEN_OVERFLOWS, PRESSURE_IO, RETRANSMITTED,
    WITHOUT_CPU,
};
use kelvin_catalogue::load::{FROM_DISK, IN_FLIGHT, LATENESS, Pattern, SENT, THROUGHPUT, UTILISATION};
use kelvin_model::{
    Attempt, Case, Claim, Hindrance, LoadClaim, LoadDoubt, LoadFigure, LoadHindrance, LoadLaw, LoadLimit, LoadVerdict,
    LoadWhatIf, Metric, Name, Readings, Run, UnknownLimit, Unwatched, Whereabouts,
};

fn server(milliseconds: [f64; 4]) -> Simulated {
    Simulated::server(milliseconds)
}

fn published() -> Simulated {
    Simulated::published()
}

/// With a station that nobody watches.
fn with_lock(mut simulated: Simulated, milliseconds: f64) -> Simulated {
    simulated.stations.push(Station { resource: None, demand: milliseconds / 1e3, servers: 1 });
    simulated
}

fn concluded(run: &Run) -> Study {
    study(run, "load").unwrap()
}

fn claims<'s, T>(study: &'s Study, is: impl Fn(&'s LoadClaim) -> Option<T>) -> Vec<(T, &'s Concluded)> {
    let of = |one: &'s Concluded| match &one.conclusion.claim {
        Claim::Load(claim) => is(claim).map(|found| (found, one)),
        _ => None,
    };
    study.conclusions.iter().filter_map(of).collect()
}

fn limit(run: &Run) -> LoadLimit {
    let study = concluded(run);
    let found = claims(&study, |claim| match claim {
        LoadClaim::Limit(limit) => Some(limit),
        _ => None,
    });
    let [(limit, concluded)] = found.as_slice() else { panic!("{found:?}") };
    let is_known = !matches!(limit.verdict, LoadVerdict::Unknown { .. });
    assert_eq!(concluded.conclusion.holds, (is_known && limit.doubts.is_empty()).then_some(true));
    (***limit).clone()
}

fn law(run: &Run, wanted: LoadLaw) -> Option<bool> {
    let study = concluded(run);
    let found = claims(&study, |claim| match claim {
        LoadClaim::Law(check) if check.law == wanted => Some(()),
        _ => None,
    });
    let [(_, concluded)] = found.as_slice() else { panic!("{found:?}") };
    concluded.conclusion.holds
}

fn name(resource: Resource) -> Name {
    Name::new(resource.name())
}

/// Multiplies what was read of a metric at some cases.
fn times(run: &mut Run, metric: &Metric, factor: f64, is_at: impl Fn(&Case) -> bool) {
    for measurement in run.measurements.iter_mut().filter(|one| is_at(&one.planned.case)) {
        for round in &mut measurement.rounds {
            let Attempt::Measured(readings) = &mut round.attempt else { continue };
            for reading in readings.iter_mut().filter(|reading| reading.metric == metric.id) {
                let Readings::Scalars(values) = &mut reading.readings else { continue };
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

fn at(resource: Resource) -> impl Fn(&Case) -> bool {
    move |case| Resource::of(case) == Some(resource)
}

fn unknown(because: UnknownLimit) -> LoadVerdict {
    LoadVerdict::Unknown { because }
}

/// What limits that was not watched, with its milliseconds to the nearest ten.
fn unwatched(limit: &LoadLimit) -> (&'static str, u64, Whereabouts) {
    let tens = |nanoseconds: u64| (nanoseconds as f64 / 1e7).round() as u64 * 10;
    match limit.verdict {
        LoadVerdict::Unwatched { how: Unwatched::InTurn { at_once: 1, nanoseconds }, at } => {
            ("one", tens(nanoseconds), at)
        }
        LoadVerdict::Unwatched { how: Unwatched::InTurn { nanoseconds, .. }, at } => ("few", tens(nanoseconds), at),
        LoadVerdict::Unwatched { how: Unwatched::Each { nanoseconds }, at } => ("each", tens(nanoseconds), at),
        LoadVerdict::Unwatched { how: Unwatched::Losses { per_thousand }, at } => ("losses", per_thousand, at),
        LoadVerdict::Unwatched { how: Unwatched::Refusals { percent }, at } => ("refusals", percent, at),
        _ => panic!("{limit:?}"),
    }
}

#[test]
fn what_serves_a_few_at_a_time_is_named_by_where_requests_are() {
    let lock = || with_lock(server([20.0, 10.0, 20.0, 5.0]), 200.0);
    let found = limit(&lock().run());
    assert_eq!(
        (unwatched(&found), found.doubts.as_slice()),
        (("one", 200, Whereabouts::Server), &[LoadDoubt::NotWatched][..])
    );
    // A tenth of what the client waits for is at the server.
    let mut before = lock().run();
    times(&mut before, &IN_FLIGHT, 0.1, |_| true);
    assert_eq!(unwatched(&limit(&before)), ("one", 200, Whereabouts::Between));
    let on_the_way = Simulated { in_network: 0.9, ..lock() };
    assert_eq!(unwatched(&limit(&on_the_way.run())).2, Whereabouts::Network);
    // The disk reads what is served, and tasks wait for it.
    assert_eq!(unwatched(&limit(&lock().with(&PRESSURE_IO, 0.9).run())).2, Whereabouts::Disk);
    // It has what it writes flushed, and the disk three writes of each request. Of a log that is written behind nobody waits.
    let log = |written, writes| {
        let writing = Simulated { written, cache: CacheState::Cached, ..lock() };
        unwatched(&limit(&writing.with(&DISK_WRITES, writes).run())).2
    };
    assert_eq!(
        [log(4096.0, 15.0), log(100.0, 15.0), log(4096.0, 0.1)],
        [Whereabouts::Disk, Whereabouts::Server, Whereabouts::Server]
    );
    let mut three = lock();
    three.stations[4] = Station { resource: None, demand: 0.6, servers: 3 };
    let found = limit(&Simulated { users: vec![1, 2, 3, 4, 6, 8, 12, 16, 24], ..three }.run());
    assert!(
        matches!(found.verdict, LoadVerdict::Unwatched { how: Unwatched::InTurn { at_once: 3, .. }, .. }),
        "{found:?}"
    );
    // Without a visit to one user it is not known how long a request takes by itself.
    let crowded = limit(&Simulated { users: vec![4, 8, 16, 24], ..lock() }.run());
    assert_eq!(crowded.verdict, unknown(UnknownLimit::NothingBusy));
    let study = concluded(&lock().run());
    let said = &study.answers[0].says;
    assert!(said.starts_with("What limits is probably a lock in the server"), "{said}");
}

#[test]
fn what_each_request_waits_for_by_itself_is_named() {
    let mut sleep = server([0.2, 0.1, 0.2, 0.1]);
    sleep.stations.push(Station { resource: None, demand: 0.04, servers: 1000 });
    let found = limit(&sleep.run());
    assert_eq!((unwatched(&found), found.knee), (("each", 40, Whereabouts::Server), None));
    // Users who think for longer than that are not held up by it, and one that each other's requests hold up is none of its own.
    let thinking = Simulated { think: 1000, users: vec![1, 2, 4, 8], ..sleep };
    assert_eq!(limit(&thinking.run()).verdict, unknown(UnknownLimit::StillGrowing { users: 8 }));
}

#[test]
fn losses_are_what_limits_only_where_requests_are_on_their_way() {
    let lost = |in_network| {
        let mut waits = server([0.2, 0.1, 0.2, 0.1]);
        // Two stations, so that it is not as if one served in turn and waited for as long alone.
        waits.stations.extend([0.04, 0.04].map(|demand| Station { resource: None, demand, servers: 2 }));
        Simulated { in_network, users: vec![2, 4, 8, 16, 24, 32], ..waits }.with(&RETRANSMITTED, 0.05)
    };
    let found = limit(&lost(0.9).run());
    assert_eq!(unwatched(&found), ("losses", 50, Whereabouts::Network));
    assert_eq!(found.doubts[0], LoadDoubt::NotWatched);
    assert_eq!(limit(&lost(0.1).run()).verdict, unknown(UnknownLimit::NothingBusy));
    // While throughput grows as well, of which no saturation is known.
    let growing = Simulated { users: vec![2, 3, 4], ..lost(0.9) };
    let found = limit(&growing.run());
    assert_eq!((unwatched(&found).0, found.knee), ("losses", None));
}

#[test]
fn requests_that_are_turned_away_are_what_limits() {
    let found = limit(&Simulated { failing: 0.25, ..published() }.run());
    assert_eq!(unwatched(&found), ("refusals", 20, Whereabouts::Server));
    assert_eq!(found.doubts, [LoadDoubt::NotWatched, LoadDoubt::Errors]);
}

#[test]
fn each_rule_decides_where_it_should() {
    let mut beyond = published().run();
    times(&mut beyond, &UTILISATION, 1.3, at(Link));
    let one = |resource| LoadVerdict::Resource { by: name(resource) };
    let quota = |periods| with_lock(server([20.0, 80.0, 10.0, 5.0]), 110.0).with(&CPU_THROTTLED, periods).run();
    let planted: Vec<(&str, Run, LoadVerdict)> = vec![
        ("one visit", Simulated { visits: 1, ..published() }.run(), unknown(UnknownLimit::TooLittle)),
        ("two numbers", Simulated { users: vec![1, 2], ..published() }.run(), unknown(UnknownLimit::TooLittle)),
        ("a wrong capacity", beyond, unknown(UnknownLimit::BeyondCapacity { resource: name(Link) })),
        (
            "few users",
            Simulated { think: 9_000, ..published() }.run(),
            unknown(UnknownLimit::StillGrowing { users: 22 }),
        ),
        (
            "a lock without a visit to one user",
            Simulated { users: vec![2, 4, 8, 16], ..with_lock(server([40.0, 10.0, 50.0, 5.0]), 110.0) }.run(),
            unknown(UnknownLimit::NothingBusy),
        ),
        (
            "a lock beside a disk that is used",
            with_lock(server([80.0, 10.0, 40.0, 5.0]), 110.0).run(),
            unknown(UnknownLimit::NothingFull { fullest: name(Disk) }),
        ),
        ("a slow client", server([10.0, 10.0, 20.0, 70.0]).run(), LoadVerdict::Client { by: name(Generator) }),
        ("a slow link", published().run(), one(Link)),
        ("a slow disk", server([120.0, 10.0, 40.0, 5.0]).run(), one(Disk)),
        ("slow CPUs", server([10.0, 90.0, 20.0, 5.0]).run(), one(ServerCpu)),
        // A lock keeps the mean use of the CPU low, as the quota's unused remainders do.
        ("a quota that is spent", quota(0.95), one(ServerCpu)),
        (
            "a quota that is spent now and then",
            quota(0.85),
            unknown(UnknownLimit::NothingFull { fullest: name(ServerCpu) }),
        ),
        (
            "a quota spent in the few periods in which the server runs",
            with_lock(server([30.0, 50.0, 30.0, 5.0]), 110.0).with(&CPU_THROTTLED, 1.0).run(),
            unknown(UnknownLimit::NothingBusy),
        ),
        ("one worker", Simulated { workers: Some(1), ..server([50.0, 30.0, 40.0, 5.0]) }.run(), one(Workers)),
    ];
    for (what, run, verdict) in planted {
        let limit = limit(&run);
        assert_eq!(limit.verdict, verdict, "{what}: {}", limit.rule);
    }
}

#[test]
fn resources_near_balance_are_named_together() {
    let equal = limit(&server([100.0, 10.0, 98.0, 5.0]).run());
    let LoadVerdict::Both { by } = &equal.verdict else { panic!("{equal:?}") };
    assert!(by.contains(&name(Disk)) && by.contains(&name(Link)) && by.len() == 2, "{by:?}");
    assert_eq!(equal.doubts, []);
    // At the very margin, with larger errors, it is not certain whether one or both.
    let near = limit(&Simulated { error: 0.03, ..server([100.0, 10.0, 90.0, 5.0]) }.run());
    assert!(!matches!(near.verdict, LoadVerdict::Unknown { .. } | LoadVerdict::Client { .. }), "{near:?}");
    let apart = limit(&server([100.0, 10.0, 80.0, 5.0]).run());
    assert_eq!(apart.verdict, LoadVerdict::Resource { by: name(Disk) });
}

#[test]
fn what_is_doubtful_is_said() {
    let all = |_: &Case| true;
    let doubts = |run: &Run| limit(run).doubts;
    let certain = published().run();
    assert_eq!(doubts(&certain), []);
    let mut late = certain.clone();
    times(&mut late, &LATENESS, 1e4, all);
    assert_eq!(doubts(&late), [LoadDoubt::LateGenerator]);
    let mut lost = certain.clone();
    times(&mut lost, &SENT, 0.9, all);
    assert_eq!(doubts(&lost), [LoadDoubt::Law(LoadLaw::FlowBalance)]);
    let mut unwatched = published();
    unwatched.stations[3].resource = None;
    assert_eq!(doubts(&unwatched.run()), [LoadDoubt::ClientNotWatched]);
    let failing_requests = Simulated { failing: 0.02, ..published() }.run();
    assert_eq!(doubts(&failing_requests), [LoadDoubt::Errors]);
}

#[test]
fn lateness_is_no_doubt_where_users_think_for_longer_or_the_client_is_the_limit() {
    let late = |simulated: Simulated, times_as_late: f64| {
        let mut run = simulated.run();
        times(&mut run, &LATENESS, times_as_late, |_| true);
        limit(&run).doubts
    };
    // 0.6 s of answers that take 2 s, of users who think for 3 s.
    let thinking = || Simulated { think: 3000, users: grid(60), ..published() };
    assert_eq!(late(thinking(), 6e3), []);
    assert_eq!(late(thinking(), 6e4), [LoadDoubt::LateGenerator]);
    assert_eq!(late(server([10.0, 10.0, 20.0, 70.0]), 1e4), []);
}

#[test]
fn what_is_full_in_all_visits_explains_throughput_that_differs_between_them() {
    let mut few = server([40.0, 40.0, 40.0, 0.5]);
    (few.workers, few.requests, few.users) = (Some(1), 8, vec![1, 2, 3, 4, 6, 8]);
    let found = limit(&few.run());
    assert_eq!(found.verdict, LoadVerdict::Resource { by: name(Workers) });
    assert!(found.used[0].utilisation.low < 0.95, "by its throughput alone it would not be certain: {found:?}");
    assert_eq!(found.doubts, [LoadDoubt::Untested], "and not that it is unexplained");
}

/// What hinders requests, with whether it is certain.
fn hindrances(run: &Run) -> Vec<(LoadHindrance, Option<bool>, String)> {
    let study = concluded(run);
    let found = claims(&study, |claim| match claim {
        LoadClaim::Hindrance(hindrance) => Some(hindrance.clone()),
        _ => None,
    });
    found.into_iter().map(|(hindrance, of)| (hindrance, of.conclusion.holds, of.text.clone())).collect()
}

#[test]
fn what_hinders_requests_is_said_and_casts_doubt_unless_the_limit_acts_by_it() {
    let hindered = |by| LoadDoubt::Hindered { by, of_server: true };
    // A disk that a lock keeps from being so full that nothing else can matter.
    let near = || with_lock(server([100.0, 10.0, 20.0, 5.0]), 100.0);
    let planted: [(&Metric, f64, Hindrance, &str, &str); 4] = [
        (
            &LISTEN_OVERFLOWS,
            3.0,
            Hindrance::AcceptQueue,
            "the accept queue of the server overflows: 3.00 connections",
            "the accept queue of the server overflows for a connection of each visit or more: 3.00 (",
        ),
        (
            &CPU_STEAL,
            0.2,
            Hindrance::Steal,
            "the hypervisor takes 20 % (20 % to 20 %) of the CPU time of the host",
            "the hypervisor takes at least 5.0 % of the CPU time of the host of the server: 20 % (20 % to 20 %)",
        ),
        (
            &CPU_THROTTLED,
            0.5,
            Hindrance::Quota,
            "its CPU quota keeps the server from running in 50 %",
            "its CPU quota keeps the server from running in at least 5.0 % of the quota's periods: 50 % (",
        ),
        (
            &RETRANSMITTED,
            0.03,
            Hindrance::Retransmissions,
            "TCP sends 3.0 % (3.0 % to 3.0 %) of the server's segments again",
            "TCP sends at least 1.0 % of the server's segments again: 3.0 % (3.0 % to 3.0 %)",
        ),
    ];
    assert_eq!(hindrances(&near().run()), []);
    for (metric, amount, by, said, claimed) in planted {
        let run = near().with(metric, amount).run();
        let limit = limit(&run);
        assert_eq!(limit.verdict, LoadVerdict::Resource { by: name(Disk) });
        assert!(limit.doubts.contains(&hindered(by)), "{by:?}: {:?}", limit.doubts);
        let seen = hindrances(&run);
        let [(hindrance, Some(true), text)] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!((hindrance.by, hindrance.of_server, hindrance.is_how_it_limits), (by, true, false));
        assert!(text.starts_with(claimed), "{text}");
        let study = concluded(&run);
        let [Answer { says, because }] = study.answers.as_slice() else { panic!("{:?}", study.answers) };
        assert!(says.contains("is probably the limit"), "{says}");
        assert!(because.iter().any(|line| line.contains(&said[1..])), "{because:?}");
    }
}

#[test]
fn how_a_limit_acts_is_no_doubt_about_it() {
    let by_quota = server([10.0, 173.0, 46.0, 5.0]).with(&CPU_THROTTLED, 0.95).run();
    let by_link = published().with(&RETRANSMITTED, 0.03).run();
    for (run, resource) in [(by_quota, ServerCpu), (by_link, Link)] {
        let limit = limit(&run);
        assert_eq!((&limit.verdict, limit.doubts.as_slice()), (&LoadVerdict::Resource { by: name(resource) }, &[][..]));
        let seen = hindrances(&run);
        assert!(matches!(seen.as_slice(), [(hindrance, ..)] if hindrance.is_how_it_limits), "{seen:?}");
    }
    // Users who were not let in are missing whatever is full.
    let missing = published().with(&LISTEN_OVERFLOWS, 12.0).run();
    assert_eq!(limit(&missing).doubts, [LoadDoubt::Hindered { by: Hindrance::AcceptQueue, of_server: true }]);
}

#[test]
fn laws_hold_and_planted_violations_are_found() {
    let certain = published().run();
    for of in [LoadLaw::Little, LoadLaw::FlowBalance] {
        assert_eq!(law(&certain, of), Some(true), "{of:?}");
    }
    let miscounted = Simulated { miscounted: 1.04, ..published() }.run();
    assert_eq!(law(&miscounted, LoadLaw::Little), Some(false));
    assert_eq!(limit(&miscounted).doubts, [LoadDoubt::Law(LoadLaw::Little)]);
    // At one number of users only.
    let mut once = certain.clone();
    times(&mut once, &IN_FLIGHT, 1.1, |case| kelvin_catalogue::load::USERS.of(case) == Some(6));
    assert_eq!(law(&once, LoadLaw::Little), Some(false));
    let mut lost = certain.clone();
    times(&mut lost, &SENT, 1.05, |_| true);
    assert_eq!(law(&lost, LoadLaw::FlowBalance), Some(false));
}

#[test]
fn a_saturation_that_was_not_reached_has_no_figure() {
    let run = Simulated { think: 9_000, ..published() }.run();
    let found = limit(&run);
    let at_most = run.measurements.iter().filter(|one| kelvin_catalogue::load::USERS.of(&one.planned.case) == Some(22));
    let readings = at_most.flat_map(|one| &one.rounds).filter_map(|round| match &round.attempt {
        Attempt::Measured(readings) => readings.iter().find(|one| one.metric == THROUGHPUT.id),
        _ => None,
    });
    let seen: Vec<f64> = readings
        .flat_map(|reading| match &reading.readings {
            Readings::Scalars(values) => values.clone(),
            _ => Vec::new(),
        })
        .collect();
    let most = seen.iter().sum::<f64>() / seen.len() as f64;
    assert!((found.saturation.value / most - 1.0).abs() < 1e-9, "{:?} {most}", found.saturation);
    assert_eq!(found.knee, None);
}

/// A pool of so many workers whose requests wait for 10 ms, one after another at a lock or all at once, and take next to nothing else.
fn pool_that_waits(workers: usize, at_once: usize, users: &[u64]) -> Simulated {
    let mut pool = server([0.02, 0.1, 0.05, 0.05]);
    pool.stations.push(Station { resource: None, demand: 0.01, servers: at_once });
    Simulated { workers: Some(workers), users: users.to_vec(), cache: CacheState::Cached, requests: 4000, ..pool }
}

#[test]
fn a_lock_that_workers_wait_for_is_not_their_number() {
    let wait = |refuted| unknown(UnknownLimit::WorkersWait { refuted });
    let from_one: &[u64] = &[1, 2, 3, 4, 6, 8, 16, 32];
    for workers in [2, 4] {
        // One worker with a connection serves as much as all of them.
        let found = limit(&pool_that_waits(workers, 1, from_one).run());
        assert_eq!(unwatched(&found), ("one", 10, Whereabouts::Server), "{workers}: {found:?}");
        // All have one from the fewest users on: what they wait for cannot be told by that, but by a visit with more of them.
        let full = pool_that_waits(workers, 1, &[4, 8, 16, 32]);
        assert_eq!(limit(&full.run()).verdict, wait(false), "{workers}");
        let tested = Simulated { tries_more_workers: true, ..full };
        assert_eq!(limit(&tested.run()).verdict, wait(true), "{workers}");
        let study = concluded(&tested.run());
        let said = &study.answers[0].says;
        assert!(said.starts_with("What limits is not known: more workers serve no more"), "{said}");
        let more = claims(&study, |claim| matches!(claim, LoadClaim::MoreWorkers(_)).then_some(()));
        let [(_, more)] = more.as_slice() else { panic!("{more:?}") };
        assert_eq!(more.conclusion.holds, Some(false), "{}", more.text);
        assert!(claims(&study, |claim| matches!(claim, LoadClaim::WhatIf(_)).then_some(())).is_empty());
    }
}

#[test]
fn workers_that_sleep_are_the_limit_for_sure_only_where_more_of_them_served_more() {
    let by_workers = LoadVerdict::Resource { by: name(Workers) };
    let asleep = pool_that_waits(4, 1000, &[1, 2, 3, 4, 6, 8, 16, 32]);
    let found = limit(&asleep.run());
    assert_eq!((&found.verdict, found.doubts.as_slice()), (&by_workers, &[LoadDoubt::Untested][..]));
    let tested = Simulated { tries_more_workers: true, ..asleep };
    let found = limit(&tested.run());
    assert_eq!((&found.verdict, found.doubts.as_slice()), (&by_workers, &[][..]));
    let study = concluded(&tested.run());
    let more = claims(&study, |claim| match claim {
        LoadClaim::MoreWorkers(more) => Some(more.clone()),
        _ => None,
    });
    let [(more, concluded)] = more.as_slice() else { panic!("{more:?}") };
    assert_eq!((more.workers, more.users, concluded.conclusion.holds), ([4, 8], 32, Some(true)));
    assert!((more.times.value / 2.0 - 1.0).abs() < 0.05, "{more:?}");
    let next = claims(&study, |claim| matches!(claim, LoadClaim::WhatIf(_)).then_some(()));
    assert!(next.is_empty(), "how many times as many would serve as many more was not seen: {next:?}");
    // Of one worker alone nothing tells its sleep from a lock.
    let one = limit(&pool_that_waits(1, 1000, &[1, 2, 4, 8]).run());
    assert_eq!(one.verdict, unknown(UnknownLimit::WorkersWait { refuted: false }));
    // Nor is there growth to the end where all workers of many have a connection at last.
    let thinking = Simulated { think: 9_000, workers: Some(22), ..published() };
    assert_eq!(limit(&thinking.run()).verdict, unknown(UnknownLimit::StillGrowing { users: 22 }));
}

#[test]
fn what_exceeds_its_capacity_has_another_one() {
    let mut beyond = published().run();
    times(&mut beyond, &UTILISATION, 1.08, at(Link));
    assert_eq!(limit(&beyond).verdict, unknown(UnknownLimit::BeyondCapacity { resource: name(Link) }));
}

#[test]
fn threads_that_wait_for_the_cpus_of_others_are_short_of_cpu() {
    // The server has a quarter of a CPU, and would have all of it.
    let short = || with_lock(server([10.0, 30.0, 20.0, 5.0]), 110.0).with(&WITHOUT_CPU, 0.7);
    let doubt = [LoadDoubt::Hindered { by: Hindrance::WithoutCpu, of_server: true }];
    let by_cpu = LoadVerdict::Resource { by: name(ServerCpu) };
    let beside_others = short().with(&CPU_USER, 0.9);
    let mut hidden = short();
    hidden.hosts.retain(|(_, metric, _)| metric.id != CPU_THROTTLED.id);
    // A neighbour on the CPUs that it may run on, beside others that are idle.
    let beside_one = short().with(&CPU_ALLOWED, 0.99);
    let all = [("other work", &beside_others), ("a quota that cannot be seen", &hidden), ("a neighbour", &beside_one)];
    for (what, study) in all {
        let found = limit(&study.run());
        let is_other_work = matches!(
            found.verdict,
            LoadVerdict::Unwatched { how: Unwatched::OtherWork { .. }, at: Whereabouts::Server }
        );
        assert!(if what.starts_with("a quota") { found.verdict == by_cpu } else { is_other_work }, "{what}: {found:?}");
        assert!(found.doubts.ends_with(&doubt), "{what}: {:?}", found.doubts);
        assert!(hindrances(&study.run()).iter().any(|(.., text)| text.starts_with("threads of the server wait")));
    }
    // Other work on CPUs where it may not run takes nothing from it.
    let elsewhere = short().with(&CPU_USER, 0.9).with(&CPU_ALLOWED, 0.4);
    assert_eq!(
        (limit(&elsewhere.run()).verdict, hindrances(&elsewhere.run())),
        (unknown(UnknownLimit::NothingBusy), vec![])
    );
    // On CPUs that are not full they wait for each other.
    assert_eq!(limit(&short().run()).verdict, unknown(UnknownLimit::NothingBusy));
    assert_eq!(hindrances(&short().run()), []);
}

/// A server whose requests take 0.4 ms of its CPU and 0.4 ms of the client's, and wait for 5 ms in all for CPUs that other work has: at the
/// server for this share of the time, and at the client.
fn beside_other_work(at_server: f64, at_client: f64) -> Simulated {
    let mut both = server([0.01, 0.4, 0.01, 0.4]);
    both.stations[3].resource = Some(ClientCpu);
    both.stations.push(Station { resource: None, demand: 5e-3, servers: 4 });
    both.cache = CacheState::Cached;
    both.hosts.extend([(Host::Client, &WITHOUT_CPU, at_client), (Host::Client, &CPU_ALLOWED, 1.0)]);
    both.with(&CPU_ALLOWED, 1.0).with(&WITHOUT_CPU, at_server)
}

#[test]
fn other_work_is_named_where_requests_wait_for_cpus_most_of_the_time() {
    let found = limit(&beside_other_work(0.5, 0.35).run());
    let of = |limit: &LoadLimit| match limit.verdict {
        LoadVerdict::Unwatched { how: Unwatched::OtherWork { percent }, at } => Some((percent, at)),
        _ => None,
    };
    assert_eq!(of(&found), Some((85, Whereabouts::Server)), "{found:?}");
    assert_eq!(found.doubts[0], LoadDoubt::OthersWork);
    // Also while throughput still grows.
    let growing = Simulated { users: vec![1, 2, 3], ..beside_other_work(0.3, 0.6) };
    let found = limit(&growing.run());
    assert_eq!((of(&found), found.knee), (Some((90, Whereabouts::Client)), None));
    assert!(
        concluded(&growing.run()).answers[0]
            .says
            .starts_with("What limits is probably other work on the CPUs of the load")
    );
    // Most of what a request takes is not that.
    assert_eq!(of(&limit(&beside_other_work(0.2, 0.2).run())), None);
    // The CPUs are not full: threads of one end wait for each other.
    let mut free = beside_other_work(0.5, 0.35).with(&CPU_ALLOWED, 0.6);
    free.hosts.retain(|(host, metric, _)| *host != Host::Client || metric.id != CPU_ALLOWED.id);
    assert_eq!(of(&limit(&free.run())), None);
    // Both ends on one CPU wait for each other.
    let mut shared = beside_other_work(0.5, 0.5);
    (shared.stations[1].demand, shared.stations[3].demand) = (2e-3, 2e-3);
    (shared.stations[4].demand, shared.stations[4].servers) = (4e-3, 1);
    assert_eq!(of(&limit(&shared.run())), None);
    // Users who think for longer than an answer takes.
    let thinking = Simulated { think: 100, users: vec![1, 2, 4, 8], ..beside_other_work(0.5, 0.35) };
    assert_eq!(of(&limit(&thinking.run())), None);
}

#[test]
fn a_client_beside_a_neighbour_is_the_limit_and_why_is_said() {
    let mut slow = server([10.0, 10.0, 20.0, 70.0]);
    slow.stations.push(Station { resource: Some(ClientCpu), demand: 0.02, servers: 1 });
    slow.hosts.extend([(Host::Client, &WITHOUT_CPU, 0.6), (Host::Client, &CPU_ALLOWED, 1.0)]);
    let run = slow.run();
    assert_eq!(limit(&run).verdict, LoadVerdict::Client { by: name(Generator) });
    assert!(
        hindrances(&run).iter().any(|(of, ..)| of.by == Hindrance::WithoutCpu && !of.of_server),
        "{:?}",
        hindrances(&run)
    );
}

#[test]
fn stalls_are_named_where_nothing_is_full_for_a_tenth_of_the_time() {
    let stalling = |share, a_second, milliseconds: [f64; 4]| {
        let mut run = with_lock(server(milliseconds), 0.5);
        (run.stalled, run.stalls, run.users) = (share, a_second, vec![1, 2, 4, 8, 16]);
        run.stations[4].servers = 2;
        limit(&run.run())
    };
    let idle = [0.05, 0.1, 0.05, 0.05];
    let found = stalling(0.3, 1.0, idle);
    let stalls = Unwatched::Stalls { percent: 30, nanoseconds: 300_000_000, every_nanoseconds: 1_000_000_000 };
    assert_eq!(found.verdict, LoadVerdict::Unwatched { how: stalls, at: Whereabouts::Server });
    assert_eq!(found.doubts[0], LoadDoubt::NotWatched);
    let is_stalls =
        |limit: &LoadLimit| matches!(limit.verdict, LoadVerdict::Unwatched { how: Unwatched::Stalls { .. }, .. });
    // A twentieth of the time, or a single one in all visits.
    assert!(!is_stalls(&stalling(0.05, 1.0, idle)) && !is_stalls(&stalling(0.3, 0.01, idle)));
    // What is full all the same limits, and a full CPU is known to stall by its quota.
    let full = stalling(0.3, 1.0, [0.05, 2.0, 0.05, 0.05]);
    assert_eq!((&full.verdict, full.doubts.as_slice()), (&LoadVerdict::Resource { by: name(ServerCpu) }, &[][..]));
}

/// Files that fit into memory with up to so many users: with more the disk reads half of what is served.
fn fits_until(most: u64, mut simulated: Simulated) -> Run {
    simulated.cache = CacheState::Uncached;
    let mut run = simulated.run();
    times(&mut run, &FROM_DISK, 0.0, |case| kelvin_catalogue::load::USERS.of(case).is_some_and(|users| users <= most));
    times(&mut run, &FROM_DISK, 0.5 / 2.4, |_| true);
    times(&mut run, &THROUGHPUT, 0.7, |case| kelvin_catalogue::load::USERS.of(case).is_some_and(|users| users > most));
    run
}

#[test]
fn memory_that_holds_the_files_of_few_users_only_is_named() {
    let idle = || with_lock(server([0.2, 0.4, 0.2, 0.1]), 1.0);
    let found = limit(&fits_until(8, idle()));
    let how = Unwatched::Memory { users: 10, percent: 50 };
    assert_eq!(found.verdict, LoadVerdict::Unwatched { how, at: Whereabouts::Disk }, "{found:?}");
    assert_eq!(found.doubts[0], LoadDoubt::NoMoreMemory);
    let is_memory =
        |limit: &LoadLimit| matches!(limit.verdict, LoadVerdict::Unwatched { how: Unwatched::Memory { .. }, .. });
    // Files that come from the disk with any number of users, or never.
    assert!(!is_memory(&limit(&fits_until(0, idle()))) && !is_memory(&limit(&fits_until(100, idle()))));
    // A CPU that is full with many users as well.
    assert_eq!(
        limit(&fits_until(8, server([0.2, 4.0, 0.2, 0.1]))).verdict,
        LoadVerdict::Resource { by: name(ServerCpu) }
    );
}

#[test]
fn threads_that_wait_for_flushes_are_at_the_disk_whether_throughput_grows_or_not() {
    // Requests take 0.5 ms at a journal that flushes two at a time, and 0.1 ms of CPU.
    let log = |users: &[u64], blocked: f64| {
        let mut log = server([0.01, 0.1, 0.01, 0.1]);
        log.stations.push(Station { resource: None, demand: 0.5e-3, servers: 2 });
        Simulated { cache: CacheState::Cached, users: users.to_vec(), written: 4096.0, blocked, ..log }
    };
    let place = |limit: &LoadLimit| match limit.verdict {
        LoadVerdict::Unwatched { how: Unwatched::Each { .. }, at } => Some(("each", at)),
        LoadVerdict::Unwatched { how: Unwatched::InTurn { .. }, at } => Some(("in turn", at)),
        _ => None,
    };
    let found = limit(&log(&[1, 2, 3], 0.75).run());
    assert_eq!((place(&found).map(|(_, at)| at), found.knee), (Some(Whereabouts::Disk), None), "{found:?}");
    assert_eq!(place(&limit(&log(&[1, 2, 4, 8, 16], 0.75).run())), Some(("in turn", Whereabouts::Disk)));
    // Threads that were not seen to wait, on a host of which none waits for a disk, do not wait for the log.
    let elsewhere = limit(&log(&[1, 2, 4, 8, 16], 0.05).with(&PRESSURE_IO, 0.05).with(&DISK_WRITES, 1e4).run());
    assert_ne!(place(&elsewhere).map(|(_, at)| at), Some(Whereabouts::Disk), "{elsewhere:?}");
}

#[test]
fn threads_that_wait_for_a_cpu_now_and_then_beside_other_work_do_not_limit() {
    let beside_others = with_lock(server([0.2, 0.1, 0.2, 0.1]), 20.0).with(&CPU_USER, 0.95).with(&WITHOUT_CPU, 0.1);
    assert_eq!(unwatched(&limit(&beside_others.run())), ("one", 20, Whereabouts::Server));
    // Sixteen threads, each with a request that sleeps: one of them waits for a CPU on average.
    let mut sleep = server([0.1, 0.5, 0.1, 0.1]);
    sleep.stations.push(Station { resource: None, demand: 0.04, servers: 1000 });
    sleep.stations.push(Station { resource: Some(ServerThread), demand: 0.5e-3 / 16.0, servers: 1 });
    let threads = Simulated { users: vec![1, 2, 4, 8, 16], ..sleep };
    let found = limit(&threads.with(&CPU_USER, 0.95).with(&WITHOUT_CPU, 1.0).run());
    assert_ne!(found.verdict, LoadVerdict::Resource { by: name(ServerCpu) }, "{found:?}");
}

#[test]
fn a_limit_that_changes_in_the_middle_is_doubted() {
    // The disk is full in some visits, and in the others something that nobody watches limits.
    let mut run = server([100.0, 10.0, 20.0, 5.0]).run();
    let mut count = 0;
    for one in run.measurements.iter_mut().filter(|one| at(Disk)(&one.planned.case)) {
        for round in &mut one.rounds {
            count += 1;
            let Attempt::Measured(readings) = &mut round.attempt else { continue };
            for reading in readings.iter_mut().filter(|one| one.metric == UTILISATION.id && count % 5 == 0) {
                reading.readings = Readings::Scalars(vec![0.6]);
            }
        }
    }
    let found = limit(&run);
    assert_eq!(found.verdict, LoadVerdict::Resource { by: name(Disk) }, "{found:?}");
    assert!(found.doubts.contains(&LoadDoubt::Unsteady), "{:?}", found.doubts);
}

#[test]
fn nothing_is_concluded_from_a_saturation_that_was_not_reached() {
    let run = Simulated { think: 9_000, ..published() }.run();
    let study = concluded(&run);
    let text = &study.conclusions[0].text;
    assert!(
        text.contains("throughput still grew at 22 users, and the limit was not reached: it serves at least 2."),
        "{text}"
    );
    let of_saturation = claims(&study, |claim| match claim {
        LoadClaim::WhatIf(_) => Some("what if"),
        LoadClaim::Law(check) if check.law == LoadLaw::Utilisation => Some("utilisation"),
        _ => None,
    });
    assert!(of_saturation.is_empty(), "{of_saturation:?}");
    assert!(study.tables.iter().all(|table| !table.title.contains("at saturation")), "{:?}", study.tables);
}

#[test]
fn whether_the_generator_was_the_limit_is_said_once() {
    let of = |run: &Run| {
        let study = concluded(run);
        let found = claims(&study, |claim| matches!(claim, LoadClaim::Generator { .. }).then_some(()));
        let [(_, concluded)] = found.as_slice() else { panic!("{found:?}") };
        (concluded.conclusion.holds, concluded.text.clone(), study.answers[0].because.join(" "))
    };
    let (holds, text, answer) = of(&server([10.0, 10.0, 20.0, 70.0]).run());
    assert_eq!(holds, Some(false));
    assert!(text.starts_with("the load generator was not the limit, which is not so: "), "{text}");
    assert!(answer.contains("The load generator was the limit: "), "{answer}");
    // A link that is certainly fuller than a busy generator is the limit, and the generator is not.
    let busy = server([10.0, 10.0, 100.0, 87.0]).run();
    assert_eq!((&limit(&busy).verdict, of(&busy).0), (&LoadVerdict::Resource { by: name(Link) }, Some(true)));
}

#[test]
fn a_generator_that_is_late_only_where_nothing_is_full_was_not_the_limit() {
    let kept_up = |run: &Run| {
        let study = concluded(run);
        let found = claims(&study, |claim| matches!(claim, LoadClaim::Generator { .. }).then_some(()));
        let [(_, concluded)] = found.as_slice() else { panic!("{found:?}") };
        concluded.conclusion.holds
    };
    let late = |is_at: fn(&Case) -> bool| {
        let mut run = published().run();
        times(&mut run, &LATENESS, 1e4, is_at);
        (limit(&run).doubts.contains(&LoadDoubt::LateGenerator), kept_up(&run))
    };
    assert_eq!(late(|_| false), (false, Some(true)));
    assert_eq!(late(|case| kelvin_catalogue::load::USERS.of(case) == Some(1)), (false, Some(true)));
    assert_eq!(late(|_| true), (true, None), "it may have been");
}

#[test]
fn the_next_limit_is_told_by_capacity_and_as_measured() {
    // The disk works 2.4 times as much for each request as its capacity was stated for.
    let mut run = published().run();
    times(&mut run, &UTILISATION, 2.4, at(Disk));
    let study = concluded(&run);
    let found: Vec<(LoadWhatIf, &Concluded)> = claims(&study, |claim| match claim {
        LoadClaim::WhatIf(what_if) => Some(what_if.clone()),
        _ => None,
    });
    let [(what_if, concluded)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((what_if.limit, what_if.next), (name(Link), name(Disk)));
    let alone = what_if.from_capacity.unwrap();
    assert!((alone.times / (173.0 / 46.0) - 1.0).abs() < 0.05 && (alone.throughput * 0.046 - 1.0).abs() < 0.05);
    let measured = what_if.as_measured;
    assert!((measured.times / (173.0 / 46.0 / 2.4) - 1.0).abs() < 0.05, "{what_if:?}");
    assert!((measured.throughput * 0.046 * 2.4 - 1.0).abs() < 0.05, "{what_if:?}");
    assert!(
        concluded.text.starts_with("of what was watched the next limit is the disk: if the network were 3."),
        "{}",
        concluded.text
    );
}

#[test]
fn a_leak_is_found_and_none_where_there_is_none() {
    let grows = |simulated: &Simulated| {
        let study = concluded(&simulated.run());
        let found = claims(&study, |claim| match claim {
            LoadClaim::Growth { of_server: true, bytes_a_request, .. } => Some(*bytes_a_request),
            _ => None,
        });
        let [(growth, concluded)] = found.as_slice() else { panic!("{found:?}") };
        (*growth, concluded.conclusion.holds)
    };
    let (growth, holds) = grows(&Simulated { leak: 1024.0, ..published() });
    assert_eq!(holds, Some(true));
    assert!((growth.value / 1024.0 - 1.0).abs() < 0.1, "{growth:?}");
    assert_eq!(grows(&published()).1, Some(false));
}

/// The conclusions of one kind of claim, with their labels.
fn labelled(run: &Run, of: impl Fn(&LoadClaim) -> bool) -> Vec<(Option<bool>, String)> {
    let study = concluded(run);
    let found = claims(&study, |claim| of(claim).then_some(()));
    found.into_iter().map(|(_, one)| (one.conclusion.holds, one.text.clone())).collect()
}

#[test]
fn a_label_says_whether_the_claim_of_its_sentence_is_so() {
    // A disk that reads what is served reads no more than 1.1 times that.
    let reads = |claim: &LoadClaim| matches!(claim, LoadClaim::Amplification { .. });
    let mut run = published().run();
    let [(holds, text)] = labelled(&run, reads).try_into().unwrap();
    assert!(holds == Some(true) && text.starts_with("the disk reads more than 1.10 bytes for each byte served: 2.4"));
    times(&mut run, &kelvin_catalogue::load::FROM_DISK, 1.0 / 2.4, |_| true);
    let [(holds, text)] = labelled(&run, reads).try_into().unwrap();
    assert!(
        holds == Some(false) && (text.contains("served: 0.99") || text.contains("served: 1.00")),
        "{holds:?} {text}"
    );
    // Memory that grows by more for each request, but by little in all.
    let grows = |claim: &LoadClaim| matches!(claim, LoadClaim::Growth { of_server: true, .. });
    let [(holds, text)] = labelled(&Simulated { leak: 1024.0, ..published() }.run(), grows).try_into().unwrap();
    assert_eq!(holds, Some(true), "{text}");
    assert!(text.contains(" in the study: by 1") && text.ends_with("in the study"), "{text}");
    // What no visit has tested is not known, however certain the limit is.
    let next = |claim: &LoadClaim| matches!(claim, LoadClaim::WhatIf(_));
    let [(holds, _)] = labelled(&published().run(), next).try_into().unwrap();
    assert_eq!(holds, None);
    let doubted = Simulated { failing: 0.02, ..published() }.run();
    let [(holds, text)] = labelled(&doubted, next).try_into().unwrap();
    assert_eq!(holds, None, "nothing follows from a limit that is not certain: {text}");
    // Response times of single visits are no evidence of growth.
    let response = |claim: &LoadClaim| matches!(claim, LoadClaim::Response { .. });
    let [(holds, _)] = labelled(&published().run(), response).try_into().unwrap();
    assert_eq!(holds, Some(true));
    let once = Simulated { visits: 1, ..published() }.run();
    assert!(labelled(&once, response).iter().all(|(holds, _)| holds.is_none()));
}

#[test]
fn a_share_is_never_below_nothing_and_an_answer_no_larger_than_its_file() {
    let mut run = published().run();
    // Every second visit used nothing of the disk, as far as was seen.
    let mut even = false;
    for one in run.measurements.iter_mut().filter(|one| at(Disk)(&one.planned.case)) {
        for round in &mut one.rounds {
            even = !even;
            let Attempt::Measured(readings) = &mut round.attempt else { continue };
            for reading in readings.iter_mut().filter(|one| one.metric == UTILISATION.id && even) {
                reading.readings = Readings::Scalars(vec![0.0]);
            }
        }
    }
    let used = limit(&run).used;
    assert!(used.iter().all(|one| one.utilisation.low >= 0.0), "{used:?}");
    assert_eq!(limit(&published().run()).request_bytes.map(f64::round), Some(2e6));
    times(&mut run, &kelvin_catalogue::load::RATE, 1e6, |_| true);
    assert_eq!(limit(&run).request_bytes, None);
}

#[test]
fn the_sentence_says_it_all() {
    let study = concluded(&published().run());
    let text = &study.conclusions[0].text;
    assert!(text.starts_with("from 3 users (2 to "), "{text}");
    assert!(text.contains(") on the network is the limit: 5.8"), "{text}");
    assert!(text.contains(" requests/s of 2 MB (11.") && text.contains("that the network carries; disk 2"), "{text}");
    let table = &study.tables[0];
    assert_eq!(table.rows.len(), grid(20).len());
    assert_eq!(study.tables[1].rows[0].label, "network");
}

/// Studies of random servers of six kinds. The example `load_studies` judges thousands.
#[test]
fn no_verdict_on_random_servers_is_wrong_and_certain() {
    for seed in 0..24 {
        let planted = Planted::random(seed);
        let judged = planted.judge(&studies(&planted.study.run()));
        assert!(!judged.is_wrong(), "{seed}: {judged:?} of {planted:?}");
        assert!(!judged.is_far(), "{seed}: {judged:?} of {planted:?}");
    }
}

/// The answers of a study, as lines.
fn answered(what: &str, run: &Run) -> String {
    let line = |answer: &Answer| format!("{}\n  {}\n", answer.says, answer.because.join("\n  "));
    format!("# {what}\n{}", concluded(run).answers.iter().map(line).collect::<String>())
}

#[test]
fn the_answer_reads_well_in_every_form() {
    let certain = published().run();
    let [mut amplified, mut beyond, mut late, mut once] = [&certain; 4].map(Run::clone);
    times(&mut amplified, &UTILISATION, 2.4, at(Disk));
    times(&mut beyond, &UTILISATION, 1.3, at(Link));
    times(&mut late, &LATENESS, 1e4, |_| true);
    times(&mut once, &IN_FLIGHT, 1.1, |case| kelvin_catalogue::load::USERS.of(case) == Some(6));
    let planted = [
        ("a slow link, and a disk that reads more than is served", amplified),
        ("think time", Simulated { think: 1000, ..published() }.run()),
        (
            "one fixed file from memory",
            Simulated { pattern: Pattern::Fixed, cache: CacheState::Cached, ..published() }.run(),
        ),
        ("a single user", server([0.3, 0.2, 150.0, 0.1]).run()),
        ("two equal", server([100.0, 10.0, 98.0, 5.0]).run()),
        ("two near", Simulated { error: 0.03, ..server([100.0, 10.0, 90.0, 5.0]) }.run()),
        ("a slow client", server([10.0, 10.0, 20.0, 70.0]).run()),
        ("slow CPUs", server([10.0, 90.0, 20.0, 5.0]).run()),
        ("one worker", Simulated { workers: Some(1), ..server([50.0, 30.0, 40.0, 5.0]) }.run()),
        (
            "workers that sleep",
            Simulated { tries_more_workers: true, ..pool_that_waits(4, 1000, &[1, 2, 4, 8, 16]) }.run(),
        ),
        ("workers that wait for a lock", pool_that_waits(4, 1, &[1, 2, 4, 8, 16]).run()),
        ("late requests", late),
        ("a law broken once", once),
        ("a leak", Simulated { leak: 1024.0, ..published() }.run()),
        ("one visit", Simulated { visits: 1, ..published() }.run()),
        ("few users", Simulated { think: 9_000, ..published() }.run()),
        ("a lock", with_lock(server([40.0, 10.0, 50.0, 5.0]), 110.0).run()),
        ("a lock beside a disk", with_lock(server([80.0, 10.0, 40.0, 5.0]), 110.0).run()),
        ("a wrong capacity", beyond),
    ];
    let all: Vec<String> = planted.iter().map(|(what, run)| answered(what, run)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

/// The conclusions across cases, by what they compare.
fn compared(run: &Run) -> Vec<(&'static str, Option<bool>, String)> {
    let study = concluded(run);
    let found = claims(&study, |claim| match claim {
        LoadClaim::Across(comparison) => Some(match comparison.figure {
            LoadFigure::Throughput { .. } => "throughput",
            LoadFigure::Knee => "knee",
            LoadFigure::FromDisk => "from disk",
        }),
        _ => None,
    });
    found.into_iter().map(|(what, one)| (what, one.conclusion.holds, one.text.clone())).collect()
}

fn held(run: &Run) -> Vec<(&'static str, Option<bool>)> {
    compared(run).into_iter().map(|(what, holds, _)| (what, holds)).collect()
}

/// Visits that are long enough to tell 5 %.
fn long(simulated: Simulated) -> Simulated {
    Simulated { requests: 1500, ..simulated }
}

#[test]
fn a_fixed_file_leaves_the_throughput_and_not_the_disk_where_the_link_limits() {
    let fixed = Simulated { pattern: Pattern::Fixed, seed: 8, ..server([0.1, 10.0, 173.0, 5.0]) };
    let run = together(&[long(published()), long(fixed)]);
    assert_eq!(held(&run), [("throughput", Some(true)), ("from disk", Some(true))]);
    let said: String = compared(&run).into_iter().map(|(_, _, text)| text + "\n").collect();
    assert!(
        said.contains("with one fixed file as with random files: 5.") && said.contains("disk reads less"),
        "{said}"
    );
    let answers = concluded(&run).answers;
    let says: Vec<&str> = answers.iter().map(|answer| answer.says.as_str()).collect();
    assert!(says[0].starts_with("Random files: the network is the limit"), "{says:?}");
    assert!(says[1].starts_with("One fixed file: the network is the limit"), "{says:?}");
    assert_eq!(says[2], "One fixed file instead of random files: the throughput at saturation is the same.");
    let disk = answers[2].because.last().unwrap();
    assert!(disk.starts_with("The disk reads 0 instead of 2.4"), "{disk}");
}

#[test]
fn a_fixed_file_is_faster_where_the_disk_limits() {
    let random = server([120.0, 10.0, 40.0, 5.0]);
    let fixed = Simulated { pattern: Pattern::Fixed, seed: 8, ..server([0.1, 10.0, 40.0, 5.0]) };
    let run = together(&[long(random), long(fixed)]);
    assert_eq!(held(&run), [("throughput", Some(false)), ("from disk", Some(true))]);
}

#[test]
fn think_time_moves_the_knee_and_not_the_saturation() {
    let thinking = Simulated { think: 1000, users: grid(30), seed: 8, ..published() };
    let run = together(&[long(published()), long(thinking)]);
    assert_eq!(held(&run), [("throughput", Some(true)), ("knee", Some(true))]);
    let answers = concluded(&run).answers;
    assert!(answers[2].says.starts_with("1 s of think time instead of no think time: "), "{}", answers[2].says);
    assert!(answers[2].because[1].starts_with("The knee is later: at 1"), "{:?}", answers[2].because);
    // The order in which they were measured is no matter, and the same think time is none.
    let shorter = Simulated { think: 1, seed: 8, ..published() };
    let alike = held(&together(&[long(shorter), long(published())]));
    assert_eq!(alike[0], ("throughput", Some(true)));
    assert_ne!(alike[1], ("knee", Some(true)));
}

#[test]
fn files_in_memory_are_compared_with_those_from_the_disk() {
    let cached = Simulated { cache: CacheState::Cached, seed: 8, ..server([0.1, 10.0, 40.0, 5.0]) };
    let run = together(&[long(cached), long(server([120.0, 10.0, 40.0, 5.0]))]);
    assert_eq!(held(&run), [("throughput", Some(false)), ("from disk", Some(true))]);
    assert_eq!(held(&published().run()), [], "one case has nothing beside it");
}

#[test]
fn a_server_that_slows_down_is_not_what_it_was() {
    let steady = |simulated: &Simulated| {
        let study = concluded(&simulated.run());
        let found = claims(&study, |claim| match claim {
            LoadClaim::Steady { drift, back, .. } => Some((*drift, *back)),
            _ => None,
        });
        let [((drift, back), concluded)] = found.as_slice() else { panic!("{found:?}") };
        (*drift, *back, concluded.conclusion.holds)
    };
    let short = Simulated { users: vec![1, 2, 4, 8, 12], visits: 8, ..published() };
    let (drift, back, holds) = steady(&short);
    assert_eq!(holds, Some(true), "{drift:?}, {back:?}");
    assert!(back.is_some_and(|(users, off)| users == 1 && off.low < 0.0 && off.high > 0.0), "{back:?}");
    let (drift, _, holds) = steady(&Simulated { slowing: 0.3, ..short });
    assert_eq!(holds, Some(false), "{drift:?}");
    assert!(drift.low < -0.26 && drift.high > -0.30, "a third slower is 26 % less: {drift:?}");
}

#[test]
fn visits_are_told_over_time_and_the_return_is_marked() {
    let run = published().run();
    let analysis = kelvin_analysis::analyse(&run);
    let [timeline] = analysis.timelines.as_slice() else { panic!("{:?}", analysis.timelines) };
    let points = || timeline.groups.iter().flat_map(|group| &group.points);
    assert_eq!(points().count(), 4 * grid(20).len() + 1);
    assert!(timeline.groups.iter().all(|group| group.points.is_sorted_by_key(|(at, _)| *at)));
    let last = points().map(|(at, _)| *at).fold(0.0, f64::max);
    assert_eq!(timeline.back, Some(("back to 1 user".to_owned(), last)));
    assert!(timeline.groups[0].points.iter().any(|(at, _)| *at == last));
}
